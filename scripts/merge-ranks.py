#!/usr/bin/env python3
"""What merging many ranks costs: writes the logs of synthetic ranks, and has `stallscope report` merge them.

    scripts/merge-ranks.py [--ranks 512] [--steps 10000] [--per-machine 8] [PROGRAM]

PROGRAM is target/release/stallscope. Steps take 100 ms; at each, every rank's batch is ready after 10 to 90 ms, and those of rank
7 up to 60 ms later. Each machine's clock differs by up to 5 ms. Prints the time, the memory, and the size of the page.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEP, MS = 100_000_000, 1_000_000
LATE = 7


def header(rank, args, clock):
    return {"schema": "stallscope-steps", "version": 1, "rank": rank, "world_size": args.ranks, "meets_others": True,
            "warmup_steps": 10, "boot_id": f"machine-{rank // args.per_machine}", "clock_ns": clock, "monotonic_ns": clock,
            "unix_ns": 1_800_000_000_000_000_000 + random.Random(rank // args.per_machine).randrange(5 * MS)}


def write_log(path, rank, args):
    draw = random.Random(rank)
    begun = 50_000_000_000
    causes = [{"cause": "read capacity", "stage": "read"}, {"cause": "decode capacity", "stage": "decode"}]
    with open(path, "w") as log:
        print(json.dumps(header(rank, args, begun)), file=log)
        for cause in causes:
            print(json.dumps(cause), file=log)
        for step in range(args.steps):
            start = begun + step * STEP
            wait = draw.randrange(10, 90) * MS + (draw.randrange(60) * MS if rank == LATE else 0)
            wait = min(wait, STEP - MS)
            print(json.dumps([start, start + wait, start + STEP]), file=log)
            told = {"step": step, "idle": [[draw.randrange(2), wait // 3], [1, wait - wait // 3]]}
            print(json.dumps(told), file=log)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--per-machine", type=int, default=8)
    parser.add_argument("program", nargs="?", default=ROOT / "target/release/stallscope", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder)
        for rank in range(args.ranks):
            (run / f"rank-{rank}").mkdir()
            write_log(run / f"rank-{rank}/steps.jsonl", rank, args)
        logged = sum(log.stat().st_size for log in run.glob("rank-*/steps.jsonl"))
        began = time.monotonic()
        child = subprocess.Popen([args.program, "report", run], stdout=subprocess.PIPE, text=True)
        told = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began
        if child.returncode:
            raise SystemExit(f"exit {child.returncode}")
        page = (run / "ranks.html").stat().st_size
        print(told)
        print(f"{args.ranks} ranks of {args.steps} steps, {logged / 1e6:.0f} MB of logs: {took:.1f} s, "
              f"{usage.ru_utime + usage.ru_stime:.1f} s of CPU time, {usage.ru_maxrss / 1024:.0f} MiB; page {page / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
