"""Two processes that take turns on a shared machine, whose speed drifts by more than what they are compared for.

One is stopped (SIGSTOP) while the other has the whole machine, 30 ms each, until both have ended. A run's time is that of
its turns, from outside, over the whole process. Time goes on for a stopped run's timers, so what a program does by the
clock is done up to twice as often: ratios of such costs are upper bounds. Used by the scripts beside this one.
"""
import math
import os
import select
import signal
import statistics
import subprocess
import time

# Two-sided 97.5 % quantiles of Student's t, by degrees of freedom; the next lower one is used for others.
T = {4: 2.776, 9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001, 99: 1.984}
TURN = 0.03


class Run:
    """A run of `command` that goes on in turns only; `streams` are those of subprocess.Popen."""

    def __init__(self, command, **streams):
        began = time.perf_counter()
        self.child = subprocess.Popen(command, **streams)
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
                raise SystemExit(f"a run failed: exit {os.waitstatus_to_exitcode(status)}\n{self.said()}")
        return seconds

    def said(self):
        """The end of what it wrote, where that is known."""
        return ""

    def kill(self):
        if self.cpu is None:
            self.child.kill()
            self.child.wait()


def pair(start, on_first):
    """Runs `start(True)` and `start(False)` in turns; returns the ratios on / off of speed and of CPU time."""
    runs = {}
    try:
        for on in (on_first, not on_first):
            runs[on] = start(on)
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


def compare(start, pairs):
    """Prints the ratios on / off of `pairs` pairs, and their means with 95 % intervals (Student's t)."""
    signal.signal(signal.SIGTERM, lambda *_: exit(1))
    ratios = []
    for n in range(pairs):
        ratios.append(pair(start, n % 2 == 0))
        print("pair {}: samples/s x{:.4f}, CPU x{:.4f}".format(n + 1, *ratios[-1]), flush=True)
    for name, own in zip(("samples/s", "CPU per sample"), zip(*ratios)):
        mean, low, high = interval(own)
        print(f"{name}, on / off: mean {mean:.4f}, median {statistics.median(own):.4f}, "
              f"95 % interval of the mean {low:.4f} to {high:.4f}")
