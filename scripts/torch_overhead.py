#!/usr/bin/env python3
"""What profiling costs a PyTorch training: epochs with stallscope and without it take turns.

usage: torch_overhead.py [--pairs N] [--kind jpeg|tiny|sample|parts] [--traced] [--json PATH]

jpeg: torchvision's ImageFolder (PIL), random-resized-crop 224, flip, normalise, batch 32, 2 workers.
tiny: samples of 20 us in memory, batch 64, 2 workers.
sample: the same without workers, in batches of 1024, so that next to nothing but samples costs.
parts: as sample, with five parts named by `stallscope.stage` in each.

A turn is one epoch of the same samples, a second or two, in a process forked for it: so that both begin with the same memory.
It has started the profiler before and done some steps: by default as many as the profiler traces, so that the turn costs what
most of a long training does (`--traced`: few, so that the turn is traced). Two things happen or not by chance, and cost a turn
up to a fifth; both sides do without them: full garbage collections (`gc.freeze`), and memory that malloc returns and faults in
again. Prints the ratio of samples/s with the profiler to those without, with its 95 % interval (Student's t on the logarithms,
one of each pair of turns), and the time that profiling adds to a sample in its worker. Needs torch, torchvision, Pillow, numpy
and stallscope.
"""

import argparse
import gc
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

#: Workers, and samples of a turn: about a second's.
WORKERS = {"jpeg": 2, "tiny": 2, "sample": 0, "parts": 0}
TURN = {"jpeg": 768, "tiny": 64_000, "sample": 51_200, "parts": 51_200}
PARTS = 5
#: Samples, each a step, before a turn that is not traced, and before one that is.
FIRST = 208
FIRST_TRACED = 8
#: glibc's: memory once taken is kept.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_TOP_PAD_": "67108864"}


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


def loader(kind: str, folder: str, first: int = 0):
    """Of a turn, or of the `first` samples, each of which is a batch."""
    from torch.utils.data import DataLoader, Dataset, Subset

    if kind == "jpeg":
        from torchvision import datasets, transforms

        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        normalise = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        data = datasets.ImageFolder(folder, transforms.Compose([*steps, normalise]))
        data = Subset(data, range(first)) if first else data
        return DataLoader(data, batch_size=1 if first else 32, shuffle=True, num_workers=2)

    if kind == "parts":
        import stallscope

        stages = [stallscope.stage(f"part {number}") for number in range(PARTS)]
    else:
        stages = []

    class Tiny(Dataset):
        """Each sample computes for 20 us."""

        def __len__(self):
            return first or TURN[kind]

        def __getitem__(self, index):
            until = time.perf_counter_ns() + 20_000
            while time.perf_counter_ns() < until:
                pass
            for stage in stages:
                with stage:
                    pass
            return index

    if kind == "tiny":
        return DataLoader(Tiny(), batch_size=1 if first else 64, num_workers=2, persistent_workers=True)
    return DataLoader(Tiny(), batch_size=1 if first else 1024)


def epoch(batches) -> float:
    """The seconds of an epoch."""
    import torch

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    start = time.monotonic()
    for _ in batches:
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.monotonic() - start


def forked(work: Callable[[], float], log: str) -> float:
    """What `work` returns in a process forked for it, which prints into the file `log`."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.write(theirs, repr(work()).encode())
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(theirs)
    with open(ours) as answer:
        seconds = answer.read()
    if os.waitpid(child, 0)[1] or not seconds:
        with open(log) as file:
            raise SystemExit(f"a turn failed:\n{file.read()}")
    return float(seconds)


def turn(kind: str, folder: str, profiled: bool, first: int) -> float:
    """The seconds of an epoch in a process of its own."""
    import stallscope.torch

    def work() -> float:
        before, batches = loader(kind, folder, first), loader(kind, folder)
        if not profiled:
            epoch(before)
            return epoch(batches)
        with stallscope.torch.profile(run_dir=run):
            epoch(before)
            return epoch(batches)

    with tempfile.TemporaryDirectory() as place:
        run = os.path.join(place, "run")
        seconds = forked(work, os.path.join(place, "log"))
        if profiled and not os.path.exists(os.path.join(run, "report.json")):
            raise SystemExit("there is no report of the profiled epoch")
    return seconds


def student(freedom: int) -> float:
    """The two-sided 97.5 % quantile of Student's t, approximately (Abramowitz and Stegun 26.7.5)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def interval(values: list[float]) -> tuple[float, float, float]:
    mean = statistics.mean(values)
    reach = student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean - reach, mean, mean + reach


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60, help="pairs of turns")
    parser.add_argument("--kind", default="jpeg", choices=list(TURN))
    parser.add_argument("--traced", action="store_true", help="turns are traced")
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.pairs < 5:
        parser.error("--pairs: at least 5, for an interval")
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})
    import torch

    torch.set_num_threads(1)
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.kind == "jpeg":
            pictures(folder, TURN["jpeg"])
        first = FIRST_TRACED if asked.traced else FIRST
        epoch(loader(asked.kind, folder, first))
        gc.collect()
        gc.freeze()
        for pair in range(asked.pairs):
            # Who begins changes, so that neither has the warmer machine.
            seconds = {profiled: turn(asked.kind, folder, profiled, first) for profiled in (pair % 2 == 0, pair % 2 != 0)}
            pairs.append((seconds[False], seconds[True]))
            print(f"pair {pair}: {seconds[False]:.3f} s alone, {seconds[True]:.3f} s profiled", flush=True)
        gc.unfreeze()
    samples = TURN[asked.kind]
    low, ratio, high = (math.exp(log) for log in interval([math.log(alone / profiled) for alone, profiled in pairs]))
    rate = samples / statistics.median(alone for alone, _ in pairs)
    print(f"{asked.kind}: {rate:.0f} samples/s without the profiler, median of {len(pairs)} turns of {samples} each")
    print(f"samples/s with / without it {ratio:.4f} (95 % interval {low:.4f} to {high:.4f})")
    at_once = max(WORKERS[asked.kind], 1)
    added = interval([1e6 * at_once * (profiled - alone) / samples for alone, profiled in pairs])
    print("it adds to a sample {1:.2f} us of who makes it (95 % interval {0:.2f} to {2:.2f})".format(*added))
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"kind": asked.kind, "turns": pairs, "ratio": ratio, "low": low, "high": high}, file)


if __name__ == "__main__":
    main()
