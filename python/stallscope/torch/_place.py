"""Puts hooks in their places, and says which places are not there."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from stallscope.torch._state import problem

_MARK = "_stallscope_original"


def put(owner: Any, name: str, make: Callable[[Any], Any], what: str) -> None:
    """Replace the function `name` of a class or module by what `make` makes of it.

    Where it is not there, `what` cannot be measured, and that is said; where it is a hook already, it stays.
    """
    try:
        there = owner.__dict__[name]
        original = there.__func__ if isinstance(there, staticmethod) else there
        if hasattr(original, _MARK):
            return
        hook = make(original)
        functools.update_wrapper(hook, original)
        setattr(hook, _MARK, original)
        setattr(owner, name, staticmethod(hook) if isinstance(there, staticmethod) else hook)
    except Exception as error:
        version = getattr(sys.modules.get("torch"), "__version__", "?")
        place = f"{getattr(owner, '__name__', owner)}.{name}"
        problem(f"{what} cannot be measured: {place} of torch {version} cannot be hooked ({error!r})")


def original_of(hook: Any) -> Any:
    """What a hook stands in the place of; anything else is itself."""
    while hasattr(hook, _MARK):
        hook = getattr(hook, _MARK)
    return hook


def failed(where: str, error: Exception) -> None:
    """A hook met what it does not know: say so, and let the script go on."""
    problem(f"{where} could not be measured: {type(error).__name__}: {error}")
