#!/usr/bin/env python3
"""What the recorder costs a real pipeline: pairs of runs with it on and off.

    scripts/recorder-overhead.py [--config configs/loader-train.toml] [--pairs 30] [--set key=value ...]

A shared machine's speed drifts by more than the recorder costs. So the two runs of a pair take turns: one is stopped
(SIGSTOP) while the other has the whole machine, 30 ms each, until both have ended. A run's time is that of
its turns. Prints the ratio on / off of samples/s and of CPU time per sample, with the 95 % interval of the mean over
the pairs (Student's t). Off, nothing is measured inside; so both are timed from outside, over the whole process, start
and end included. Time goes on for a stopped run's timers, so what the recorder does by the clock is done up to twice as
often here: the ratios are upper bounds. Build with `cargo build --release` first.
"""
import argparse
import math
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Two-sided 97.5 % quantiles of Student's t, by degrees of freedom; the next lower one is used for others.
T = {4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001, 99: 1.984}
TURN = 0.03


class Run:
    """A run that goes on in turns only."""

    def __init__(self, a, on, out):
        sets = [x for s in a.set for x in ("--set", s)]
        began = time.perf_counter()
        self.child = subprocess.Popen(
            [os.path.join(ROOT, "target/release/stallscope"), "run", a.config, "--run-dir", out, "--quiet", "--trace",
             "none", "--set", f"recorder={str(on).lower()}", "--set", f"steps={a.steps}", "--set", "warmup_steps=1", *sets],
            stdout=subprocess.DEVNULL)
        self.ended = os.pidfd_open(self.child.pid)
        self.cpu = None
        self.seconds = self.pause(began)

    def turn(self):
        began = time.perf_counter()
        os.kill(self.child.pid, signal.SIGCONT)
        select.select([self.ended], [], [], TURN)
        self.seconds += self.pause(began)

    def pause(self, began):
        """Stops it, unless it has ended; returns the seconds since `began`."""
        os.kill(self.child.pid, signal.SIGSTOP)
        _, status, usage = os.wait4(self.child.pid, os.WUNTRACED)
        seconds = time.perf_counter() - began
        if not os.WIFSTOPPED(status):
            self.child.returncode = status
            self.cpu = usage.ru_utime + usage.ru_stime
            os.close(self.ended)
            if status:
                raise SystemExit(f"a run failed with status {status}")
        return seconds

    def kill(self):
        if self.cpu is None:
            self.child.kill()
            self.child.wait()


def pair(a, on_first):
    """Returns the ratios on / off of samples/s and of CPU time."""
    with tempfile.TemporaryDirectory() as out:
        runs = {}
        try:
            for on in (on_first, not on_first):
                runs[on] = Run(a, on, os.path.join(out, str(on)))
            while going := [run for run in runs.values() if run.cpu is None]:
                for run in going:
                    run.turn()
        finally:
            for run in runs.values():
                run.kill()
        on, off = runs[True], runs[False]
        return off.seconds / on.seconds, on.cpu / off.cpu


def interval(ratios):
    mean = statistics.fmean(ratios)
    t = T[max((d for d in T if d <= len(ratios) - 1), default=min(T))]
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return mean, mean - half, mean + half


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "configs/loader-train.toml"))
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    if a.pairs < 5:
        p.error("--pairs must be at least 5, or the interval says nothing")
    signal.signal(signal.SIGTERM, lambda *_: exit(1))
    pairs = []
    for n in range(a.pairs):
        pairs.append(pair(a, n % 2 == 0))
        print("pair {}: samples/s x{:.4f}, CPU x{:.4f}".format(n + 1, *pairs[-1]), flush=True)
    for name, ratios in zip(("samples/s", "CPU per sample"), zip(*pairs)):
        mean, low, high = interval(ratios)
        print(f"{name}, on / off: mean {mean:.4f}, median {statistics.median(ratios):.4f}, "
              f"95 % interval of the mean {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    main()
