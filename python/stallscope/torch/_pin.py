"""Hooks in the thread that copies batches to pinned memory."""

from __future__ import annotations

import inspect
from typing import Any, Callable

from stallscope import _native
from stallscope.torch._main import Pass
from stallscope.torch._place import failed, put
from stallscope.torch._state import STATE

_now = _native.now


def _loop(original: Callable[..., Any]) -> Callable[..., Any]:
    def _pin_memory_loop(*args: Any, **kwargs: Any) -> Any:
        current = STATE.starting
        if isinstance(current, Pass) and _native.is_active():
            try:
                arguments = inspect.signature(original).bind(*args, **kwargs).arguments
                _watch(arguments["in_queue"], arguments["out_queue"], current)
            except Exception as error:
                failed("pinning", error)
        return original(*args, **kwargs)

    return _pin_memory_loop


def _watch(taken: Any, given: Any, current: Pass) -> None:
    get, poll, put_on = taken.get, taken._poll, given.put
    times = [0, 0]
    used = [(0, 0)]

    def timed_poll(*args: Any) -> Any:
        ready = poll(*args)
        times[0], used[0] = _now(), _native.used()
        return ready

    def timed_get(*args: Any, **kwargs: Any) -> Any:
        item = get(*args, **kwargs)
        times[1] = _now()
        return item

    def timed_put(item: Any, *args: Any, **kwargs: Any) -> Any:
        pinned = _now()
        result = put_on(item, *args, **kwargs)
        if isinstance(item[0], int):
            _native.pin(current.key, item[0], (times[0], times[1]), (times[1], pinned), used[0])
        return result

    taken._poll, taken.get, given.put = timed_poll, timed_get, timed_put


def place(module: Any) -> None:
    """Have pinning threads that are started from now on record."""
    put(module, "_pin_memory_loop", _loop, "pinning")
