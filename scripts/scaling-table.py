#!/usr/bin/env python3
"""Writes docs/scaling.csv: throughput with 1 to 512 workers on 1 to 256 cores, predicted from one run.

    stallscope run configs/emulated-gpu.toml --set num_workers=1 --set page_cache=warm --run-dir PROFILE
    python3 scripts/scaling-table.py PROFILE                     (minutes: `stallscope predict` for each point)
    UPDATE_REFERENCE=1 cargo test --release --lib scaling        (draws docs/scaling.svg from the table)
"""

import argparse
import csv
from pathlib import Path

from measured import interval, prediction

ROOT = Path(__file__).resolve().parent.parent

WORKERS = sorted({whole for power in range(10) for whole in (2**power, 3 * 2**power // 2) if whole <= 512})
CORES = [1, 4, 16, 64, 256]
# More steps than are simulated: the window is one of a long run.
STEPS = ["steps=100000", "warmup_steps=2000"]
PANELS = {
    "memory": {
        "speedup": 10_000,
        "sets": ["emulated.launch=0ms", "emulated.copy_bandwidth=100000GB/s"],
    },
    "network": {
        "speedup": 8,
        "sets": ["device=emulated:resnet50-h100", "storage.emulate=custom", "storage.latency=10ms"],
    },
}
COLUMNS = ["panel", "cores", "num_workers", "samples_per_second", "low", "high", "bound", "bound_by", "device_busy"]


def predict(binary, report, panel, cores, workers):
    """A line of the table."""
    sets = [f"num_workers={workers}", *STEPS, *PANELS[panel]["sets"]]
    options = ["--cores", str(cores), "--device-speedup", str(PANELS[panel]["speedup"])]
    options += [word for text in sets for word in ("--set", text)]
    predicted = prediction(binary, report, *options)
    return {
        "panel": panel,
        "cores": cores,
        "num_workers": workers,
        **interval(predicted["samples_per_second"]),
        "bound": round(predicted["bound_samples_per_second"], 1),
        "bound_by": predicted["bound_by"],
        "device_busy": round(predicted["device_busy"]["value"], 4),
    }


def predict_all(binary, report):
    rows = []
    for panel in PANELS:
        for cores in CORES:
            rows += [predict(binary, report, panel, cores, workers) for workers in WORKERS]
            last = rows[-1]
            print(f"{panel}, {cores} cores: {last['samples_per_second']:.0f} samples/s with 512 workers", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the folder of a run, or its report.json")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/stallscope")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/scaling.csv", help="the table to write")
    args = parser.parse_args()
    rows = predict_all(args.binary, args.report)
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(args.out)


if __name__ == "__main__":
    main()
