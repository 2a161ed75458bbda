#!/usr/bin/env python3
"""What profiling costs a PyTorch training: two of them take turns, one with stallscope and one without.

usage: torch_overhead.py [--pairs N] [--turns N] [--kind jpeg|tiny|sample|parts] [--json PATH]

jpeg: torchvision's ImageFolder (PIL), random-resized-crop 224, flip, normalise, batch 32, 2 workers.
tiny: samples of 20 us in memory, batch 64, 2 workers.
sample: the same without workers, in batches of 1024, so that next to nothing but samples costs.
parts: as sample, with five parts named by `stallscope.stage` in each.

A turn is one epoch of the same samples, about a second; who is not at it is stopped, collector and all. So start-up is no
part of it, but for that of workers, which each epoch of `jpeg` starts anew. What slows the machine for longer than a turn slows
both. Where its memory happens to lie makes a process a few percent faster or slower for all of its life: that is why workers do
not persist, and after some turns another pair of trainings is started. Prints the ratio of samples/s with
the profiler to those without, with its 95 % interval (Student's t on the logarithms, one of each pair of trainings: the trimmed
mean of its turns), and the time that profiling adds to a sample in its worker. Needs torch, torchvision, Pillow, numpy, and
`stallscope` on the PATH.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

#: Workers, and samples of a turn: about a second's.
WORKERS = {"jpeg": 2, "tiny": 2, "sample": 0, "parts": 0}
TURN = {"jpeg": 768, "tiny": 64_000, "sample": 51_200, "parts": 51_200}
PARTS = 5


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
        return DataLoader(data, batch_size=32, shuffle=True, num_workers=2)

    if kind == "parts":
        import stallscope

        stages = [stallscope.stage(f"part {number}") for number in range(PARTS)]
    else:
        stages = []

    class Tiny(Dataset):
        """Each sample computes for 20 us."""

        def __len__(self):
            return TURN[kind]

        def __getitem__(self, index):
            until = time.perf_counter_ns() + 20_000
            while time.perf_counter_ns() < until:
                pass
            for stage in stages:
                with stage:
                    pass
            return index

    if kind == "tiny":
        return DataLoader(Tiny(), batch_size=64, num_workers=2, persistent_workers=True)
    return DataLoader(Tiny(), batch_size=1024)


def train(kind: str, folder: str) -> None:
    """An epoch for each line of standard input; prints how long each took."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = loader(kind, folder)
    for _ in sys.stdin:
        start = time.monotonic()
        for _ in batches:
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        print("turn", time.monotonic() - start, flush=True)


class Training:
    """A training in processes of its own, which stand still but for its turns."""

    def __init__(self, profiled: bool, kind: str, folder: str, place: str) -> None:
        own = [__file__, "train", kind, folder]
        command = ["stallscope", "torch", "--run-dir", place, *own] if profiled else [sys.executable, *own]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.turn()

    def signal(self, number: int) -> None:
        for process in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def turn(self) -> float:
        self.signal(signal.SIGCONT)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("turn "):
                self.signal(signal.SIGSTOP)
                return float(line.split()[1])
        raise SystemExit("the training ended early")

    def finish(self) -> None:
        self.signal(signal.SIGCONT)
        self.process.communicate()
        if self.process.returncode:
            raise SystemExit("the training failed")


def descendants(root: int) -> list[int]:
    """A process and those that it has started, the oldest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def student(freedom: int) -> float:
    """The two-sided 97.5 % quantile of Student's t, approximately (Abramowitz and Stegun 26.7.5)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def interval(values: list[float]) -> tuple[float, float, float]:
    mean = statistics.mean(values)
    reach = student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean - reach, mean, mean + reach


def trimmed(values: list[float]) -> float:
    """The mean without the highest and the lowest fifth: a turn in which the machine stood still tells nothing."""
    out = len(values) // 5
    return statistics.mean(sorted(values)[out : len(values) - out])


def in_turns(kind: str, folder: str, turns: int) -> dict[bool, list[float]]:
    """The seconds of each turn of a training alone (False) and of one with the profiler (True)."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as place:
        trainings = {profiled: Training(profiled, kind, folder, place) for profiled in seconds}
        try:
            for turn in range(turns):
                # Who begins changes, so that neither has the warmer machine.
                for profiled in (turn % 2 == 0, turn % 2 != 0):
                    seconds[profiled].append(trainings[profiled].turn())
            for training in trainings.values():
                training.finish()
        finally:
            for training in trainings.values():
                if training.process.poll() is None:
                    training.signal(signal.SIGKILL)
        if not os.path.exists(os.path.join(place, "report.json")):
            raise SystemExit("there is no report of the profiled training")
    return seconds


def main() -> None:
    if sys.argv[1:2] == ["train"]:
        return train(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12, help="pairs of trainings")
    parser.add_argument("--turns", type=int, default=15, help="of each training of a pair")
    parser.add_argument("--kind", default="jpeg", choices=list(TURN))
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.pairs < 5:
        parser.error("--pairs: at least 5, for an interval")
    pairs, turns = [], []
    with tempfile.TemporaryDirectory() as folder:
        if asked.kind == "jpeg":
            pictures(folder, TURN["jpeg"])
        for pair in range(asked.pairs):
            seconds = in_turns(asked.kind, folder, asked.turns)
            # Two turns that follow each other are compared: what slows the machine slows both.
            ratio = math.exp(trimmed([math.log(b / a) for a, b in zip(seconds[False], seconds[True], strict=True)]))
            alone = statistics.median(seconds[False])
            profiled = alone * ratio
            pairs.append((alone, profiled))
            turns.append([seconds[False], seconds[True]])
            print(f"pair {pair}: {alone:.3f} s alone, {profiled:.3f} s profiled", flush=True)
    samples = TURN[asked.kind]
    low, ratio, high = (math.exp(log) for log in interval([math.log(alone / profiled) for alone, profiled in pairs]))
    rate = samples / statistics.median(alone for alone, _ in pairs)
    print(f"{asked.kind}: {rate:.0f} samples/s without the profiler, median of {len(pairs)} trainings, {asked.turns} turns of {samples} each")
    print(f"samples/s with / without it {ratio:.4f} (95 % interval {low:.4f} to {high:.4f})")
    at_once = max(WORKERS[asked.kind], 1)
    added = interval([1e6 * at_once * (profiled - alone) / samples for alone, profiled in pairs])
    print("it adds to a sample {1:.2f} us of who makes it (95 % interval {0:.2f} to {2:.2f})".format(*added))
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"kind": asked.kind, "turns": turns, "ratio": ratio, "low": low, "high": high}, file)


if __name__ == "__main__":
    main()
