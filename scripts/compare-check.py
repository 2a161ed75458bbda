#!/usr/bin/env python3
"""Does `stallscope compare` claim differences that are there, and only those? Real runs on an emulated device.

    scripts/compare-check.py [--pairs 20] [--trials 10] [--repeats 5] [--seconds 2.5] [--kind KIND ...]

Identical: --pairs pairs of single runs of the same; a difference may be claimed in 1 of 20. Planted: --trials comparisons
of --repeats runs each, in turns (A B, A B, ...), where B's device or storage is 3 % faster; that must be claimed in 9 of
10. Kinds: `device` (the device is the bottleneck), `storage` (an emulated storage latency is), `cpu` (decoding is; only
identical runs, and no limit: other programs decide how fast it is). Exit status 1 if a limit is missed.

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
# Settings of each kind, the milliseconds of a step, and the key that is 3 % longer on the slower side with its value.
KINDS = {
    "device": (["batch.size=4"], 20.0, ("emulated.step_base", 20.0)),
    "storage": (["batch.size=4", "storage.emulate=custom", "emulated.step_base=1ms", "read.workers=1"], 20.0,
                ("storage.latency", 5.0)),
    "cpu": (["batch.size=16", "emulated.step_base=1ms", "decode.workers=1"], 20.0, None),
}
ALWAYS = ["device=emulated:custom", "emulated.launch=0ms", "train=false", "preprocess.size=64", "warmup_steps=10"]


def run(folder, data, kind, seconds, slower=False):
    """One run of `kind` for about so many seconds, its report in `folder`."""
    sets, step, planted = KINDS[kind]
    sets = [*ALWAYS, *sets, f"source.path={data}", f"steps={round(seconds * 1000 / step)}"]
    if planted:
        key, value = planted
        sets.append(f"{key}={round(value * 1000 * (GAIN if slower else 1))}us")
    command = [BINARY, "run", os.path.join(ROOT, "configs/emulated-gpu.toml"), "--run-dir", folder, "--trace", "none",
               "--quiet"]
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


def identical(place, data, kind, a):
    """In how many pairs of single runs of the same a difference is claimed."""
    claimed = 0
    for pair in range(a.pairs):
        folders = [os.path.join(place, f"{kind}-{pair}-{side}") for side in "ab"]
        for folder in folders:
            run(folder, data, kind, a.seconds)
        found = compare(*folders)
        assert found["samples_per_second"]["method"]["kind"] == "blocks"
        claimed += found["finding"] != "no_difference"
        print(f"    {kind} identical {pair + 1:2}: {shown(found)}", flush=True)
    return claimed


def planted(place, data, kind, a):
    """In how many comparisons of repeats the planted gain is claimed."""
    claimed = 0
    for trial in range(a.trials):
        sides = [os.path.join(place, f"{kind}-planted-{trial}-{side}") for side in "ab"]
        for turn in range(a.repeats):
            for side, slower in zip(sides, (True, False)):
                run(os.path.join(side, str(turn)), data, kind, a.seconds, slower)
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
        data = os.path.join(place, "data")
        for kind in kinds:
            claimed = identical(place, data, kind, a)
            limit = a.pairs // 20 if KINDS[kind][2] else None
            failed |= limit is not None and claimed > limit
            at_most = "no limit" if limit is None else f"at most {limit}"
            print(f"{kind:8} identical, 1 run each: a difference claimed in {claimed} of {a.pairs} ({at_most})",
                  flush=True)
            if KINDS[kind][2]:
                claimed = planted(place, data, kind, a)
                least = -(-a.trials * 9 // 10)
                failed |= claimed < least
                print(f"{kind:8} {GAIN - 1:.0%} planted, {a.repeats} runs each in turns: claimed in {claimed} of "
                      f"{a.trials} (at least {least})", flush=True)
            print(f"# load average {os.getloadavg()[0]:.1f}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
