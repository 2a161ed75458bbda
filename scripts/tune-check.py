#!/usr/bin/env python3
"""Does `tune` find the best settings? Every point of a grid is measured; then `tune` searches the same grid from
several starting points, and its winner and the grid's best point are measured again, in turns.

    python3 scripts/tune-check.py            (makes its images on the first run; half an hour on 2 cores)

Needs target/release/stallscope; run it from the repository's root on a machine that does nothing else.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/emulated-gpu.toml"

# A disk that takes 4 ms a picture and a device that is faster than two cores decode: workers help until the
# cores are full, and too few or too shallow a queue leave the device waiting.
BASE = [
    "device=emulated:custom",
    "emulated.step_base=2ms",
    "emulated.step_per_sample=0.6ms",
    "storage.emulate=custom",
    "storage.latency=4ms",
    "trace.enabled=false",
    "steps=120",
    "warmup_steps=8",
]
GRID = {
    "num_workers": [0, 1, 2, 3, 4, 6, 8, 12],
    "prefetch_factor": [1, 2, 4],
    "batch.size": [16, 32],
}
STARTS = [
    {"num_workers": 1, "prefetch_factor": 2, "batch.size": 32},
    {"num_workers": 0, "prefetch_factor": 1, "batch.size": 16},
    {"num_workers": 2, "prefetch_factor": 1, "batch.size": 16},
    {"num_workers": 12, "prefetch_factor": 4, "batch.size": 32},
    {"num_workers": 4, "prefetch_factor": 1, "batch.size": 32},
]
PAIRS = 5
# Of the pairs; trials are shorter.
PAIR_STEPS = ["steps=200"]
TRIALS = 8


def words(point):
    """The point as `key=value` words. Without workers prefetch_factor has no effect."""
    return [f"{key}={value}" for key, value in point.items()]


def call(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def sets(texts):
    return [word for text in texts for word in ("--set", text)]


def run(binary, point, folder):
    """Samples/s of a point, in a longer run than a trial's."""
    command = [binary, "run", CONFIG, "--quiet", "--run-dir", str(folder), *sets(BASE + words(point) + PAIR_STEPS)]
    call(command)
    return json.loads((folder / "report.json").read_text())["samples_per_second"]


def sweep(binary, out, repeats):
    """Every point of the grid, best first."""
    grid = [word for key, values in GRID.items() for word in ("--grid", f"{key}={','.join(map(str, values))}")]
    command = [binary, "sweep", CONFIG, *grid, "--repeats", str(repeats), "--out", str(out), *sets(BASE)]
    call(command)
    points = []
    for row in csv.DictReader((out / "results.csv").open()):
        point = {key: int(row[key]) for key in GRID}
        rate = next(float(row[name]) for name in row if name.startswith("samples_per_second"))
        points.append((rate, point))
    return sorted(points, key=lambda found: -found[0])


def tune(binary, start, out):
    searched = [word for key, values in GRID.items() for word in ("--search", f"{key}={','.join(map(str, values))}")]
    command = [binary, "tune", CONFIG, *searched, "--only-searched", "--trials", str(TRIALS)]
    call([*command, "--json", "--out", str(out), *sets(BASE + words(start))])
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    tuned = tomllib.loads((out / "tuned.toml").read_text())
    winner = {}
    for key in GRID:
        value = tuned
        for part in key.split("."):
            value = value.get(part, {}) if isinstance(value, dict) else value
        winner[key] = value if isinstance(value, int) else start[key]
    return winner, len(trials)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/stallscope"))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="tune-check-"))
    out.mkdir(parents=True, exist_ok=True)
    points = sweep(args.binary, out / "grid", args.repeats)
    rate, best = points[0]
    print(f"grid: {len(points)} points, {points[-1][0]:.1f} to {rate:.1f} samples/s; best {' '.join(words(best))}")
    failed = 0
    for number, start in enumerate(STARTS):
        winner, trials = tune(args.binary, start, out / f"tune-{number}")
        pairs = []
        for _ in range(PAIRS):
            pairs.append((run(args.binary, winner, out / "run"), run(args.binary, best, out / "run")))
        share = statistics.median(one / other for one, other in pairs)
        ok = share >= 0.97 and trials <= TRIALS
        failed += not ok
        print(
            f"from {' '.join(words(start)):<50} {trials} trials, winner {' '.join(words(winner)):<50} "
            f"{100 * share:6.1f} % of the grid's best   {'ok' if ok else 'FAILED'}",
            flush=True,
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
