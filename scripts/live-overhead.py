#!/usr/bin/env python3
"""What `--live` costs a run: pairs of runs with the live view and with the progress bar, each on a terminal of its own.

    scripts/live-overhead.py [--config configs/emulated-gpu.toml] [--pairs 10] [--steps 60] [--set key=value ...]

The two runs of a pair take turns (turns.py). Prints the ratio live / bar of samples/s and of CPU time per sample, with the
95 % interval of the mean over the pairs, start and end of the process included, and the CPU time of the view's own thread.
The view is drawn by the clock, stopped or not, so the ratios are upper bounds, and higher the busier the machine is. Build with `cargo build --release` first (without burn: `--no-default-features`).
"""
import argparse
import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
import threading
import time

from measured import BINARY, ROOT
from turns import Run, compare

ROWS, COLUMNS = 40, 120
ALTERNATE_SCREEN = b"\x1b[?1049h"


class OnTerminal(Run):
    """A run on a pseudo-terminal, whose output is read and counted."""

    def __init__(self, command):
        self.terminal, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.start, self.end, self.bytes, self.view, self.view_seconds = b"", b"", 0, None, 0.0
        self.began = self.latest = time.perf_counter()
        reader = threading.Thread(target=self.read, daemon=True)
        reader.start()
        environment = {**os.environ, "TERM": "xterm-256color"}
        super().__init__(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment)
        os.close(slave)

    def pause(self, began):
        seconds = super().pause(began)
        if self.cpu is None:
            self.latest = time.perf_counter()
            self.view = self.view or self.thread("live view")
            try:
                with open(f"{self.view}/schedstat") as f:
                    self.view_seconds = int(f.read().split()[0]) / 1e9
            except FileNotFoundError:
                # The view is not there yet, or not any more.
                pass
        return seconds

    def thread(self, name):
        """The folder of the stopped process's thread of this name."""
        for task in os.scandir(f"/proc/{self.child.pid}/task"):
            with open(f"{task.path}/comm") as f:
                if f.read().strip() == name:
                    return task.path
        return None

    def said(self):
        time.sleep(0.1)
        return self.end.decode(errors="replace")

    def read(self):
        try:
            while text := os.read(self.terminal, 1 << 16):
                self.bytes += len(text)
                self.end = (self.end + text)[-2000:]
                if ALTERNATE_SCREEN not in self.start:
                    self.start += text
        except OSError:
            # The other end is closed.
            pass
        os.close(self.terminal)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "configs/emulated-gpu.toml"))
    p.add_argument("--pairs", type=int, default=10)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    if a.pairs < 5:
        p.error("--pairs must be at least 5, or the interval says nothing")
    sets = [x for s in a.set for x in ("--set", s)]
    # Makes the data, which the two runs of a pair cannot do at once.
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([BINARY, "run", a.config, "--run-dir", out, "--trace", "none", "--quiet", "--set", "warmup_steps=0",
                        *sets, "--set", "steps=1"], check=True, stdout=subprocess.DEVNULL)
    live_runs = []
    with tempfile.TemporaryDirectory() as out:
        def start(on):
            live = ["--live"] if on else []
            run = OnTerminal([BINARY, "run", a.config, "--run-dir", os.path.join(out, str(on)), "--trace", "none",
                              "--set", f"steps={a.steps}", *sets, *live])
            live_runs.extend([run] if on else [])
            return run
        compare(start, a.pairs)
    if not all(ALTERNATE_SCREEN in run.start for run in live_runs):
        raise SystemExit("a run with --live did not take the terminal")
    written = sum(run.bytes for run in live_runs) / len(live_runs)
    view, cpu, wall = (sum(of(run) for run in live_runs) for of in (
        lambda run: run.view_seconds, lambda run: run.cpu, lambda run: run.latest - run.began))
    print(f"the view's own thread: {1e3 * view / wall:.1f} ms of CPU time a second, {100 * view / cpu:.2f} % of its process's")
    print(f"a run with --live wrote {written / 1e3:.0f} kB to its terminal of {COLUMNS} x {ROWS}")


if __name__ == "__main__":
    main()
