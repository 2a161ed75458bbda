"""What a report says of a DataLoader's settings, by torch's names."""

from __future__ import annotations

import json
from typing import Any, Callable, Optional


def _length(of: Any) -> Optional[int]:
    try:
        return len(of)
    except Exception:
        return None


def _name(of: Any) -> str:
    of = getattr(of, "func", of)
    return getattr(of, "__qualname__", None) or type(of).__qualname__


def loader(of: Any) -> str:
    """The settings of a DataLoader, as JSON; what it does not have is left out."""
    import multiprocessing

    def get(name: str) -> Any:
        return getattr(of, name, None)

    context = get("multiprocessing_context") or multiprocessing
    iterable = get("_dataset_kind") == 1
    getters: dict[str, Callable[[], Any]] = {
        "num_workers": lambda: of.num_workers,
        "prefetch_factor": lambda: of.prefetch_factor,
        "persistent_workers": lambda: of.persistent_workers,
        "drop_last": lambda: of.drop_last,
        "in_order": lambda: getattr(of, "in_order", True),
        "iterable": lambda: iterable,
        "multiprocessing_context": lambda: context.get_start_method(),
        "pin_memory": lambda: of.pin_memory,
        "batches": lambda: None if iterable else _length(of),
        "samples": lambda: None if iterable else _length(of.sampler if of.batch_size else of.dataset),
        "dataset": lambda: _name(type(of.dataset)),
        "sampler": lambda: _name(type(of.sampler)),
        "batch_sampler": lambda: of.batch_sampler and _name(type(of.batch_sampler)),
        "collate_fn": lambda: _name(of.collate_fn),
        "loader": lambda: _name(type(of)),
        "whole_batches": lambda: callable(getattr(of.dataset, "__getitems__", None)),
    }
    settings: dict[str, Any] = {"batch_size": get("batch_size")}
    for name, getter in getters.items():
        try:
            value = getter()
        except Exception:
            continue
        if value is not None:
            settings[name] = value
    return json.dumps(settings)
