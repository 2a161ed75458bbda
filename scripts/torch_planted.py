#!/usr/bin/env python3
"""Plants one cost, or two, in a PyTorch training and asks stallscope which it is.

The truth knows nothing of the profiler: the same training with `time` only, with the cost and without it. What the
device idles less without it, over the window with it, has to be the share of the cause that the report names first,
within 2 % of the window. Each round runs the training with the cost, without it and under the profiler, in turns; what
counts are the medians.

usage: torch_planted.py measure RUNS.json [--cases GLOB] [--seconds N]    adds rounds, to the cases with fewest first
       torch_planted.py table RUNS.json                                   what all rounds say

Needs torch, torchvision and Pillow, and `stallscope` on the PATH.
"""

import argparse
import fnmatch
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from planted_training import CASES, Case, train

TRAINING = Path(__file__).with_name("planted_training.py")
TOLERANCE = 0.02
PROFILED = ["stallscope", "torch"]


def plain(chosen: Case, without: "str | None" = None) -> "dict[str, float]":
    """Window and busy time of the training by `time` alone, in seconds; in a process that has torch already."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.write(writing, json.dumps(train(chosen, without)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit(f"{chosen.name}: the plain training failed")
    return json.loads(text)


def profiled(chosen: Case) -> dict:
    """What the report of the same training says."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*PROFILED, "--warmup-steps", str(chosen.warmup), "--run-dir", folder, str(TRAINING), chosen.name]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            raise SystemExit(f"{chosen.name}: {ran.stderr}")
        report = json.loads(Path(folder, "report.json").read_text())
    window = report["window_ns"]
    return {
        "window": window / 1e9,
        "busy": (window - report["device"]["idle_ns"]) / 1e9,
        "verdict": (report["verdict"] or {}).get("title", ""),
        "causes": {cause["cause"]: cause["ns"] / window for cause in report["idle_causes"]},
    }


def measured(chosen: Case) -> dict:
    """One round."""
    cost = next(iter(chosen.costs))
    return {"with": plain(chosen), "without": plain(chosen, cost), "profiled": profiled(chosen)}


def judged(chosen: Case, rounds: "list[dict]") -> dict:
    """What the rounds say of a case, by their medians."""

    def middle(run: str, key: str) -> float:
        return median(one[run][key] for one in rounds)

    window = middle("with", "window")
    idle, other = (median(one[run]["window"] - one[run]["busy"] for one in rounds) for run in ("with", "without"))
    reports = [one["profiled"] for one in rounds]
    names = [name_of(chosen, report) for report in reports]
    if chosen.says == ("device-bound",):
        # What removing the step recovers is no idle time: idle has to be what it is without the profiler.
        share, truth = 1 - middle("profiled", "busy") / middle("profiled", "window"), idle / window
    else:
        # Where the report has several rows for what is one cost, its share is their sum.
        own = lambda report: sum(share for cause, share in report["causes"].items() if cause.startswith(chosen.says))
        share, truth = median(own(report) for report in reports), (idle - other) / window
    right = all(name.startswith(chosen.says) for name in names)
    named = next((name for name in names if not name.startswith(chosen.says)), names[0])
    return {"named": named, "right": right, "share": share, "truth": truth, "error": share - truth, "window": window}


def name_of(chosen: Case, report: dict) -> str:
    if chosen.says == ("device-bound",) and "device-bound" in report["verdict"]:
        return "device-bound"
    return next(iter(report["causes"]), "none")


def line(chosen: Case, rounds: "list[dict]") -> "tuple[str, bool]":
    """A row of the table, and whether the case is named right and within the tolerance."""
    row = judged(chosen, rounds)
    good = row["right"] and abs(row["error"]) <= TOLERANCE
    how = f"{chosen.workers} {chosen.context}" if chosen.workers else "0"
    return (
        f"{'ok' if good else 'NO'}  {chosen.name:36} {how:8} {row['named']:32} {row['share']:7.1%} {row['truth']:7.1%} "
        f"{100 * row['error']:+6.1f}  {len(rounds)}"
    ), good


def table(runs: "dict[str, list[dict]]") -> int:
    import torch

    print(f"# planted costs: {time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, Python "
          f"{platform.python_version()}, torch {torch.__version__}")
    print("# scripts/torch_planted.py measure RUNS.json, several times; scripts/torch_planted.py table RUNS.json")
    print("# share: of the cause in the report; truth: idle time that removing it recovers by a plain script; both of")
    print("# the window, medians over the rounds; for a slow step, idle time with and without the profiler")
    print(f"    {'case':36} {'workers':8} {'named first':32} {'share':>7} {'truth':>7} {'diff':>6}  rounds")
    known = [chosen for chosen in CASES if runs.get(chosen.name)]
    good = []
    for chosen in known:
        text, is_good = line(chosen, runs[chosen.name])
        print(text)
        good.append(is_good)
    rows = [judged(chosen, runs[chosen.name]) for chosen in known]
    right, near = sum(row["right"] for row in rows), sum(abs(row["error"]) <= TOLERANCE for row in rows)
    print(f"# of {len(rows)} cases {right} named right in every round, {near} within {TOLERANCE:.0%} of the window, {sum(good)} both")
    return 0 if all(good) else 1


def measure(path: Path, runs: "dict[str, list[dict]]", cases: str, seconds: float) -> int:
    import torchvision  # noqa: F401 - so that no plain training has to

    until = time.monotonic() + seconds
    wanted = [chosen for chosen in CASES if fnmatch.fnmatch(chosen.name, cases)]
    longest = 0.0
    for chosen in sorted(wanted, key=lambda chosen: len(runs.get(chosen.name, []))):
        began = time.monotonic()
        if began + longest > until:
            break
        runs.setdefault(chosen.name, []).append(measured(chosen))
        longest = max(longest, time.monotonic() - began)
        path.write_text(json.dumps(runs, indent=1))
        print(line(chosen, runs[chosen.name])[0], flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("runs", type=Path, help="where the rounds are kept")
    parser.add_argument("--cases", default="*", help="those whose names match")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case is begun that would take longer")
    asked = parser.parse_args()
    runs = json.loads(asked.runs.read_text()) if asked.runs.exists() else {}
    if asked.what == "table":
        return table(runs)
    return measure(asked.runs, runs, asked.cases, asked.seconds)


if __name__ == "__main__":
    sys.exit(main())
