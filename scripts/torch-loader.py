#!/usr/bin/env python3
"""`stallscope.torch.Loader` against torchvision's ImageFolder with torch's DataLoader, in turns, in one training script.

    scripts/torch-loader.py --data FOLDER [--rounds 5] [--seconds 12] [--workers 2] [--batch 64] [--decoder turbojpeg]

FOLDER has one folder a class. Both crop at random to 224, flip, and normalise. Each run is a process of its own: the
same loop trains a small model on the CPU with one thread, for SECONDS after 8 batches, over as many epochs as fit. CPU
time is that of the process and its workers in that time. Theirs has `persistent_workers=True`. Run it with the Python
that has torch, torchvision and the wheel; every other round the order is reversed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
WARM_UP = 8
KINDS = ("ours", "theirs")


def ours(a):
    from stallscope.torch import Loader

    decoder = {"decoder": a.decoder} if a.decoder else {}
    return Loader(path=a.data, batch_size=a.batch, num_workers=a.workers, size=224, mean=MEAN, std=STD, **decoder)


def theirs(a):
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    images = datasets.ImageFolder(a.data, transforms.Compose(steps))
    workers = {"num_workers": a.workers, "persistent_workers": a.workers > 0}
    return DataLoader(images, batch_size=a.batch, shuffle=True, drop_last=True, **workers)


def cpu():
    """Seconds of this process and its children that are alive."""
    total, own = sum(os.times()[:2]), os.getpid()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == own:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def train(loader, seconds):
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * 14 * 14, 1000))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = images = 0
    while True:
        for pictures, classes in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), classes).backward()
            optimizer.step()
            steps += 1
            if steps == WARM_UP:
                began, before, images = time.perf_counter(), cpu(), 0
                continue
            images += len(classes)
            if steps > WARM_UP and time.perf_counter() - began >= seconds:
                wall = time.perf_counter() - began
                return {"images_per_s": images / wall, "cpu_us_per_image": (cpu() - before) * 1e6 / images}


def measured(a, kind):
    command = [sys.executable, __file__, "--run", kind, *a.passed]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20 * a.seconds + 120).stdout
    return json.loads(out.strip().splitlines()[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=12)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--decoder", help="of ours; by default what the Loader takes by itself")
    p.add_argument("--run", choices=KINDS, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.run:
        print(json.dumps(train(globals()[a.run](a), a.seconds)))
        return
    a.passed = sys.argv[1:]
    rows = []
    for number in range(a.rounds):
        turn = KINDS if number % 2 == 0 else KINDS[::-1]
        row = {kind: measured(a, kind) for kind in turn}
        rows.append(row)
        rate, cost = ([row[kind][name] for kind in KINDS] for name in ("images_per_s", "cpu_us_per_image"))
        print(f"round {number + 1}: {rate[0]:.0f} against {rate[1]:.0f} images/s, {rate[0] / rate[1]:.2f} times; "
              f"CPU time {cost[0]:.0f} against {cost[1]:.0f} us an image, {cost[1] / cost[0]:.2f} times less", flush=True)
    faster = statistics.median(row["ours"]["images_per_s"] / row["theirs"]["images_per_s"] for row in rows)
    thriftier = statistics.median(row["theirs"]["cpu_us_per_image"] / row["ours"]["cpu_us_per_image"] for row in rows)
    print(f"median of the ratios: {faster:.2f} times the images/s, {thriftier:.2f} times less CPU time an image")


if __name__ == "__main__":
    main()
