"""Hooks on fetchers: samples, and how they are put together."""

from __future__ import annotations

from typing import Any, Callable

from stallscope import _native
from stallscope.torch._place import failed, put


def _create(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = original(*args, **kwargs)
        if _native.is_active():
            try:
                _stand_in(fetcher)
            except Exception as error:
                failed("samples", error)
        return fetcher

    return create_fetcher


def _stand_in(fetcher: Any) -> None:
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = _native.Stream(fetcher.dataset_iter)
    else:
        fetcher.dataset = _native.Items(fetcher.dataset, _passes_on(fetcher.dataset))
    fetcher.collate_fn = _native.Collate(fetcher.collate_fn)


def _passes_on(dataset: Any) -> bool:
    """Whether it is torch's Subset of data without `__getitems__`: its own does no more than its `__getitem__`."""
    from torch.utils.data import Subset

    while type(dataset) is Subset:
        dataset = dataset.dataset
        if not callable(getattr(dataset, "__getitems__", None)):
            return True
    return False


def place(dataloader: Any) -> None:
    """Have fetchers that are made from now on record."""
    put(dataloader._DatasetKind, "create_fetcher", _create, "samples and collating")
