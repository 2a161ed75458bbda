#!/usr/bin/env python3
"""What profiling costs a PyTorch training: one with stallscope and one without it take turns, of a fifth of a second.

usage: torch_overhead.py [--rounds N] [--seconds S] [--kind jpeg|tiny|sample|parts] [--traced] [--json PATH]

jpeg: torchvision's ImageFolder (PIL), random-resized-crop 224, flip, normalise, batch 32, 2 workers.
tiny: samples of 20 us in memory, batch 64, 2 workers.
sample: the same without workers, in batches of 1024, so that next to nothing but samples costs.
parts: as sample, with five parts named by `stallscope.stage` in each.

A round forks both trainings from this process, lets each come into step, and then stops and continues them (SIGSTOP, SIGCONT:
trainer, workers, collector) so that always one of them runs: what else the machine does hits both. As in turns.py, time goes on
for a training that is stopped, so what the collector does by the clock is done up to twice as often: the loss is an upper bound.
Samples are counted where they are read. Epochs are of about a second, since where the memory of a worker lies makes it faster or
slower for all of its life. Trainings have done some steps before: by default as many as the profiler traces, so that a round
costs what most of a long training does (`--traced`: few, and a round ends with the trace). Two things happen or not by chance,
and cost a second up to a fifth; both sides do without them: full garbage collections (`gc.freeze`), and memory that malloc
returns and faults in again. Prints the ratio of samples/s with the profiler to those without, with its 95 % interval (Student's
t on the logarithms, one of each round), and the time that profiling adds to a sample in its worker. Needs torch, torchvision,
Pillow, numpy and stallscope.
"""

import argparse
import contextlib
import gc
import json
import math
import mmap
import os
import signal
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

import turns


class Kind(NamedTuple):
    """How a training loads."""

    workers: int
    batch: int
    #: Batches of an epoch.
    epoch: int
    #: Seconds until the other training's turn.
    turn: float

    @property
    def at_once(self) -> int:
        """Who makes samples."""
        return max(self.workers, 1)


KINDS = {
    "jpeg": Kind(2, 32, 24, 0.2),
    "tiny": Kind(2, 64, 1000, 0.02),
    "sample": Kind(0, 1024, 50, 0.2),
    "parts": Kind(0, 1024, 50, 0.2),
}
PICTURES = 768
#: Of their JPEG: gives them 110 kB.
QUALITY = 87
PARTS = 5
#: Steps of one sample each before those that are measured, so that no trace is written of these, or one is.
FIRST = 208
FIRST_TRACED = 8
#: The step at which a traced round ends.
LAST_TRACED = 190
#: Slots of the memory that a training shares with this process: samples by worker, the steps, and whether to stop.
STEPS, STOP, SLOTS = 2, 3, 4
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


def data_of(kind: str, folder: str, slots: memoryview):
    """The dataset; who makes a sample of it counts it in `slots`."""
    from torch.utils.data import Dataset, get_worker_info

    def count() -> None:
        worker = get_worker_info()
        slots[worker.id if worker else 0] += 1

    if kind == "jpeg":
        from torchvision import datasets, transforms

        def load(path):
            count()
            return datasets.folder.default_loader(path)

        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        normalise = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        return datasets.ImageFolder(folder, transforms.Compose([*steps, normalise]), loader=load)

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
            count()
            return index

    return Tiny()


def train(kind: str, folder: str, slots: memoryview, first: int) -> None:
    """Step until told to stop, `first` times with a sample each before."""
    import torch
    from torch.utils.data import DataLoader, RandomSampler

    data, how = data_of(kind, folder, slots), KINDS[kind]
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch, steps = 1, first
    while True:
        sampler = RandomSampler(data, replacement=True, num_samples=batch * steps)
        for _ in DataLoader(data, batch_size=batch, sampler=sampler, num_workers=how.workers):
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            slots[STEPS] += 1
            if slots[STOP]:
                return
        batch, steps = how.batch, how.epoch


def children(process: int) -> list[int]:
    """The processes that the main thread of `process` has started."""
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(child) for child in file.read().split()]


class Training:
    """One that runs in processes of its own, but only in its turns."""

    def __init__(self, kind: str, folder: str, first: int, run_dir: str, profiled: bool) -> None:
        self.slots = memoryview(mmap.mmap(-1, 8 * SLOTS)).cast("q")
        self.log = f"{run_dir}.log"
        self.report = os.path.join(run_dir, "report.json") if profiled else None
        self.samples, self.seconds = 0, 0.0
        self.groups: set[int] = set()
        self.process = os.fork()
        if self.process == 0:
            status = 1
            try:
                os.setpgid(0, 0)
                output = os.open(self.log, os.O_WRONLY | os.O_CREAT)
                os.dup2(output, 1)
                os.dup2(output, 2)
                if profiled:
                    import stallscope.torch

                    with stallscope.torch.profile(run_dir=run_dir):
                        train(kind, folder, self.slots, first)
                else:
                    train(kind, folder, self.slots, first)
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)

    def come_into_step(self, steps: int) -> None:
        """Let it do `steps`, beyond the first batches, which were made while nobody took any; then stop it."""
        while self.slots[STEPS] < steps:
            if os.waitpid(self.process, os.WNOHANG)[0]:
                self.failed()
            time.sleep(0.01)
        # A worker is of its trainer's group; the collector has one of its own.
        self.groups = {os.getpgid(one) for one in (self.process, *children(self.process))}
        self.signal(signal.SIGSTOP)

    def failed(self) -> None:
        self.process = 0
        with open(self.log) as file:
            raise SystemExit(f"a training failed:\n{file.read()}")

    def signal(self, number: int) -> None:
        for group in self.groups:
            os.killpg(group, number)

    def turn(self, seconds: float) -> None:
        before = sum(self.slots[:STEPS])
        start = time.monotonic()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        self.seconds += time.monotonic() - start
        self.samples += sum(self.slots[:STEPS]) - before

    def end(self) -> float:
        """Its samples/s."""
        self.slots[STOP] = 1
        self.signal(signal.SIGCONT)
        if os.waitpid(self.process, 0)[1] or (self.report and not os.path.exists(self.report)):
            self.failed()
        self.process = 0
        return self.samples / self.seconds

    def kill(self) -> None:
        """Leave nothing behind, where it has not ended."""
        if self.process:
            for group in self.groups | {self.process}:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            os.waitpid(self.process, 0)


def round_of(kind: str, folder: str, traced: bool, seconds: float, order: tuple[bool, bool]) -> tuple[float, float]:
    """Samples/s without the profiler and with it, of trainings that take turns for `seconds`; `order` is that of their start."""
    how, first = KINDS[kind], FIRST_TRACED if traced else FIRST
    pair: list[Training] = []
    with tempfile.TemporaryDirectory() as place:
        try:
            for profiled in order:
                pair.append(Training(kind, folder, first, os.path.join(place, str(profiled)), profiled))
                pair[-1].come_into_step(first + 4 * how.at_once)
            pair.sort(key=lambda one: one.report is not None)
            for number in range(max(2, round(seconds / how.turn / 4) * 2)):
                # Who begins changes, so that neither has the warmer machine.
                for one in pair if number % 2 == 0 else reversed(pair):
                    one.turn(how.turn)
                if traced and pair[1].slots[STEPS] > LAST_TRACED and number % 2:
                    break
            alone, with_profiler = (one.end() for one in pair)
        finally:
            for one in pair:
                one.kill()
    return alone, with_profiler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="pairs of trainings")
    parser.add_argument("--seconds", type=float, default=20.0, help="that both trainings of a round take together")
    parser.add_argument("--kind", default="jpeg", choices=list(KINDS))
    parser.add_argument("--traced", action="store_true", help="measure while a trace is written")
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.rounds < 5:
        parser.error("--rounds: at least 5, for an interval")
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})
    # So that what was stopped is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    import torch

    import stallscope.torch  # noqa: F401

    torch.set_num_threads(1)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.kind == "jpeg":
            pictures(folder)
        # What Python and torch do once is done before the fork.
        slots = memoryview(bytearray(8 * SLOTS)).cast("q")
        slots[STOP] = 1
        train(asked.kind, folder, slots, 1)
        gc.collect()
        gc.freeze()
        for number in range(asked.rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            rounds.append(round_of(asked.kind, folder, asked.traced, asked.seconds, order))
            print("round {}: {:.1f} samples/s alone, {:.1f} profiled".format(number, *rounds[-1]), flush=True)
        gc.unfreeze()
    ratio, low, high = (math.exp(log) for log in turns.interval([math.log(profiled / alone) for alone, profiled in rounds]))
    rate = statistics.median(alone for alone, _ in rounds)
    print(f"{asked.kind}: {rate:.0f} samples/s without the profiler, median of {len(rounds)} rounds")
    print(f"samples/s with / without it {ratio:.4f} (95 % interval {low:.4f} to {high:.4f})")
    added = turns.interval([1e6 * KINDS[asked.kind].at_once * (1 / profiled - 1 / alone) for alone, profiled in rounds])
    print("it adds to a sample {:.2f} us of who makes it (95 % interval {:.2f} to {:.2f})".format(*added))
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump({"kind": asked.kind, "rounds": rounds, "ratio": ratio, "low": low, "high": high}, file)


if __name__ == "__main__":
    main()
