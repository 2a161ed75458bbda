#!/usr/bin/env python3
"""What profiling costs a PyTorch training: pairs of runs in turns, with and without stallscope.

usage: torch_overhead.py [--pairs N] [--seconds S] [--kind jpeg|tiny] [--json PATH]

jpeg: torchvision's ImageFolder (PIL), random-resized-crop 224, flip, normalise, batch 32, 2 workers.
tiny: samples of 20 us in memory, batch 64, 2 workers.

Prints the ratio of samples/s with the profiler to those without, and its 95 % interval over the pairs (Student's t on
the logarithms). Needs torch, torchvision, Pillow, numpy, and `stallscope` on the PATH.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

# Two-sided 97.5 % quantiles of Student's t, by degrees of freedom.
STUDENT = {4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045}


def pictures(folder: str, count: int) -> None:
    """JPEGs of 500 x 375, as ImageNet's are, of ten classes."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(1)
    for number in range(count):
        small = random.integers(0, 255, (24, 32, 3), dtype=numpy.uint8)
        place = os.path.join(folder, str(number % 10))
        os.makedirs(place, exist_ok=True)
        picture = Image.fromarray(small).resize((500, 375), Image.BICUBIC)
        picture.save(os.path.join(place, f"{number:05}.jpg"), quality=88)


def loader(kind: str, folder: str):
    import torch
    from torch.utils.data import DataLoader, Dataset

    if kind == "jpeg":
        from torchvision import datasets, transforms

        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        normalise = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        data = datasets.ImageFolder(folder, transforms.Compose([*steps, normalise]))
        return DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True), 32

    class Tiny(Dataset):
        """Each sample computes for 20 us."""

        def __len__(self):
            return 200_000

        def __getitem__(self, index):
            until = time.perf_counter_ns() + 20_000
            while time.perf_counter_ns() < until:
                pass
            return index

    return DataLoader(Tiny(), batch_size=64, num_workers=2, persistent_workers=True), 64


def train(kind: str, folder: str, seconds: float) -> None:
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches, size = loader(kind, folder)
    seen, number, start = 0, 0, None
    while start is None or time.monotonic() - start < seconds:
        for _ in batches:
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if start is None:
                # What starting takes is no part of it.
                number += 1
                start = time.monotonic() if number == 10 else None
                continue
            seen += size
            if time.monotonic() - start >= seconds:
                break
    length = time.monotonic() - start
    print(json.dumps({"rate": seen / length}))


def run(profiled: bool, asked, folder: str) -> float:
    own = [__file__, "train", asked.kind, folder, str(asked.seconds)]
    with tempfile.TemporaryDirectory() as place:
        command = ["stallscope", "torch", "--run-dir", place, *own] if profiled else [sys.executable, *own]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120 + 10 * asked.seconds)
        if ran.returncode:
            raise SystemExit(ran.stderr)
        if profiled and not os.path.exists(os.path.join(place, "report.json")):
            raise SystemExit("there is no report of the profiled run")
    lines = [line for line in ran.stdout.splitlines() if line.startswith('{"rate"')]
    return json.loads(lines[-1])["rate"]


def main() -> None:
    if sys.argv[1:2] == ["train"]:
        return train(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12, choices=sorted(freedom + 1 for freedom in STUDENT))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--kind", default="jpeg", choices=["jpeg", "tiny"])
    parser.add_argument("--json")
    asked = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.kind == "jpeg":
            pictures(folder, 600)
        for pair in range(asked.pairs):
            # Who begins changes, so that neither has the warmer machine.
            rates = {profiled: run(profiled, asked, folder) for profiled in (pair % 2 == 0, pair % 2 != 0)}
            ratios.append(rates[True] / rates[False])
            print(f"pair {pair}: {rates[False]:9.1f} alone, {rates[True]:9.1f} profiled, ratio {ratios[-1]:.4f}", flush=True)
    logs = [math.log(ratio) for ratio in ratios]
    mean, reach = statistics.mean(logs), STUDENT[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (math.exp(mean + reach * side) for side in (-1, 0, 1))
    print(f"{asked.kind}: samples/s with / without the profiler {middle:.4f} (95 % interval {low:.4f} to {high:.4f}, {len(ratios)} pairs)")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"kind": asked.kind, "ratios": ratios, "ratio": middle, "low": low, "high": high}, file)


if __name__ == "__main__":
    main()
