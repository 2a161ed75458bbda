#!/usr/bin/env python3
"""How exact predictions are: one run is profiled, other settings are predicted from it, the predictions are
saved, and only then the settings are measured.

    python3 scripts/prediction.py jpeg                       (makes its images on the first run)
    python3 scripts/prediction.py mnist --data DATA/mnist

A shared machine is faster or slower by a tenth from one second or minute to the next, so that is done in several
rounds. Each has a profile of its own, and its predictions are of that one run only; a setting's error is the mean of
the middle half of the rounds. What each round by itself comes to is printed as well. The profiled setting is measured
between the others: where it is itself more than 4 % (MNIST: 20 %) quicker or slower than it was when profiled, or where
other programs, or other guests of the machine's host, took more than a fiftieth of a core, another round takes its
place. What was predicted plays no part in that, and what such rounds come to is printed, too.

A third of the settings is bound by the cores, a third by waiting for the disk, a third lies at the knee: there the
device is as fast as the loader is predicted to be, so that it is the knee on any machine. What is asked there is the
most exact, so those runs are repeated within a round. Needs target/release/stallscope; run it from the root folder
on a machine that does nothing else.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The least and the most that the device's step is scaled by.
FASTEST, SLOWEST = 0.25, 4

# The most cores that others may use in a round, while it is profiled and on average while it is measured.
OTHERS = 0.02

# Runs of a setting at the knee in a round, and of the profiled one, which tell whether the machine is still the one
# that was profiled.
KNEE_RUNS = 3
CONTROLS = 8
LATENCY = "storage.emulate=custom storage.latency={}ms"


def setting(kind, words, step, latency=0):
    """A setting: its kind, keys, how many times the device's step is as long, and the disk's latency in ms."""
    sets = words.split()
    if latency:
        sets += LATENCY.format(latency).split()
    return {"kind": kind, "words": words, "step": step, "latency": latency, "sets": sets}


def knee(words, latency=0):
    """A setting at the knee: the device's step is found from the profile."""
    return setting("knee", words, None, latency)


JPEG = {
    "config": "configs/emulated-gpu.toml",
    "profile": setting("", "num_workers=1", 1),
    # Of a sample on the emulated device, in microseconds.
    "step_us": 1087.5,
    "samples": 1000,
    "least_steps": 20,
    # How many times as many samples the profiled run has: all predictions of a round rest on it.
    "profile_longer": 15,
    # How much quicker or slower the profiled setting may be while others are measured.
    "changed": 0.04,
    "base": [],
    "disk_steps": [],
    "knee_disk_steps": [],
    "settings": [
        setting("cores", "num_workers=0 batch.size=64", 0.25),
        setting("cores", "num_workers=1 batch.size=32 prefetch_factor=1", 0.25),
        setting("cores", "num_workers=1 batch.size=128 prefetch_factor=4", 0.25),
        setting("cores", "num_workers=2 batch.size=16 prefetch_factor=2", 0.25),
        setting("cores", "num_workers=2 batch.size=64 prefetch_factor=8", 0.5),
        setting("cores", "num_workers=4 batch.size=32 prefetch_factor=1", 0.25),
        setting("cores", "num_workers=8 batch.size=16 prefetch_factor=2", 0.25),
        setting("cores", "num_workers=per-stage decode.workers=2 preprocess.workers=1 batch.size=32", 0.25),
        setting("cores", "num_workers=per-stage decode.workers=4 preprocess.workers=2 batch.size=64 batch.prefetch=4", 0.5),
        setting("disk", "num_workers=0 batch.size=16", 1, 2),
        setting("disk", "num_workers=1 batch.size=32 prefetch_factor=2", 1, 5),
        setting("disk", "num_workers=2 batch.size=64 prefetch_factor=1", 0.5, 10),
        setting("disk", "num_workers=4 batch.size=16 prefetch_factor=8", 1, 10),
        setting("disk", "num_workers=6 batch.size=32 prefetch_factor=4", 0.25, 10),
        setting("disk", "num_workers=8 batch.size=128 prefetch_factor=1", 0.5, 10),
        setting("disk", "num_workers=per-stage read.workers=1 decode.workers=2 batch.size=32", 1, 2),
        setting("disk", "num_workers=per-stage read.workers=4 decode.workers=2 batch.size=64", 1, 10),
        setting("disk", "num_workers=per-stage read.workers=8 decode.workers=1 batch.size=256 batch.prefetch=1", 0.5, 10),
        knee("num_workers=1 batch.size=16 prefetch_factor=1"),
        knee("num_workers=4 batch.size=16 prefetch_factor=1"),
        knee("num_workers=per-stage decode.workers=1 batch.size=16 batch.prefetch=1 copy.prefetch=1"),
        knee("num_workers=per-stage decode.workers=1 batch.size=32 batch.prefetch=1 copy.prefetch=1"),
        knee("num_workers=per-stage decode.workers=2 batch.size=64 batch.prefetch=1 copy.prefetch=1"),
        knee("num_workers=per-stage decode.workers=2 batch.size=32 batch.prefetch=2"),
        knee("num_workers=8 batch.size=16 prefetch_factor=1", 10),
        knee("num_workers=4 batch.size=32 prefetch_factor=1", 10),
        knee("num_workers=2 batch.size=16 prefetch_factor=1", 5),
    ],
}

# Read from memory, and only normalised: a batch takes as little as handing it on. In sequence, so that a batch is one
# request to the disk; shuffled, images take 1.6 times as long to normalise, which matters where they do not wait for
# a request each.
MNIST = {
    "config": "configs/mnist-linear.toml",
    # As with JPEG the loader is the slower one: with x0.25 the two are about as fast, and a run is bound by either.
    "profile": setting("", "num_workers=1 batch.size=256 prefetch_factor=8", 0.1),
    "step_us": 0.3,
    "samples": 12_000_000,
    "least_steps": 3000,
    "profile_longer": 12,
    # Where a batch takes as long as waking who waits for it, there are two ways of handing on, a fifth apart, and either
    # lasts for a second.
    "changed": 0.2,
    "base": ["epochs=100000", "split.choose=last", "shuffle=false"],
    "disk_steps": ["steps=24", "warmup_steps=6", "shuffle=true"],
    "knee_disk_steps": ["steps=1500", "warmup_steps=60"],
    "settings": [
        setting("cores", "num_workers=0 batch.size=16", 0.25),
        setting("cores", "num_workers=0 batch.size=64", 0.3),
        setting("cores", "num_workers=0 batch.size=256", 0.25),
        setting("cores", "num_workers=0 batch.size=128", 0.25),
        setting("cores", "num_workers=1 batch.size=32 prefetch_factor=4", 0.25),
        setting("cores", "num_workers=1 batch.size=128 prefetch_factor=8", 0.25),
        setting("cores", "num_workers=2 batch.size=256 prefetch_factor=8", 0.25),
        setting("disk", "num_workers=0 batch.size=64", 1, 1),
        setting("disk", "num_workers=1 batch.size=16 prefetch_factor=2", 1, 2),
        setting("disk", "num_workers=2 batch.size=64 prefetch_factor=1", 1, 5),
        setting("disk", "num_workers=4 batch.size=32 prefetch_factor=2", 4, 2),
        setting("disk", "num_workers=4 batch.size=128 prefetch_factor=1", 1, 10),
        setting("disk", "num_workers=8 batch.size=16 prefetch_factor=8", 1, 1),
        setting("disk", "num_workers=8 batch.size=256 prefetch_factor=1", 0.5, 5),
        setting("disk", "num_workers=6 batch.size=64 prefetch_factor=4", 1, 10),
        knee("num_workers=0 batch.size=64"),
        knee("num_workers=1 batch.size=128 prefetch_factor=4"),
        knee("num_workers=1 batch.size=64 prefetch_factor=4"),
        knee("num_workers=1 batch.size=256 prefetch_factor=2"),
        knee("num_workers=6 batch.size=128 prefetch_factor=1", 0.5),
        knee("num_workers=2 batch.size=256 prefetch_factor=1", 0.5),
        knee("num_workers=4 batch.size=128 prefetch_factor=1", 0.5),
        knee("num_workers=4 batch.size=256 prefetch_factor=1", 1),
        knee("num_workers=8 batch.size=256 prefetch_factor=1", 2),
    ],
}

EXPERIMENTS = {"jpeg": JPEG, "mnist": MNIST}


class Program:
    """Runs and predicts one experiment."""

    def __init__(self, binary, experiment, data):
        self.binary, self.experiment = str(binary), experiment
        self.base = ["device=emulated:custom", "emulated.step_base=0ms", "trace.enabled=false", *experiment["base"]]
        if data:
            self.base.append(f"source.path={data}")

    def sets(self, sets, step, batch, longer=1):
        """All `--set` words of a run with the device's step `step` times as long."""
        experiment = self.experiment
        step = f"emulated.step_per_sample={experiment['step_us'] * step / 1000:.9f}ms"
        steps = max(experiment["least_steps"], longer * experiment["samples"] // batch)
        warmup = max(5, steps // 10)
        sets = self.base + [step, f"steps={steps}", f"warmup_steps={warmup}"] + sets
        return [word for text in sets for word in ("--set", text)]

    def run(self, sets, folder):
        command = [self.binary, "run", self.experiment["config"], "--quiet", "--run-dir", str(folder), *sets]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads((folder / "report.json").read_text())

    def predict(self, report, sets):
        command = [self.binary, "predict", str(report), "--json", *sets]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)["prediction"]


def batch_of(words):
    sizes = [int(word.split("=")[1]) for word in words if word.startswith("batch.size=")]
    return sizes[-1] if sizes else 32


def steps_for(experiment, one):
    """With a disk that is slow, fewer steps do."""
    if not one["latency"]:
        return []
    # At the knee the disk is about as fast as the device.
    return experiment["knee_disk_steps" if one["kind"] == "knee" else "disk_steps"]


def knee_step(program, report, one, batch):
    """How many times as long the device's step is that makes it as fast as the loader."""
    experiment = program.experiment
    words = program.sets(one["sets"] + steps_for(experiment, one), FASTEST, batch)
    loader = program.predict(report, words)["samples_per_second"]["value"]
    step = 1e6 / experiment["step_us"] / loader
    return round(min(max(step, FASTEST), SLOWEST), 3)


def percent(value):
    return f"{100 * value:+6.1f} %"


def middle(values):
    """The mean of the middle half."""
    values = sorted(values)
    cut = len(values) // 4
    return statistics.mean(values[cut : len(values) - cut])


def figures(rows):
    """What is asked of errors, and what at most."""
    error = sorted(abs(row["error"]) for row in rows)
    near = [row for row in rows if row["kind"] == "knee"]
    return [
        ("samples/s, median error", statistics.median(error), 0.04),
        ("samples/s, 90th percentile", error[int(0.9 * (len(error) - 1) + 0.5)], 0.10),
        ("near the knee, median error", median_size(near, "error"), median_size(near, "bound_error") / 2),
        ("device busy, median error", median_size(rows, "busy_error"), 0.03),
    ]


def median_size(rows, key):
    return statistics.median(abs(row[key]) for row in rows)


def in_short(rows):
    """One line of what is asked of errors."""
    median, p90, knee, busy = figures(rows)
    return (
        f"{100 * median[1]:5.2f} % {100 * p90[1]:6.2f} % {100 * knee[1]:6.2f} % ({100 * knee[2]:.2f} %) "
        f"{100 * busy[1]:6.2f} %"
    )


def together(rounds):
    """The rows of all rounds as those of one."""
    return [as_one(list(rows)) for rows in zip(*rounds)]


def summary(name, rows, rounds, disturbed):
    print("\neach round by itself: median, 90th percentile, near the knee (half the bound's), busy")
    for number, single in enumerate(rounds):
        print(f"  {number + 1:>3}: {in_short(single)}")
    for single in disturbed:
        print(f"    -: {in_short(single)}, on a machine that had changed")
    if disturbed:
        print(f"  all: {in_short(together(rounds + disturbed))}, with those")
    checks = figures(rows)
    print(f"\n{name}: {len(rows)} settings, each predicted from one run, in {len(rounds)} rounds")
    for what, value, most in checks:
        verdict = "ok" if value <= most else "FAILED"
        print(f"  {what:<30} {100 * value:5.2f} %   at most {100 * most:5.2f} %   {verdict}")
    near = [row for row in rows if row["kind"] == "knee"]
    bound, knee_bound = median_size(rows, "bound_error"), median_size(near, "bound_error")
    print(f"  the analytic bound: median {100 * bound:.2f} %, near the knee {100 * knee_bound:.2f} %")
    inside = [row["low"] <= row["measured"] <= row["high"] for single in rounds for row in single]
    print(f"  rounds inside the predicted interval: {sum(inside)} of {len(inside)}")
    return all(value <= most for _, value, most in checks)


def outcome(one, result):
    """How a measured run compares with what was predicted."""
    prediction = one["prediction"]
    value, low, high = (prediction["samples_per_second"][key] for key in ("value", "low", "high"))
    rate, busy = result["samples_per_second"], result["device"]["busy_share"]
    return {
        "others": result["profile"]["other_programs_cores"],
        "kind": one["kind"],
        "words": one["words"],
        "step": one["step"],
        "latency_ms": one["latency"],
        "measured": rate,
        "predicted": value,
        "low": low,
        "high": high,
        "error": value / rate - 1,
        "bound_error": prediction["bound_samples_per_second"] / rate - 1,
        "busy": busy,
        "busy_error": prediction["device_busy"]["value"] - busy,
    }


def as_one(rows):
    """The rows of a setting as one."""
    keys = ("others", "step", "measured", "predicted", "error", "bound_error", "busy", "busy_error")
    return {**rows[0], **{key: middle([row[key] for row in rows]) for key in keys}}


def one_round(program, settings, out, number):
    """Profiles a run, predicts all settings, saves that, and measures them; also tells whether the machine stayed the
    same."""
    experiment = program.experiment
    profile = experiment["profile"]
    batch = batch_of(profile["sets"])
    folder = out / f"profile-{number}"
    longer = experiment["profile_longer"]
    report = program.run(program.sets(profile["sets"], profile["step"], batch, longer), folder)
    for one in settings:
        batch = batch_of(one["sets"])
        if one["kind"] == "knee":
            one["step"] = knee_step(program, folder, one, batch)
        one["all"] = program.sets(one["sets"] + steps_for(experiment, one), one["step"], batch)
        one["prediction"] = program.predict(folder, one["all"])
    saved = out / f"predictions-{number}.json"
    saved.write_text(json.dumps(settings, indent=1))
    rate = report["samples_per_second"]
    print(f"round {number}: profiled {rate:.1f} samples/s; {len(settings)} predictions saved in {saved.name}", flush=True)
    again = program.sets(profile["sets"], profile["step"], batch_of(profile["sets"]))
    order = [place for place, one in enumerate(settings) for _ in range(KNEE_RUNS if one["kind"] == "knee" else 1)]
    order += [None] * CONTROLS
    random.Random(number).shuffle(order)
    rows, controls = {place: [] for place in range(len(settings))}, []
    for place in order:
        if place is None:
            controls.append(program.run(again, out / "run")["samples_per_second"])
        else:
            rows[place].append(outcome(settings[place], program.run(settings[place]["all"], out / "run")))
    rows = [as_one(rows[place]) for place in range(len(settings))]
    others = max(report["profile"]["other_programs_cores"], statistics.mean(row["others"] for row in rows))
    changed = middle(controls) / rate - 1
    undisturbed = others <= OTHERS and abs(changed) <= experiment["changed"]
    print(
        f"round {number}: measured; others used {others:.3f} cores, the profiled setting itself {percent(changed).strip()}"
        f"{'' if undisturbed else '; once more, the machine was another one'}",
        flush=True,
    )
    return rows, undisturbed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=list(EXPERIMENTS))
    parser.add_argument("--data", help="the folder of MNIST's files")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/stallscope")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, help="where predictions and measurements are kept")
    args = parser.parse_args()
    experiment = EXPERIMENTS[args.experiment]
    if experiment is not JPEG and not args.data:
        parser.error(f"{args.experiment} needs --data FOLDER")
    if experiment is JPEG and args.data:
        parser.error("jpeg makes its own images: leave --data out")
    out = args.out or Path(tempfile.mkdtemp(prefix="prediction-"))
    out.mkdir(parents=True, exist_ok=True)
    data = Path(args.data).resolve() if args.data else None
    program = Program(args.binary.resolve(), experiment, data)

    profile = experiment["profile"]
    print(f"profiled setting: {profile['words']}, step x{profile['step']}")
    rounds, disturbed = [], []
    while len(rounds) < args.rounds:
        if len(disturbed) > 2 * args.rounds:
            sys.exit(f"the machine changed in {len(disturbed)} rounds: try again on one that does nothing else")
        number = len(rounds) + len(disturbed) + 1
        rows, undisturbed = one_round(program, experiment["settings"], out, number)
        (rounds if undisturbed else disturbed).append(rows)
        (out / "rounds.json").write_text(json.dumps({"rounds": rounds, "disturbed": disturbed}, indent=1))
    rows = together(rounds)
    print(f"\n{'':<6}{'measured':>11} {'predicted':>11} {'error':>8} {'bound':>8}   {'busy':>7} {'error':>8}")
    for row in rows:
        disk = f", disk {row['latency_ms']} ms" if row["latency_ms"] else ""
        print(
            f"{row['kind']:<6}{row['measured']:11.1f} {row['predicted']:11.1f} {percent(row['error'])} "
            f"{percent(row['bound_error'])}   {100 * row['busy']:5.1f} % {100 * row['busy_error']:+6.1f}   "
            f"{row['words']}, step x{row['step']:.3g}{disk}"
        )
    sys.exit(0 if summary(args.experiment, rows, rounds, disturbed) else 1)


if __name__ == "__main__":
    main()
