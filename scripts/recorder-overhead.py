#!/usr/bin/env python3
"""What the recorder costs a real pipeline: pairs of runs with it on and off.

    scripts/recorder-overhead.py [--config configs/loader-train.toml] [--pairs 30] [--set key=value ...]

The machine's speed drifts by more than the recorder costs, so the two runs of a pair go on at the same time, each
with one worker on a core of its own (its collector there too), and then once more with the cores exchanged; the
geometric mean of both halves is one pair. Prints the ratio on / off of samples/s and of CPU time per sample, with the 95 %
interval of the mean over the pairs (Student's t). Off, nothing is measured inside; so both are timed from outside,
over the whole process. Needs two cores. Build with `cargo build --release` first.
"""
import argparse
import math
import os
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Two-sided 97.5 % quantiles of Student's t, by degrees of freedom; the next lower one is used for others.
T = {4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001, 99: 1.984}


def launch(a, on, core, out):
    sets = [x for s in a.set for x in ("--set", s)]
    return subprocess.Popen(
        ["taskset", "-c", str(core), os.path.join(ROOT, "target/release/stallscope"), "run", a.config, "--run-dir", out,
         "--quiet", "--trace", "none", "--set", f"recorder={str(on).lower()}", "--set", "num_workers=1",
         "--set", f"steps={a.steps}", "--set", "warmup_steps=1", *sets], stdout=subprocess.DEVNULL)


def together(a, cores):
    """Runs both at once; returns seconds and CPU seconds of each, recorder on first."""
    with tempfile.TemporaryDirectory() as on_out, tempfile.TemporaryDirectory() as off_out:
        started = time.perf_counter()
        children = [launch(a, True, cores[0], on_out), launch(a, False, cores[1], off_out)]
        ended = {}
        while len(ended) < len(children):
            pid, status, usage = os.wait4(-1, 0)
            if status:
                raise SystemExit(f"a run failed with status {status}")
            ended[pid] = (time.perf_counter() - started, usage.ru_utime + usage.ru_stime)
        for child in children:
            child.returncode = 0
        return [ended[child.pid] for child in children]


def interval(ratios):
    mean = statistics.fmean(ratios)
    t = T[max((d for d in T if d <= len(ratios) - 1), default=min(T))]
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return mean, mean - half, mean + half


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "configs/loader-train.toml"))
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    if a.pairs < 5:
        p.error("--pairs must be at least 5, or the interval says nothing")
    cores = sorted(os.sched_getaffinity(0))[:2]
    rates, cpus = [], []
    for n in range(a.pairs):
        halves = [together(a, cores), together(a, cores[::-1])]
        rates.append(math.prod(off[0] / on[0] for on, off in halves) ** 0.5)
        cpus.append(math.prod(on[1] / off[1] for on, off in halves) ** 0.5)
        print(f"pair {n + 1}: samples/s x{rates[-1]:.4f}, CPU x{cpus[-1]:.4f}", flush=True)
    for name, ratios in (("samples/s", rates), ("CPU per sample", cpus)):
        mean, low, high = interval(ratios)
        print(f"{name}, on / off: mean {mean:.4f}, median {statistics.median(ratios):.4f}, "
              f"95 % interval of the mean {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    main()
