#!/usr/bin/env python3
"""What profiling costs a PyTorch training: epochs of one training, with stallscope's hooks and collector and without, in turns.

usage: torch_overhead.py [--minutes M] [--kind jpeg|tiny|sample|parts] [--json PATH]

jpeg: torchvision's ImageFolder (PIL), random-resized-crop 224, flip, normalise, batch 32, 2 workers.
tiny: samples of 20 us in memory, batch 64, 2 workers.
sample: the same without workers, in batches of 1024, so that next to nothing but samples costs.
parts: as sample, with five parts named by `stallscope.stage` in each.

For an epoch without it the collector is stopped (SIGSTOP), the process records nothing, and what its hooks stand in the place
of is put back, so that its workers, which are started for each epoch, run none of the profiler's code. Epochs take turns as
with, without, without, with; four such make a round. What an epoch's workers do until the first batches have come is not
counted. Where the memory of a worker lies makes it faster or slower for all of its life, by chance; so there are many
epochs, and all of one process. The first steps are those that a profile traces, and are not counted. Two more things happen or
not by chance, and cost a second up to a fifth; no epoch has them: full garbage collections (`gc.freeze`), and memory that
malloc returns and faults in again. Prints the ratio of samples/s with the profiler to those without, with its 95 % interval
(Student's t on the logarithms, one of each round), and the time that profiling adds to a sample in its worker. Needs torch,
torchvision, Pillow, numpy and stallscope.
"""

import argparse
import contextlib
import gc
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from typing import Iterator, NamedTuple

import turns


class Kind(NamedTuple):
    """How a training loads."""

    workers: int
    batch: int
    #: Batches of an epoch.
    epoch: int

    @property
    def at_once(self) -> int:
        """Who makes samples."""
        return max(self.workers, 1)


KINDS = {
    "jpeg": Kind(2, 32, 28),
    "tiny": Kind(2, 64, 1000),
    "sample": Kind(0, 1024, 50),
    "parts": Kind(0, 1024, 50),
}
PICTURES = 768
#: Of their JPEG: gives them 110 kB.
QUALITY = 87
PARTS = 5
#: Steps of one sample each before those that are measured, so that no trace is written of these.
FIRST = 208
#: Whether epochs are profiled, in turns, so that neither kind has the warmer machine.
TURNS = (True, False, False, True)
#: glibc's: memory once taken is kept.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_TOP_PAD_": "67108864"}


def pictures(folder: str) -> None:
    """JPEGs of ten classes, 500 x 375 and 110 kB as ImageNet's are on average; like a photograph's, their amplitudes fall as 1/f."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(1)
    frequency = numpy.hypot(numpy.fft.fftfreq(375)[:, None], numpy.fft.rfftfreq(500))
    frequency[0, 0] = numpy.inf

    def field():
        noise = numpy.fft.irfft2(numpy.fft.rfft2(random.standard_normal((375, 500))) / frequency, (375, 500))
        return noise / noise.std()

    for number in range(PICTURES):
        grey = field()
        colours = numpy.stack([115 + 55 * grey + 15 * field() for _ in range(3)], axis=-1)
        place = os.path.join(folder, str(number % 10))
        os.makedirs(place, exist_ok=True)
        picture = Image.fromarray(colours.clip(0, 255).astype(numpy.uint8))
        picture.save(os.path.join(place, f"{number:05}.jpg"), quality=QUALITY)


def data_of(kind: str, folder: str):
    """The dataset."""
    from torch.utils.data import Dataset

    if kind == "jpeg":
        from torchvision import datasets, transforms

        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        normalise = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        return datasets.ImageFolder(folder, transforms.Compose([*steps, normalise]))

    if kind == "parts":
        import stallscope

        stages = [stallscope.stage(f"part {number}") for number in range(PARTS)]
    else:
        stages = []

    class Tiny(Dataset):
        """Each sample computes for 20 us."""

        def __len__(self):
            return 1 << 20

        def __getitem__(self, index):
            until = time.perf_counter_ns() + 20_000
            while time.perf_counter_ns() < until:
                pass
            for stage in stages:
                with stage:
                    pass
            return index

    return Tiny()


class Training:
    """One that steps through epochs."""

    def __init__(self, kind: str, folder: str) -> None:
        import torch

        self.how, self.data = KINDS[kind], data_of(kind, folder)
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.input = torch.ones(1, 1)

    def epoch(self, batch: int, steps: int) -> float:
        """Its samples/s, once each worker's first batches have come."""
        from torch.utils.data import DataLoader, RandomSampler

        sampler = RandomSampler(self.data, replacement=True, num_samples=batch * steps)
        first, begun = 2 * self.how.workers, 0
        for step, _ in enumerate(DataLoader(self.data, batch_size=batch, sampler=sampler, num_workers=self.how.workers)):
            self.model(self.input).sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if step == first:
                begun = time.perf_counter_ns()
        return 1e9 * batch * (steps - 1 - first) / (time.perf_counter_ns() - begun)


def hooked() -> "list[tuple[object, str]]":
    """What a worker of these trainings calls and a hook may stand in the place of."""
    import builtins
    import io

    import PIL.Image
    import PIL.ImageFile
    from torchvision import transforms

    functions = [(builtins, "open"), (io, "open"), (PIL.Image, "open"), (PIL.Image.Image, "convert")]
    return [*functions, (PIL.ImageFile.ImageFile, "load"), (transforms.Compose, "__call__")]


@contextlib.contextmanager
def unprofiled(originals: "list[object]") -> Iterator[None]:
    """The process and those that it starts record nothing and call `originals`, and the collector stands still."""
    from stallscope import _native, _stage
    from stallscope.torch._state import STATE, start

    options, collector = STATE.options, STATE.collector._process.pid
    places = hooked()
    hooks = [getattr(owner, name) for owner, name in places]
    os.kill(collector, signal.SIGSTOP)
    STATE.options = None
    _native.stop()
    _stage.record(False)
    for (owner, name), original in zip(places, originals):
        setattr(owner, name, original)
    try:
        yield
    finally:
        for (owner, name), hook in zip(places, hooks):
            setattr(owner, name, hook)
        STATE.options = options
        start()
        os.kill(collector, signal.SIGCONT)


def round_of(training: Training, originals: "list[object]") -> "tuple[float, float]":
    """Samples/s without the profiler and with it, geometric means."""
    logs: "dict[bool, list[float]]" = {False: [], True: []}
    for profiled in TURNS:
        with contextlib.nullcontext() if profiled else unprofiled(originals):
            logs[profiled].append(math.log(training.epoch(training.how.batch, training.how.epoch)))
    alone, with_profiler = (math.exp(statistics.mean(logs[profiled])) for profiled in (False, True))
    return alone, with_profiler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kind", default="jpeg", choices=list(KINDS))
    parser.add_argument("--json")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})
    import torch

    import stallscope.torch

    torch.set_num_threads(1)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.kind == "jpeg":
            pictures(folder)
        originals = [getattr(owner, name) for owner, name in hooked()]
        with stallscope.torch.profile(run_dir=os.path.join(folder, "run")):
            training = Training(asked.kind, folder)
            training.epoch(1, FIRST)
            gc.collect()
            gc.freeze()
            until = time.monotonic() + 60 * asked.minutes
            while time.monotonic() < until or len(rounds) < 5:
                rounds.append(round_of(training, originals))
                print("round {}: {:.1f} samples/s alone, {:.1f} profiled".format(len(rounds), *rounds[-1]), flush=True)
            gc.unfreeze()
    ratio, low, high = (math.exp(log) for log in turns.interval([math.log(profiled / alone) for alone, profiled in rounds]))
    rate = statistics.median(alone for alone, _ in rounds)
    print(f"{asked.kind}: {rate:.0f} samples/s without the profiler, median of {len(rounds)} rounds")
    print(f"samples/s with / without it {ratio:.4f} (95 % interval {low:.4f} to {high:.4f})")
    added = turns.interval([1e6 * training.how.at_once * (1 / profiled - 1 / alone) for alone, profiled in rounds])
    print("it adds to a sample {:.2f} us of who makes it (95 % interval {:.2f} to {:.2f})".format(*added))
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"kind": asked.kind, "rounds": rounds, "ratio": ratio, "low": low, "high": high}, file)


if __name__ == "__main__":
    main()
