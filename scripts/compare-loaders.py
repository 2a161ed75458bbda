#!/usr/bin/env python3
"""Our loader alone against PyTorch's DataLoader, in turns, on the same files.

    scripts/compare-loaders.py --data FOLDER --peer PATH/TO/torch_pil.py [--task mnist] [--python PEER_PYTHON]
                               [--rounds 5] [--seconds 12] [--workers 2]

The tasks: `jpeg-train`, random-resized crop to 224, flip, normalise, batches of 64; `mnist`, MNIST's IDX files, read,
normalised, shuffled, batches of 128. Our recorder is on. The peer's script prints one JSON line with `images_per_s`
and `cpu_us_per_image`; any loader that does will do. Build with `cargo build --release` first.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

# For each task our configuration, the batch size and a first guess of our samples/s.
TASKS = {"jpeg-train": ("loader-train", 64, 600.0), "mnist": ("mnist-linear", 128, 1e6)}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def ours(a, rate):
    config, batch, _ = TASKS[a.task]
    steps = max(20, int(rate * a.seconds / batch))
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [os.path.join(ROOT, "target/release/stallscope"), "run", os.path.join(ROOT, f"configs/{config}.toml"),
             "--run-dir", out, "--trace", "none", "--quiet", "--mode", "loader-only",
             "--set", "epochs=1000000", "--set", f"source.path={a.data}", "--set", f"num_workers={a.workers}", "--set", f"steps={steps}"],
            check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "report.json")) as f:
            report = json.load(f)
    return report["samples_per_second"], report["process_cpu_ns"] / 1e3 / report["samples"]


def peer(a):
    out = subprocess.run(
        [a.python, a.peer, "--data", a.data, "--workers", str(a.workers), "--batch", str(TASKS[a.task][1]),
         "--size", "224", "--seconds", str(a.seconds), "--task", a.task],
        check=True, capture_output=True, text=True).stdout
    line = json.loads(out.strip().splitlines()[-1])
    return line["images_per_s"], line["cpu_us_per_image"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--peer", required=True)
    p.add_argument("--task", choices=TASKS, default="jpeg-train")
    p.add_argument("--python", default="python3")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=12)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    rate, rows = TASKS[a.task][2], []
    for n in range(a.rounds):
        (rate, cpu), (theirs, peer_cpu) = ours(a, rate), peer(a)
        rows.append((rate, theirs, rate / theirs, cpu, peer_cpu))
        print(f"round {n + 1}: ours {rate:.0f} images/s ({cpu:.2f} us CPU each), "
              f"peer {theirs:.0f} ({peer_cpu:.2f} us), ratio {rate / theirs:.2f}", flush=True)
    medians = [statistics.median(column) for column in zip(*rows)]
    print("median: ours {:.0f} images/s, peer {:.0f}, ratio {:.2f}; CPU per image {:.2f} us against {:.2f} us".format(
        *medians))


if __name__ == "__main__":
    main()
