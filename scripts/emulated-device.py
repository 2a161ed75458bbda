#!/usr/bin/env python3
"""Whether the emulated device is as busy as arithmetic says while every core is loaded by other work, and what it costs.

    scripts/emulated-device.py [--rounds 5] [--steps 1000] [--idle]

A step takes 9.7 ms and the copy of its batch 10 ms, so that the device is busy for 97 % of the time, by arithmetic.
Prints what the report says, and CPU time over the window as a share of one core: that of the two threads behind the
device (trainer and copy), and that of the whole process, loader and collector included. `--idle` leaves the cores alone. Build with `cargo build --release` first.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SETTINGS = ["device=emulated:custom", "emulated.step_base=9.7ms", "emulated.copy_latency=10ms", "source.kind=mnist",
            "batch.size=16", "shuffle=false", "warmup_steps=10", "trace.enabled=false"]


def write_idx(folder, images=256):
    """Files as MNIST's, of grey noise."""
    with open(os.path.join(folder, "train-images-idx3-ubyte"), "wb") as f:
        f.write(struct.pack(">4BIII", 0, 0, 8, 3, images, 28, 28) + os.urandom(images * 784))
    with open(os.path.join(folder, "train-labels-idx1-ubyte"), "wb") as f:
        f.write(struct.pack(">4BI", 0, 0, 8, 1, images) + bytes(i % 10 for i in range(images)))


def run(folder, steps):
    """Returns device busy in %, and CPU time of the device's threads and of the process in % of a core."""
    config, out = os.path.join(folder, "run.toml"), os.path.join(folder, "out")
    open(config, "w").close()
    sets = SETTINGS + [f"source.path={folder}", f"steps={steps}"]
    subprocess.run([os.path.join(ROOT, "target/release/stallscope"), "run", config, "--run-dir", out, "--quiet",
                    *(word for setting in sets for word in ("--set", setting))], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "report.json")) as f:
        report = json.load(f)
    threads = [t["usage"] for t in report["workers"] if t["name"] in ("trainer", "copy 0")]
    own = sum(t["user"] + t["system"] for t in threads)
    return [100 * report["device"]["busy_share"]] + [100 * cpu / report["window_ns"] for cpu in (own, report["process_cpu_ns"])]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--idle", action="store_true")
    a = p.parse_args()
    cores = 0 if a.idle else os.cpu_count()
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            write_idx(folder)
            for n in range(a.rounds):
                rows.append(run(folder, a.steps))
                print("round {}: device busy {:.4f} %, CPU {:.2f} % of a core, process {:.2f} %".format(n + 1, *rows[-1]), flush=True)
    finally:
        for child in load:
            child.kill()
            child.wait()
    busy, own, process = zip(*rows)
    print(f"{cores} other processes that compute: device busy {min(busy):.4f} to {max(busy):.4f} % (97 by arithmetic), "
          f"CPU median {statistics.median(own):.2f} % of a core, whole process {statistics.median(process):.2f} %")


if __name__ == "__main__":
    main()
