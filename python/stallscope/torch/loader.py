"""stallscope's engine in place of `torch.utils.data.DataLoader`."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

from .. import _native

if TYPE_CHECKING:
    import torch

# Tables of the pipeline file: `decode_workers` is its key `decode.workers`.
_TABLES = ("source", "storage", "split", "read", "decode", "preprocess", "batch", "copy", "trace")
_SHORT = {
    "path": "source.path",
    "format": "source.kind",
    "size": "preprocess.size",
    "crop": "preprocess.crop",
    "flip": "preprocess.flip",
    "mean": "preprocess.mean",
    "std": "preprocess.std",
    "decoder": "decode.decoder",
    "trace": "trace.path",
}


def _key(name: str) -> str:
    table, _, rest = name.partition("_")
    return _SHORT.get(name) or (f"{table}.{rest}" if rest and table in _TABLES else name)


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    return json.dumps(value)


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Which of how many processes this is: as told, as torch.distributed says, or as torchrun has set it."""
    if rank is None or world_size is None:
        import torch.distributed as distributed

        if distributed.is_available() and distributed.is_initialized():
            found = distributed.get_rank(), distributed.get_world_size()
        else:
            found = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        rank = found[0] if rank is None else rank
        world_size = found[1] if world_size is None else world_size
    return rank, world_size


class Samples:
    """The samples that a `Loader` draws from: how many, and how many classes."""

    def __init__(self, samples: int, classes: int) -> None:
        self._samples = samples
        self.classes = classes

    def __len__(self) -> int:
        return self._samples


class Loader:
    """Batches of an image folder, of WebDataset tar files, of shards, or of MNIST's or CIFAR's files.

    Each iteration is an epoch and yields `(images, labels)`: images are float32 of shape (batch, channels, height, width),
    cropped, flipped and normalised as `stallscope run` does it; labels are int64. Tensors use the engine's own memory, which
    is theirs for as long as they or views of them live.

    Give it a pipeline file, or keywords, or both: keywords win. A keyword is a key of the pipeline file with `_` for the dot
    (`decode_workers=4`); `path`, `format`, `size`, `crop`, `flip`, `mean`, `std` and `decoder` are short for those of `source`,
    `preprocess` and `decode`. `num_workers`, `prefetch_factor`, `batch_size`, `shuffle` and `drop_last` are those of
    `DataLoader`; what is not given is as in a pipeline file without it.

    Of several processes (`rank` of `world_size`, by default those of torch.distributed or torchrun) each gets every
    `world_size`th sample of the epoch's order, and all get as many batches. Samples that do not divide are left out with
    `drop_last`; without it the epoch's first samples fill up, as `DistributedSampler` does it.

    With `pin_memory` batches are copied to pinned memory if there is a GPU.
    """

    def __init__(
        self,
        pipeline: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        pin_memory: bool = False,
        **settings: Any,
    ) -> None:
        rank, world_size = _ranks(rank, world_size)
        settings = {name: value for name, value in settings.items() if value is not None}
        sets = [f"{_key(name)}={_toml(value)}" for name, value in settings.items()]
        file = None if pipeline is None else Path(pipeline)
        self._engine = _native.Engine(file, sets, rank, world_size)
        for warning in self._engine.warnings():
            warnings.warn(warning, stacklevel=2)
        self._settings = {**dict(self._engine.figures()), "rank": rank, "world_size": world_size}
        self.batch_size: int = self._settings["batch_size"]
        self.dataset = Samples(self._settings["samples"], self._settings["classes"])
        self.pin_memory = pin_memory
        # Where the next iteration begins, and where the one in progress stands.
        self._next = (0, 0)
        self._now: tuple[int, int] | None = None
        self._turn = 0

    @property
    def sampler(self) -> Loader:
        """Itself, so that `loader.sampler.set_epoch(n)` does what it does elsewhere."""
        return self

    def __len__(self) -> int:
        """Batches of this process in an epoch."""
        return self._settings["batches"]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return _Iteration(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next iteration's; without it, each iteration's is the one after. Order, crops and flips depend on it."""
        if epoch != self._next[0]:
            self._next = (epoch, 0)

    def state_dict(self) -> dict[str, int]:
        """Where it stands: in the middle of an iteration, behind the batch that came last."""
        epoch, batch = self._now or self._next
        return {"epoch": epoch, "batch": batch, **self._settings}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Has the next iteration yield exactly the batches that were left."""
        for name, own in self._settings.items():
            if name != "rank" and state.get(name) != own:
                raise ValueError(
                    f"the state is of a Loader with {name}={state.get(name)}, and this one has {own}; make it with the same settings"
                )
        self._turn += 1
        self._now = None
        self._next = (state["epoch"], state["batch"])

    def report(self) -> dict[str, Any] | None:
        """What was measured of the engine in this loop, as `stallscope run` reports it: `["verdict"]` names what to change."""
        report = self._engine.report()
        return None if report is None else json.loads(report)

    def save_report(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as JSON, for `stallscope predict`."""
        Path(path).write_text(self._engine.report() or "{}")

    def close(self) -> None:
        """Stops the threads, and closes the trace. The next iteration starts them anew."""
        self._turn += 1
        self._engine.stop()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Iteration:
    """One pass."""

    def __init__(self, loader: Loader) -> None:
        from torch.utils import dlpack

        self._tensor = dlpack.from_dlpack
        self._loader = loader
        loader._turn += 1
        self._turn = loader._turn
        epoch, batch = loader._next
        loader._next = (epoch + 1, 0)
        loader._now = (epoch, batch)
        self._epoch = epoch
        self._over = batch >= len(loader)
        if not self._over:
            loader._engine.begin(epoch, batch)

    def __iter__(self) -> _Iteration:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        loader = self._loader
        if self._over:
            raise StopIteration
        if self._turn != loader._turn:
            raise RuntimeError("another iteration of this Loader has begun, or it was closed; make a Loader for each loop")
        batch = loader._engine.next()
        if batch is None:
            self._over = True
            loader._now = None
            raise StopIteration
        number, images, labels = batch
        loader._now = (self._epoch, number + 1)
        tensors = self._tensor(images), self._tensor(labels)
        if loader.pin_memory:
            import torch

            if torch.cuda.is_available():
                return tensors[0].pin_memory(), tensors[1].pin_memory()
        return tensors
