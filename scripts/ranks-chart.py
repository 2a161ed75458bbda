#!/usr/bin/env python3
"""Writes docs/ranks.csv: throughput of 1 to 512 ranks, 8 a node, predicted from one run.

    stallscope run configs/emulated-gpu.toml --set train=false --run-dir PROFILE
    python3 scripts/ranks-chart.py PROFILE                       (minutes: `stallscope predict` for each point)
    UPDATE_REFERENCE=1 cargo test --release --lib charts::ranks  (draws docs/ranks.svg from the table)
"""

import argparse
import csv
from pathlib import Path

from measured import interval, prediction

ROOT = Path(__file__).resolve().parent.parent

RANKS = [2**power for power in range(10)]
SERVERS = ["10GB/s", "40GB/s", ""]
COLUMNS = ["server", "ranks", "nodes", "samples_per_second", "low", "high", "apart", "waiting", "binds"]


def predict(binary, report, server, ranks):
    """A line of the table."""
    nodes = max(ranks // 8, 1)
    options = ["--ranks", str(ranks), "--nodes", str(nodes)]
    options += ["--shared-bandwidth", server] if server else []
    predicted = prediction(binary, report, *options)
    return {
        "server": server or "enough",
        "ranks": ranks,
        "nodes": nodes,
        **interval(predicted["samples_per_second"]),
        "apart": round(predicted["apart_samples_per_second"], 1),
        "waiting": round(predicted["waiting_share"], 4),
        "binds": predicted["binds"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the folder of a run, or its report.json")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/stallscope")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/ranks.csv", help="the table to write")
    args = parser.parse_args()
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for server in SERVERS:
            writer.writerows(predict(args.binary, args.report, server, ranks) for ranks in RANKS)
    print(args.out)


if __name__ == "__main__":
    main()
