#!/usr/bin/env python3
"""Our loader alone against PyTorch's DataLoader with PIL, in turns, on the same files.

    scripts/compare-loaders.py --data JPEG_FOLDER --peer PATH/TO/torch_pil.py [--python PEER_PYTHON]
                               [--rounds 5] [--seconds 12] [--workers 2]

The task: random-resized crop to 224, flip, normalise, batches of 64. The peer's script prints one JSON line
with `images_per_s` and `cpu_us_per_image`; any loader that does will do. Build with `cargo build --release` first.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def ours(a, rate):
    steps = max(20, int(rate * a.seconds / 64))
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [os.path.join(ROOT, "target/release/stallscope"), "run", os.path.join(ROOT, "configs/loader-train.toml"),
             "--run-dir", out, "--trace", "none", "--quiet", "--mode", "loader-only",
             "--set", f"source.path={a.data}", "--set", f"num_workers={a.workers}", "--set", f"steps={steps}"],
            check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "report.json")) as f:
            report = json.load(f)
    return report["samples_per_second"], report["process_cpu_ns"] / 1e3 / report["samples"]


def peer(a):
    out = subprocess.run(
        [a.python, a.peer, "--data", a.data, "--workers", str(a.workers), "--batch", "64", "--size", "224",
         "--seconds", str(a.seconds), "--task", "jpeg-train"],
        check=True, capture_output=True, text=True).stdout
    line = json.loads(out.strip().splitlines()[-1])
    return line["images_per_s"], line["cpu_us_per_image"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--peer", required=True)
    p.add_argument("--python", default="python3")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=12)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    rate, rows = 600.0, []
    for n in range(a.rounds):
        (rate, cpu), (theirs, peer_cpu) = ours(a, rate), peer(a)
        rows.append((rate, theirs, rate / theirs, cpu, peer_cpu))
        print(f"round {n + 1}: ours {rate:.0f} images/s ({cpu:.0f} us CPU each), "
              f"peer {theirs:.0f} ({peer_cpu:.0f} us), ratio {rate / theirs:.2f}", flush=True)
    medians = [statistics.median(column) for column in zip(*rows)]
    print("median: ours {:.0f} images/s, peer {:.0f}, ratio {:.2f}; CPU per image {:.0f} us against {:.0f} us".format(
        *medians))


if __name__ == "__main__":
    main()
