"""Profiles the data loading of a PyTorch training, which stays as it is.

``stallscope torch train.py`` does it from outside; :func:`install` and :func:`profile` from code.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, Optional, Union

from stallscope.torch.loader import Loader

__all__ = ["Loader", "install", "profile"]

_Path = Union[str, "os.PathLike[str]"]


def install(
    run_dir: Optional[_Path] = None,
    steps: Optional[int] = None,
    warmup_steps: int = 3,
    json: bool = False,
) -> None:
    """Profile every DataLoader that is iterated from now on; the verdict is printed when the process ends.

    :param run_dir: the folder for report and trace; by default ``traces/SCRIPT-TIMESTAMP``
    :param steps: training steps to measure; by default all
    :param warmup_steps: training steps to leave out at the beginning
    :param json: print the report as JSON
    """
    from stallscope.torch import _hooks, _options

    _hooks.install(_options.Options.of(run_dir, steps, warmup_steps, json))


@contextlib.contextmanager
def profile(
    run_dir: Optional[_Path] = None,
    steps: Optional[int] = None,
    warmup_steps: int = 3,
    json: bool = False,
) -> Iterator[None]:
    """Profile the DataLoaders that are iterated in a ``with`` block; its end prints the verdict.

    The parameters are those of :func:`install`.
    """
    from stallscope.torch import _options, _state

    install(run_dir, steps, warmup_steps, json)
    try:
        yield
    finally:
        _state.finish()
        # What is started later is not of the block.
        os.environ.pop(_options.VARIABLE, None)
