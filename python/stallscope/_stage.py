"""Parts that users name: a context, or a decorator, whose cost is next to nothing while nothing is profiled."""

from __future__ import annotations

from typing import Any, Callable, Dict, TypeVar, cast

from stallscope import _native

_F = TypeVar("_F", bound=Callable[..., Any])


def _enter_off() -> None:
    """Takes no `self`: a static method is not bound, which takes half of the time."""


def _exit_off(kind: Any, error: Any, traceback: Any) -> None:
    pass


class Stage:
    """One part's name. Its methods are others while this process records."""

    __slots__ = ("name", "_part")

    def __init__(self, name: str) -> None:
        self.name = name
        self._part = _native.part(name)

    __enter__ = staticmethod(_enter_off)
    __exit__ = staticmethod(_exit_off)

    def __call__(self, function: _F) -> _F:
        """Decorate a function, or a class's method."""
        if not callable(function):
            raise TypeError("stage(name) decorates a function")
        return cast(_F, _native.timed(function, self.name, True))

    def __reduce__(self) -> Any:
        return Stage, (self.name,)


def _enter_on(self: Stage) -> None:
    _native.enter_stage(self._part)


def record(on: bool) -> None:
    """Have `with` blocks that begin from now on be recorded, or not."""
    setattr(Stage, "__enter__", _enter_on if on else staticmethod(_enter_off))
    setattr(Stage, "__exit__", _native.leave_stage if on else staticmethod(_exit_off))


#: Names beyond these are made anew each time, so that names from a loop do not fill the memory.
_MOST = 1000


class _Stages(Dict[str, Stage]):
    def __missing__(self, name: str) -> Stage:
        made = Stage(name)
        if len(self) < _MOST:
            self[name] = made
        return made


#: The dictionary's own method: a call of a Python function would take as long as all the rest.
stage: Callable[[str], Stage] = _Stages().__getitem__
