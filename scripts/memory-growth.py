#!/usr/bin/env python3
"""Peak anonymous memory of a run, and of one ten times as long.

    scripts/memory-growth.py [--config configs/quickstart.toml] [--steps 100] [--repeats 3] [--set key=value ...]

Samples RssAnon in /proc/PID/status every 10 ms. How deep the queues get in a run is a matter of luck, some hundred
kilobytes an image, so the medians of a few runs of each length are compared. Build with `cargo build --release` first.
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def peak(a, steps):
    with tempfile.TemporaryDirectory() as out:
        sets = [x for s in a.set for x in ("--set", s)]
        child = subprocess.Popen(
            [os.path.join(ROOT, "target/release/stallscope"), "run", a.config, "--run-dir", out, "--quiet",
             "--set", f"steps={steps}", *sets], stdout=subprocess.DEVNULL)
        highest = 0
        while child.poll() is None:
            try:
                with open(f"/proc/{child.pid}/status") as f:
                    found = re.search(r"RssAnon:\s+(\d+) kB", f.read())
                highest = max(highest, int(found[1]) if found else 0)
            except OSError:
                pass
            time.sleep(0.01)
    if child.returncode:
        raise SystemExit(f"the run failed with status {child.returncode}")
    return highest


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "configs/quickstart.toml"))
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    peaks = [(peak(a, a.steps), peak(a, 10 * a.steps)) for _ in range(a.repeats)]
    for short, long in peaks:
        print(f"{short / 1024:.1f} MiB, {long / 1024:.1f} MiB")
    short, long = (statistics.median(lengths) for lengths in zip(*peaks))
    print(f"peak RssAnon: {short / 1024:.1f} MiB in {a.steps} steps, {long / 1024:.1f} MiB in {10 * a.steps}, "
          f"ratio {long / short:.3f}")


if __name__ == "__main__":
    main()
