#!/usr/bin/env python3
"""What the recorder costs a real pipeline: interleaved pairs of runs with it on and off.

    scripts/recorder-overhead.py [--config configs/loader-train.toml] [--pairs 15] [--set key=value ...]

Prints the ratio on / off of samples/s and of CPU time per sample, with the 95 % interval of the mean of the paired
ratios (Student's t). Off, nothing is measured inside; so both are timed from outside, over the whole process.
Build with `cargo build --release` first.
"""
import argparse
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Two-sided 97.5 % quantiles of Student's t, by degrees of freedom.
T = {9: 2.262, 14: 2.145, 15: 2.131, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023}


def run(a, on):
    with tempfile.TemporaryDirectory() as out:
        sets = [x for s in a.set for x in ("--set", s)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run([os.path.join(ROOT, "target/release/stallscope"), "run", a.config, "--run-dir", out, "--quiet",
                        "--trace", "none", "--set", f"recorder={str(on).lower()}", *sets],
                       check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def interval(ratios):
    mean = statistics.fmean(ratios)
    t = T.get(len(ratios) - 1) or T[min(T, key=lambda d: abs(d - len(ratios) + 1))]
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return mean, mean - half, mean + half


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "configs/loader-train.toml"))
    p.add_argument("--pairs", type=int, default=15)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    rates, cpus = [], []
    for n in range(a.pairs):
        order = (True, False) if n % 2 else (False, True)
        got = {on: run(a, on) for on in order}
        rates.append(got[False][0] / got[True][0])
        cpus.append(got[True][1] / got[False][1])
        print(f"pair {n + 1}: samples/s x{rates[-1]:.4f}, CPU x{cpus[-1]:.4f}", flush=True)
    for name, ratios in (("samples/s", rates), ("CPU per sample", cpus)):
        mean, low, high = interval(ratios)
        print(f"{name}, on / off: mean {mean:.4f}, median {statistics.median(ratios):.4f}, "
              f"95 % interval {low:.4f} to {high:.4f}")
    sys.exit(0)


if __name__ == "__main__":
    main()
