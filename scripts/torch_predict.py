#!/usr/bin/env python3
"""Hold predictions for PyTorch's DataLoader against real runs.

Each training of predicted_training.py is profiled at one setting: three times, since machines are noisy, and the run of
median speed counts. From that one run every setting of the grid is predicted, and all predictions are saved before any of
them is measured, by `time` alone.

usage: torch_predict.py profile DIR [--script NAME]... [--num-workers N]    profiles, and saves the predictions
       torch_predict.py measure DIR [--script NAME]... [--seconds N]        measures what has been measured least
       torch_predict.py table DIR [--again]                                 what came of it

`table --again` asks the stallscope of today about the runs of then. Needs torch, torchvision and Pillow, and
`stallscope` on the PATH.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

TRAINING = Path(__file__).with_name("predicted_training.py")
SCRIPTS = ("waits", "jpeg", "small")
# Workers, prefetch factor, persistent or not.
GRID = [(0, 2, False), (1, 2, False), (1, 2, True), (2, 1, True), (2, 2, True), (2, 4, False), (4, 2, False), (4, 2, True),
        (8, 1, False), (8, 2, True), (16, 2, True)]


def called(setting):
    workers, prefetch, persistent = setting
    return f"{workers} workers, prefetch {prefetch}{', persistent' if persistent else ''}" if workers else "0 workers"


def arguments(setting):
    workers, prefetch, persistent = setting
    return ["--num-workers", str(workers), "--prefetch-factor", str(prefetch), *["--persistent-workers"] * persistent]


def sets(setting):
    keys = zip(("num_workers", "prefetch_factor", "persistent_workers"), setting)
    for key, value in keys:
        if setting[0] or key == "num_workers":
            yield from ("--set", f"{key}={json.dumps(value)}")


def output(command):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def predicted(run, setting):
    answer = json.loads(output(["stallscope", "predict", str(run), "--json", *sets(setting)]))
    return answer["prediction"]["samples_per_second"]


def profile(options):
    for name in options.script or SCRIPTS:
        if rates_of(options.dir / name):
            sys.exit(f"{options.dir / name} has measurements already, which predictions must precede: choose another folder")
        run, own = options.dir / name, (options.num_workers, 2, False)
        tries = {}
        for number in range(3):
            folder = options.dir / f"{name}-{number}"
            ran = output(["stallscope", "torch", "--run-dir", str(folder), str(TRAINING), name, *arguments(own)])
            tries[folder] = json.loads(next(line for line in ran.splitlines() if line.startswith("{")))["samples_per_second"]
        run.mkdir(exist_ok=True)
        for place, folder in enumerate(sorted(tries, key=tries.get)):
            if place == 1:
                (folder / "report.json").replace(run / "report.json")
            shutil.rmtree(folder)
        forecasts = [predicted(run, setting) for setting in GRID]
        (run / "predictions.json").write_text(json.dumps([list(zip(map(called, GRID), forecasts)), called(own)], indent=1))
        print(f"{name}: profiled with {called(own)}, {len(GRID)} predictions saved", flush=True)


def measure(options):
    """Adds a measurement to the settings that have fewest, until the time is over."""
    ends = time.monotonic() + options.seconds
    while time.monotonic() < ends:
        all_rates = {name: rates_of(options.dir / name) for name in options.script or SCRIPTS}
        count = lambda place: len(all_rates[place[0]].get(called(place[1]), []))
        name, setting = min(((name, setting) for setting in GRID for name in all_rates), key=count)
        rate = json.loads(output([sys.executable, str(TRAINING), name, *arguments(setting)]))["samples_per_second"]
        all_rates[name].setdefault(called(setting), []).append(rate)
        (options.dir / name / "measured.json").write_text(json.dumps(all_rates[name], indent=1))


def rates_of(run):
    file = run / "measured.json"
    return json.loads(file.read_text()) if file.exists() else {}


def table(options):
    import torch

    print(f"# PyTorch's DataLoader predicted from one run: {time.strftime('%Y-%m-%d')}, {platform.machine()}, "
          f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}")
    errors, inside, lost = [], [], []
    for name in SCRIPTS:
        run = options.dir / name
        rates = {setting: median(own) for setting, own in rates_of(run).items()}
        if not rates:
            continue
        forecasts, own = json.loads((run / "predictions.json").read_text())
        if options.again:
            forecasts = [(called(setting), predicted(run, setting)) for setting in GRID]
        print(f"\n{name}, profiled with {own}:")
        print(f"{'samples/s':32} {'predicted':>9} {'interval':>20} {'measured':>9} {'error':>8}")
        forecasts = [one for one in forecasts if one[0] in rates]
        for setting, forecast in forecasts:
            measured = rates[setting]
            error = forecast["value"] / measured - 1
            holds = forecast["low"] <= measured <= forecast["high"]
            errors.append(abs(error))
            inside.append(holds)
            interval = f"[{forecast['low']:.1f} .. {forecast['high']:.1f}]"
            print(f"{setting:32} {forecast['value']:9.1f} {interval:>20} {measured:9.1f} {100 * error:+6.1f} %"
                  f"{'' if holds else '  outside'}")
        best = max(forecasts, key=lambda one: one[1]["value"])[0]
        lost.append(rates[best] / max(rates.values()))
        print(f"predicted best: {best}, {100 * lost[-1]:.1f} % of the best measured")
    errors.sort()
    tail = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    print(f"\n{len(errors)} settings: error median {100 * median(errors):.1f} %, 90th percentile {100 * tail:.1f} %; "
          f"{sum(inside)} inside the interval; predicted best at {100 * min(lost):.1f} % of the best or more")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("profile", "measure", "table"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("--script", choices=SCRIPTS, action="append")
    parser.add_argument("--num-workers", type=int, default=2, help="of the run that is predicted from")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    {"profile": profile, "measure": measure, "table": table}[options.what](options)


if __name__ == "__main__":
    main()
