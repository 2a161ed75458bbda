#!/usr/bin/env python3
"""What the recorder costs a real pipeline: pairs of runs with it on and off.

    scripts/recorder-overhead.py [--config configs/loader-train.toml] [--pairs 30] [--set key=value ...]

The two runs of a pair take turns (turns.py). Prints the ratio on / off of samples/s and of CPU time per sample, with the
95 % interval of the mean over the pairs. Off, nothing is measured inside; so both are timed from outside, over the whole
process, start and end included. The ratios are upper bounds. Build with `cargo build --release` first.
"""
import argparse
import os
import subprocess
import tempfile

from measured import BINARY, ROOT
from turns import Run, compare


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "configs/loader-train.toml"))
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--set", action="append", default=[])
    a = p.parse_args()
    if a.pairs < 5:
        p.error("--pairs must be at least 5, or the interval says nothing")
    sets = [x for s in a.set for x in ("--set", s)]
    with tempfile.TemporaryDirectory() as out:
        def start(on):
            return Run([BINARY, "run", a.config, "--run-dir", os.path.join(out, str(on)), "--quiet", "--trace", "none",
                        "--set", f"recorder={str(on).lower()}", "--set", f"steps={a.steps}", "--set", "warmup_steps=1",
                        *sets], stdout=subprocess.DEVNULL)
        compare(start, a.pairs)


if __name__ == "__main__":
    main()
