#!/usr/bin/env python3
"""A PyTorch training with one cost planted in it, or two.

usage: planted_training.py CASE [--without COST]

Prints, as JSON, its window and how long the device was busy in it, by `time` alone. The costs are sleeps where they
can be, so that two cores are enough. Needs torch, torchvision and Pillow.
"""

import argparse
import contextlib
import fcntl
import functools
import io
import json
import multiprocessing
import os
import pickle
import tempfile
import time
from dataclasses import dataclass, field

# Seconds of the device a step. Where a worker's service has other costs beside the planted one it is shorter: what the
# device does meanwhile is taken off all of them in proportion, while removing one leaves the others. On a machine whose
# caches others use, too, a step's other work takes up to 8 ms more after 0.1 s of anything else, busy or idle, and
# removing the cost recovers that as well: planted costs are about 0.4 s a step.
STEP = 0.004


@dataclass(frozen=True)
class Case:
    """A training with costs planted in it."""

    name: str
    costs: dict  # where -> seconds (or what the place makes of it); the first is the one to be named
    says: tuple  # how the causes that are this cost begin, of which one is named first
    workers: int = 2
    context: str = "fork"
    batch: int = 8
    batches: int = 10
    epochs: int = 1
    step: float = STEP
    warmup: int = 0  # steps that are not measured
    loader: dict = field(default_factory=dict)
    dataset: str = "map"
    by_value: bool = False  # tensors are sent as arrays, in the pipe


def case(name, costs, *says, **more):
    return Case(name, costs, says, **more)


READ, DECODE, SLOW, COLLATE = "read", "decode", "slow-transform", "collate"
# Starting workers is one cost: the trainer starts them, they come up, and at the end they are stopped.
START = ("worker start-up", "host: starting workers", "host: stopping workers")
# So is sending: it is pickled, received, and freed when the loop takes the next batch.
SENT = ("transport", "host: receiving", "host: between steps")
CASES = [
    case("read, inline", {"read": 0.06}, READ, workers=0),
    case("read, one worker", {"read": 0.06}, READ, workers=1),
    case("read, two workers", {"read": 0.1}, READ, batches=12),
    case("read, four spawned workers", {"read": 0.2}, READ, workers=4, context="spawn", batches=24, warmup=8),
    case("decode, inline", {"decode": 0.06}, DECODE, workers=0),
    case("lazy decode, two workers", {"lazy decode": 0.1}, DECODE, batches=12),
    case("lazy decode, spawned", {"lazy decode": 0.1}, DECODE, context="spawn", batches=16, warmup=4),
    case("one of two transforms, v1", {"transform": 0.06}, SLOW, workers=1),
    case("one of two transforms, v2", {"transform v2": 0.1}, SLOW, batches=12),
    case("collate, inline", {"collate": 0.4}, COLLATE, workers=0),
    case("collate, one worker", {"collate": 0.4}, COLLATE, workers=1),
    case("collate, four workers", {"collate": 1.6}, COLLATE, workers=4, batches=16),
    case("large arrays by value", {"arrays": 24_000_000}, *SENT, workers=1, batch=2, batches=40),
    case("many small tensors", {"small tensors": 150}, *SENT, workers=1, batch=2, batches=40),
    case("sampler", {"sampler": 0.4}, "host: sampler", workers=2),
    case("sampler, four workers", {"sampler": 0.4}, "host: sampler", workers=4),
    case("sampler, inline", {"sampler": 0.4}, "host: sampler", workers=0),
    case("lazy opens each epoch", {"lazy open": 1.0}, *START, epochs=5, batches=10, warmup=20),
    case("worker_init_fn each epoch", {"worker init": 1.0}, *START, epochs=5, batches=10, warmup=20, workers=4),
    case("spawned workers each epoch", {"start-up": None}, *START, epochs=3, batches=10, warmup=10, context="spawn"),
    case("few samples take long", {"rare": 0.5}, "slow-samples", "head-of-line", batch=4, batches=60),
    case("they all land on one worker", {"rare, one worker": 0.7}, "slow-samples", "head-of-line", workers=4, batch=4, batches=40),
    case("a lock", {"lock": 0.025}, "lock", workers=4, batch=16, batches=12, step=0.001),
    case("a locked file", {"flock": 0.025}, "lock", workers=4, batch=16, batches=12, step=0.001),
    case("too few shards", {"shards": 1}, "too few shards", workers=4, dataset="iterable", batch=4, batches=24),
    case("code between steps", {"between": 0.4}, "host: between steps", workers=2, by_value=True),
    case("code between steps, inline", {"between": 0.4}, "host: between steps", workers=0),
    case("a validation loader started anew", {"validation": 0.6}, "validation", epochs=5, batches=10),
    case("host to device", {"to device": 0.4}, "host: copy", workers=1, batch=2),
    case("slow step", {"step": 0.06}, "device-bound", workers=2, batches=40, warmup=5),
    case("slow step, inline", {"step": 0.2}, "device-bound", workers=0, batch=2, batches=20),
    case("read and transform", {"read": 0.045, "transform": 0.015}, READ, workers=1, step=0.001),
    case("collate and read", {"collate": 0.7, "read": 0.03}, COLLATE, workers=2, batches=12, step=0.001),
    case("sampler and code between steps", {"sampler": 0.3, "between": 0.15}, "host: sampler", workers=1),
    case("start-up and read", {"worker init": 1.0, "read": 0.02}, *START, workers=2, epochs=4, batches=10, warmup=10, step=0.001),
    case("between steps and collate, inline", {"between": 0.3, "collate": 0.12}, "host: between steps", workers=0, step=0.001),
    case("whole batches", {"getitems": 0.4}, "fetch", workers=1),
]


def train(chosen: Case, without: "str | None") -> dict:
    """The training; returns its window and the time the device was busy, in seconds."""
    import torch
    import torch.utils.data

    torch.set_num_threads(1)
    costs = {place: cost for place, cost in chosen.costs.items() if place != without}
    busy, step = 0.0, 0
    model, loader, validation = made(chosen, costs, without)
    far = slow_to_copy(costs.get("to device", 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = end = time.monotonic()
    for _ in range(chosen.epochs):
        for batch in loader:
            far.to("cpu", copy=True)
            began = time.monotonic()
            loss = model(torch.as_tensor(batch["x"]).float()).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            busy += time.monotonic() - began
            if "between" in costs:
                compute(costs["between"], batch)
            step += 1
            if step == chosen.warmup:
                start, busy = time.monotonic(), 0.0
            # It ends with the last step.
            end, busy_until = time.monotonic(), busy
        if validation is not None:
            with torch.no_grad():
                for batch in validation:
                    began = time.monotonic()
                    model(batch["x"].float())
                    busy += time.monotonic() - began
    return {"window": end - start, "busy": busy_until}


def made(chosen: Case, costs: dict, without: "str | None"):
    """Model, loader and, where there is one, the validation loader."""
    import torch
    from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

    data = (Shards if chosen.dataset == "iterable" else Samples)(chosen, costs)
    more = dict(chosen.loader)
    if chosen.workers:
        more.setdefault("prefetch_factor", 2)
        more["multiprocessing_context"] = chosen.context
        # Without the cost of starting them, workers stay.
        more["persistent_workers"] = without in ("start-up", "worker init", "lazy open")
    if "worker init" in chosen.costs:
        more["worker_init_fn"] = Slept(chosen.costs["worker init"])
    if chosen.dataset != "iterable":
        sampler = SequentialSampler(data)
        more["sampler"] = SlowSampler(sampler, costs["sampler"] / chosen.batch) if "sampler" in costs else sampler
    loader = DataLoader(data, batch_size=chosen.batch, num_workers=chosen.workers, collate_fn=Collate(chosen.costs, without, chosen.by_value), **more)
    validation = None
    if "validation" in costs:
        worker = Slept(costs["validation"])
        validation = DataLoader(Samples(chosen, {}), batch_size=chosen.batch, num_workers=1, worker_init_fn=worker, collate_fn=Collate({}))
    return Model(costs.get("step", chosen.step)), loader, validation


def compute(seconds, batch):
    """As metrics and logging do, on small tensors and in Python."""
    import torch

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        (torch.as_tensor(batch["x"]).float().clone() @ torch.ones(4, 1)).mean().item()
        pickle.loads(pickle.dumps(batch))


def slow_to_copy(seconds):
    """A tensor that takes so long to copy."""
    import torch

    class Far(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") == "to":
                time.sleep(seconds)
            return super().__torch_function__(function, types, args, kwargs or {})

    return torch.zeros(1).as_subclass(Far)


class Slept:
    """Sleeps in each worker that starts."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, worker):
        time.sleep(self.seconds)


class SlowSampler:
    def __init__(self, sampler, seconds):
        self.sampler, self.seconds = sampler, seconds

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        for index in self.sampler:
            time.sleep(self.seconds)
            yield index


class Collate:
    """What it sends is made all the same where sending is what is left out."""

    def __init__(self, costs, without=None, by_value=False):
        import numpy

        self.costs, self.without, self.by_value = costs, without, by_value
        self.arrays = numpy.ones(costs.get("arrays", 0), dtype=numpy.uint8)

    def __call__(self, samples):
        import torch

        costs = self.costs
        if "collate" in costs and self.without != "collate":
            time.sleep(costs["collate"])
        x = torch.stack([sample["x"] for sample in samples])
        batch = {"x": x.numpy() if self.by_value else x}
        more = {"arrays": self.arrays, "small tensors": [torch.ones(4) for _ in range(costs.get("small tensors", 0))]}
        return {**batch, **{place: sent for place, sent in more.items() if place in costs and place != self.without}}


class SlowTransform:
    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, picture):
        time.sleep(self.seconds)
        return picture


class OtherTransform:
    def __call__(self, picture):
        return picture


def Model(seconds):
    import torch

    class Sleeping(torch.nn.Module):
        """Keeps the device busy for so long."""

        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 1)

        def forward(self, x):
            time.sleep(seconds)
            return self.line(x)

    return Sleeping()


@functools.cache
def slow_decoding(seconds):
    """Decoding of BMP pictures sleeps, wherever and whenever it happens."""
    from PIL import BmpImagePlugin, Image

    class Slow(BmpImagePlugin.BmpImageFile):
        format = "BMP"

        def load_prepare(self):
            time.sleep(seconds)
            super().load_prepare()

    Image.init()
    Image.OPEN["BMP"] = (Slow, Image.OPEN["BMP"][1])


def dataset_class(base):
    class Data(base):
        def __init__(self, chosen, costs):
            from PIL import Image

            self.chosen, self.costs = chosen, costs
            self.length = chosen.batch * chosen.batches
            self.opened = False
            self.lock = multiprocessing.get_context(chosen.context).Lock() if "lock" in costs else None
            stream = io.BytesIO()
            Image.new("RGB", (8, 8)).save(stream, "BMP")
            descriptor, self.path = tempfile.mkstemp(suffix=".bmp")
            os.write(descriptor, stream.getvalue())
            os.close(descriptor)
            self.transform = self.transforms()

        def transforms(self):
            if "transform v2" in self.costs:
                from torchvision.transforms import v2

                class SlowTransform2(v2.Transform):
                    def __init__(self, seconds):
                        super().__init__()
                        self.seconds = seconds

                    def transform(self, picture, _):
                        time.sleep(self.seconds)
                        return picture

                SlowTransform2.__name__ = "SlowTransform"
                return v2.Compose([SlowTransform2(self.costs["transform v2"]), v2.RandomHorizontalFlip()])
            if "transform" in self.costs:
                from torchvision.transforms import Compose

                return Compose([SlowTransform(self.costs["transform"]), OtherTransform()])
            return None

        def sample(self, index):
            import torch

            costs = self.costs
            if "lazy open" in self.chosen.costs and not self.opened:
                self.opened = True
                time.sleep(self.chosen.costs["lazy open"])
            if "read" in costs:
                self.read(costs["read"])
            picture = None
            if "decode" in self.chosen.costs or "lazy decode" in self.chosen.costs:
                picture = self.decode()
            # Without the lock the work under it is still done.
            if "lock" in self.chosen.costs:
                with self.lock if "lock" in costs else contextlib.nullcontext():
                    time.sleep(self.chosen.costs["lock"])
            if "flock" in self.chosen.costs:
                with open(self.path, "rb") as file:
                    if "flock" in costs:
                        fcntl.flock(file, fcntl.LOCK_EX)
                    time.sleep(self.chosen.costs["flock"])
            if "rare" in costs and index % 23 == 7:
                time.sleep(costs["rare"])
            batch = index // self.chosen.batch
            first = batch < self.chosen.workers  # which would be taken for opening something
            if "rare, one worker" in costs and batch % self.chosen.workers == 1 and index % self.chosen.batch == 0 and not first:
                time.sleep(costs["rare, one worker"])
            if self.transform is not None:
                self.transform(picture or torch.zeros(3, 8, 8))
            return {"x": torch.zeros(4)}

        def read(self, seconds):
            # As a slow disk does it: the call that reads takes long.
            import stallscope

            with stallscope.stage("read"):
                with open(self.path, "rb") as file:
                    time.sleep(seconds)
                    file.read()

        def decode(self):
            from PIL import Image

            slow_decoding(self.costs.get("decode", self.costs.get("lazy decode", 0)))
            picture = Image.open(self.path)
            if "decode" in self.chosen.costs:
                picture.load()
            return picture.convert("RGB")

    return Data


class Samples(dataset_class(object)):
    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.sample(index)

    def __getattr__(self, name):
        # Only then does the loader ask for whole batches.
        if name == "__getitems__" and "getitems" in self.__dict__.get("chosen", CASES[0]).costs:
            return self.whole
        raise AttributeError(name)

    def whole(self, indices):
        if "getitems" in self.costs:
            time.sleep(self.costs["getitems"])
        return [self.sample(index) for index in indices]


def shards_class():
    try:
        from torch.utils.data import IterableDataset
    except ImportError:
        return object
    return dataset_class(IterableDataset)


class Shards(shards_class()):
    """With the cost two shards, without it one for each worker."""

    def __iter__(self):
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        shards = 2 if "shards" in self.costs else info.num_workers
        if info.id < shards:
            for index in range(info.id, self.length, shards):
                time.sleep(0.1)
                yield self.sample(index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help="its name")
    parser.add_argument("--without", help="the cost that is left out")
    asked = parser.parse_args()
    chosen = next(case for case in CASES if case.name == asked.case)
    print(json.dumps(train(chosen, asked.without)))


if __name__ == "__main__":
    main()
