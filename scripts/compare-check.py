#!/usr/bin/env python3
"""Does `stallscope compare` claim differences that are there, and only those? Real runs on an emulated device.

    scripts/compare-check.py [--pairs 20] [--trials 10] [--repeats 5] [--seconds 2.5] [--kind KIND ...]

Identical: --pairs pairs of single runs of the same; a difference may be claimed in 1 of 20. Planted: --trials comparisons
of --repeats runs each, in turns (A B, A B, ...), where B's device is 3 % faster; that must be claimed in 9 of 10. Kinds:
`device` (the emulated device is the bottleneck), `storage` (an emulated storage latency is), `cpu` (decoding is); a gain is
planted in `device` only, since other programs decide how fast the other two are. Exit status 1 if a limit is missed.

Build with `cargo build --release --no-default-features` first.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile

from measured import BINARY, ROOT

GAIN = 1.03
STEP_MS = 40
# Settings of each kind; a step takes about STEP_MS in all of them.
KINDS = {
    "device": ["batch.size=32", "emulated.run_ahead=16", "prefetch_factor=16", "copy.prefetch=16"],
    "storage": ["batch.size=8", "emulated.step_base=1ms", "storage.emulate=custom", "storage.latency=5ms"],
    "cpu": ["batch.size=32", "emulated.step_base=1ms"],
}
CONFIG = """pipeline = "{root}/pipelines/{pipeline}.toml"
device = "emulated:custom"
train = false
warmup_steps = 10
trace.enabled = false
source.path = "{place}/{pipeline}"
"""
PIPELINES = {"device": "mnist", "storage": "jpeg-folder", "cpu": "jpeg-folder"}


def prepare(place):
    """Makes the data and a configuration for each pipeline."""
    for pipeline, options in (("mnist", ["--like", "mnist"]), ("jpeg-folder", ["--images", "1200"])):
        subprocess.run([BINARY, "data", "generate", os.path.join(place, pipeline), *options], check=True,
                       capture_output=True)
        with open(os.path.join(place, f"{pipeline}.toml"), "w") as f:
            f.write(CONFIG.format(root=ROOT, place=place, pipeline=pipeline))


def run(place, folder, kind, seconds, slower=False):
    """One run of `kind` for about so many seconds, its report in `folder`."""
    sets = [f"emulated.step_base={round(1000 * STEP_MS * (GAIN if slower else 1))}us", *KINDS[kind],
            f"steps={round(seconds * 1000 / STEP_MS)}"]
    command = [BINARY, "run", os.path.join(place, f"{PIPELINES[kind]}.toml"), "--run-dir", folder, "--quiet"]
    for one in sets:
        command += ["--set", one]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def compare(first, other):
    """What `stallscope compare` finds between two folders."""
    done = subprocess.run([BINARY, "compare", first, other, "--json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["against_first"][0]


def shown(found):
    ratio = found["samples_per_second"]
    return f"{ratio['value']:.4f} ({ratio['low']:.4f} to {ratio['high']:.4f}) {found['finding']}"


def identical(place, kind, a):
    """In how many pairs of single runs of the same a difference is claimed."""
    claimed = 0
    for pair in range(a.pairs):
        folders = [os.path.join(place, f"{kind}-{pair}-{side}") for side in "ab"]
        for folder in folders:
            run(place, folder, kind, a.seconds)
        found = compare(*folders)
        assert found["samples_per_second"]["method"]["kind"] == "blocks"
        claimed += found["finding"] != "no_difference"
        print(f"    {kind} identical {pair + 1:2}: {shown(found)}", flush=True)
    return claimed


def planted(place, kind, a):
    """In how many comparisons of repeats the planted gain is claimed."""
    claimed = 0
    for trial in range(a.trials):
        sides = [os.path.join(place, f"{kind}-planted-{trial}-{side}") for side in "ab"]
        for turn in range(a.repeats):
            for side, slower in zip(sides, (True, False)):
                run(place, os.path.join(side, str(turn)), kind, a.seconds, slower)
        found = compare(*sides)
        assert found["samples_per_second"]["method"]["kind"] == "pairs"
        claimed += found["finding"] == "faster"
        print(f"    {kind} planted {trial + 1:2}: {shown(found)}", flush=True)
    return claimed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=20)
    p.add_argument("--trials", type=int, default=10)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2.5)
    p.add_argument("--kind", action="append", choices=KINDS)
    a = p.parse_args()
    kinds = a.kind or list(KINDS)
    print(f"# compare: {datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores")
    print(f"# scripts/compare-check.py --pairs {a.pairs} --trials {a.trials} --repeats {a.repeats} "
          f"--seconds {a.seconds}{''.join(f' --kind {kind}' for kind in a.kind or [])}")
    failed = False
    with tempfile.TemporaryDirectory() as place:
        prepare(place)
        for kind in kinds:
            claimed = identical(place, kind, a)
            failed |= claimed > a.pairs // 20
            print(f"{kind:8} identical, 1 run each: a difference claimed in {claimed} of {a.pairs} "
                  f"(at most {a.pairs // 20})", flush=True)
            if kind == "device":
                claimed = planted(place, kind, a)
                least = -(-a.trials * 9 // 10)
                failed |= claimed < least
                print(f"{kind:8} {GAIN - 1:.0%} planted, {a.repeats} runs each in turns: claimed in {claimed} of "
                      f"{a.trials} (at least {least})", flush=True)
            print(f"# load average of the machine: {os.getloadavg()[0]:.1f}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
