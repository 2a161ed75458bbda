#!/usr/bin/env python3
"""MNIST training, ours against PyTorch's on this machine: seconds of an epoch, training only, like with like, in turns.

    scripts/mnist-vs-pytorch.py --peers FOLDER --python VENV/bin/python --mnist FOLDER
                                [--binary target/release/stallscope] [--case linear|dense]... [--rounds 3] [--epochs N]

FOLDER of the peers has torch_mnist_linear.py and torch_mnist_dense.py: any script does that trains the same model and
prints a JSON line with `epoch_seconds` (training only), `data_wait_fraction`, `test_accuracy` and `val_accuracy`.
Both sides train the same model on the same files: linear is 784-10, batches of 128, SGD 0.005, 50,000 images; dense is
784-300-100-10, batches of 32, SGD 0.01, the first 85 %. PyTorch's loader is the tutorials': a transform for each
sample, no workers; its number of threads is its own choice or one, whichever a short trial finds quicker. Each round
runs one side and then the other; the order changes from round to round. An epoch of ours is its steps times the mean
step of the window, which leaves out the warm-up steps; PyTorch's is the mean of its epochs.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# For each case its experiment, its peer, the peer's accuracy and ours to compare, and the epochs.
CASES = {
    "linear": ("mnist-linear", "torch_mnist_linear.py", "test", "test_accuracy", 5),
    "dense": ("mnist-dense", "torch_mnist_dense.py", "validation", "val_accuracy", 20),
}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(0)


def ours(a, case, epochs):
    config, _, part, _, _ = CASES[case]
    with tempfile.TemporaryDirectory() as out:
        command = [a.binary, "run", os.path.join(ROOT, f"configs/{config}.toml"), "--run-dir", out, "--trace", "none",
                   "--quiet", "--set", f"source.path={a.mnist}", "--set", f"epochs={epochs}"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
        with open(os.path.join(out, "report.json")) as f:
            report = json.load(f)
    steps = math.ceil(report["data"]["samples"] / report["config"]["pipeline"]["batch"]["size"])
    evaluation = next(one for one in report["training"]["evaluations"] if one["part"] == part)
    return steps * report["window_ns"] / report["steps"] / 1e9, report["data_wait_share"], evaluation["accuracy"]


def peer(a, case, threads, *arguments):
    """The line that the peer prints; `threads` 0: its own choice."""
    command = [a.python, os.path.join(a.peers, CASES[case][1]), "--data", a.mnist, "--torch-threads", str(threads),
               *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def quicker_threads(a, case):
    tried = {n: statistics.mean(peer(a, case, n, "--epochs", "1", "--steps", "100", "--no-eval")["epoch_seconds"])
             for n in (0, 1)}
    print(f"{case}: 100 steps of PyTorch take {tried[0]:.3f} s with its own choice of threads, and {tried[1]:.3f} s "
          "with one", flush=True)
    return min(tried, key=tried.get)


def peers(a, case, epochs, threads):
    line = peer(a, case, threads, "--epochs", str(epochs))
    return statistics.mean(line["epoch_seconds"]), line["data_wait_fraction"], line[CASES[case][3]]


def compare(a, case):
    epochs = a.epochs or CASES[case][4]
    threads = quicker_threads(a, case)
    sides = {"stallscope": (lambda: ours(a, case, epochs), []),
             "PyTorch": (lambda: peers(a, case, epochs, threads), [])}
    for n in range(a.rounds):
        order = list(sides.items())
        for name, (run, rows) in order if n % 2 == 0 else reversed(order):
            rows.append(run())
        told = ", ".join(f"{name} {rows[-1][0]:.3f} s, {100 * rows[-1][1]:.0f} % of it waiting for data"
                         for name, (_, rows) in sides.items())
        print(f"{case}, {epochs} epochs, round {n + 1}: {told}", flush=True)
    for name, (_, rows) in sides.items():
        seconds = [row[0] for row in rows]
        print(f"{case}: {name:<10} median {statistics.median(seconds):.3f} s an epoch ({min(seconds):.3f} to "
              f"{max(seconds):.3f}), data wait {100 * statistics.median(row[1] for row in rows):.0f} %, "
              f"{CASES[case][2]} accuracy {100 * rows[-1][2]:.2f} %")
    ratios = [peer[0] / our[0] for our, peer in zip(sides["stallscope"][1], sides["PyTorch"][1])]
    print(f"{case}: {statistics.median(ratios):.1f} times as fast ({min(ratios):.1f} to {max(ratios):.1f} in "
          f"{a.rounds} rounds)", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", required=True)
    p.add_argument("--python", default="python3")
    p.add_argument("--mnist", required=True)
    p.add_argument("--binary", default=os.path.join(ROOT, "target/release/stallscope"))
    p.add_argument("--case", choices=CASES, action="append")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--epochs", type=int, help="default: as published, 5 and 20")
    a = p.parse_args()
    cases = a.case or list(CASES)
    missing = [CASES[case][1] for case in cases if not os.path.isfile(os.path.join(a.peers, CASES[case][1]))]
    if missing:
        skip(f"{a.peers} has no {' and no '.join(missing)}")
    if not os.path.isdir(a.mnist):
        skip(f"{a.mnist} is not there; fetch it: stallscope data fetch mnist")
    if not os.access(a.binary, os.X_OK):
        skip(f"{a.binary} is not there; build it: cargo build --release, or name it with --binary")
    try:
        has_torch = subprocess.run([a.python, "-c", "import torch, torchvision"], capture_output=True, text=True)
    except OSError as error:
        skip(f"{a.python} does not start: {error}")
    if has_torch.returncode:
        last = (has_torch.stderr.strip().splitlines() or ["no message"])[-1]
        skip(f"{a.python} has no PyTorch with torchvision: {last}")
    for case in cases:
        compare(a, case)


if __name__ == "__main__":
    main()
