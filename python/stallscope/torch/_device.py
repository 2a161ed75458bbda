"""When the training's GPU worked: by CUPTI's records, or by CUDA events around each step.

Nothing here initialises CUDA. A training without a GPU has `STATE.device` None after its first steps, and costs nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from typing import Any, Callable, Deque, Iterable, List, Optional

from stallscope import _native
from stallscope.torch._place import failed, put
from stallscope.torch._state import STATE

_now = _native.now
#: Parts of training steps (forward, backward, optimizer) without a GPU after which none is looked for any more.
_TRIES = 12
#: Steps whose events may wait to be over.
_MOST_PENDING = 10_000
#: Seconds in which the device may finish what it has, before its timeline is given up.
_PATIENCE = 2.0

_TAKEN = "torch.profiler uses CUPTI, which serves one profiler at a time"


class _Taken:
    """Whether torch's profiler has ever used CUPTI here: its clock is not ours then."""

    ever = False


class Undecided:
    """Before the first step: does it compute on a GPU?"""

    def __init__(self) -> None:
        self.tries = 0

    def begins(self, tensors: Iterable[Any], grad: bool = True) -> None:
        """Something begins to compute with `tensors`."""
        try:
            first = next(iter(tensors), None) if grad else None
            if getattr(first, "is_cuda", False):
                start()
            elif first is not None:
                self.tries += 1
                if self.tries >= _TRIES:
                    STATE.device = None
        except Exception as error:
            STATE.device = None
            failed("the GPU", error)

    def computed(self) -> None:
        """It has computed."""

    def step_ends(self) -> None:
        """The next batch is asked for."""


class _Step:
    """A pair of events, and when the host had recorded each."""

    def __init__(self, begin: Any, end: Any) -> None:
        self.begin, self.end = begin, end
        self.begun, self.ended = 0, 0


class Events:
    """Times what the current stream does in each step by two CUDA events, without waiting for the device.

    Events tell the time between each other. The host's time of the first is known as far as no event can be over before
    it was recorded, nor after it was seen to be over: each event bounds it anew, so that clocks may drift.
    """

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._free: List[Any] = []
        self._pending: Deque[_Step] = Deque()
        self._step: Optional[_Step] = None
        self._last: Any = None
        #: Nanoseconds from the first event to the last that was read, and the host's time of the first.
        self._offset = 0
        self._origin: Optional[int] = None
        self._event()

    def _event(self) -> Any:
        return self._free.pop() if self._free else self._cuda.Event(enable_timing=True)

    def begins(self, tensors: Iterable[Any] = (), grad: bool = True) -> None:
        """Something begins to compute; the first of a step counts."""
        if self._step is not None or self._cuda.is_current_stream_capturing():
            return
        try:
            step = _Step(self._event(), self._event())
            step.begun = _now()
            step.begin.record()
            self._step = step
        except Exception as error:
            self._fails(error)

    def computed(self) -> None:
        """It has computed; the last of a step counts."""
        step = self._step
        if step is None or self._cuda.is_current_stream_capturing():
            return
        try:
            step.ended = _now()
            step.end.record()
        except Exception as error:
            self._fails(error)

    def step_ends(self) -> None:
        """The next batch is asked for."""
        step, self._step = self._step, None
        if step is not None and step.ended and len(self._pending) < _MOST_PENDING:
            self._pending.append(step)
        self.tell()

    def tell(self) -> None:
        """Tell of the steps that the device is done with."""
        try:
            while self._pending and self._pending[0].end.query():
                self._read(self._pending.popleft(), _now())
        except Exception as error:
            self._fails(error)

    def _read(self, step: _Step, seen: int) -> None:
        after = self._last.elapsed_time(step.begin) if self._last is not None else 0.0
        begin = self._offset + round(after * 1e6)
        end = begin + round(step.begin.elapsed_time(step.end) * 1e6)
        least = max(step.begun - begin, step.ended - end)
        origin = least if self._origin is None else max(self._origin, least)
        self._origin = origin = max(min(origin, seen - end), least)
        _native.device_step((origin + begin, origin + end), step.begun)
        self._free.extend(event for event in (self._last, step.begin) if event is not None)
        self._last, self._offset = step.end, end

    def _fails(self, error: Exception) -> None:
        STATE.device = None
        self._pending.clear()
        failed("the GPU's timeline by CUDA events", error)

    def finish(self) -> None:
        """Tell of what the device is done with soon."""
        self.step_ends()
        until = time.monotonic() + _PATIENCE
        while self._pending and time.monotonic() < until:
            time.sleep(0.001)
            self.tell()


def look() -> None:
    """Look whether the training that begins uses a GPU, if this torch can."""
    version = sys.modules["torch"].version
    usable = getattr(version, "cuda", None) or getattr(version, "hip", None)
    STATE.device = Undecided() if usable else None


def start() -> None:
    """The training uses its GPU: begin its timeline."""
    STATE.device = None
    torch: Any = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return
    at, version, reason = _now(), None, None
    if getattr(torch.version, "hip", None):
        reason = "this torch is built for ROCm, which has no CUPTI"
    elif _Taken.ever or torch.autograd._profiler_enabled():
        reason = _TAKEN
    else:
        try:
            index = torch.cuda.current_device()
            version = _native.device_start(index, _packages(torch), torch.version.cuda or "")
        except Exception as error:
            reason = str(error)
    put(torch.cuda, "synchronize", _synchronize, "waiting for the device")
    put(os, "_exit", _exit, "the end by os._exit")
    if reason is None:
        _say("cupti", None, at, version)
    else:
        _by_events(reason, at)


def _by_events(reason: str, at: int) -> None:
    try:
        STATE.device = events = Events()
        _say("events", reason, at)
        events.begins()
    except Exception as error:
        STATE.device = None
        _say("host", f"{reason}; and CUDA events cannot be used: {error}", at)


def _say(source: str, reason: Optional[str], at: int, version: Optional[int] = None) -> None:
    said = {"source": source, "reason": reason, "at": at, "version": version, "device": _name()}
    _native.text("timeline", 0, json.dumps(said))


def _name() -> Optional[str]:
    try:
        return str(sys.modules["torch"].cuda.get_device_name())
    except Exception:
        return None


def _packages(torch: Any) -> List[str]:
    """Where NVIDIA's Python packages lie."""
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))), "nvidia")
    try:
        spec = importlib.util.find_spec("nvidia")
        found = list(spec.submodule_search_locations or ()) if spec else []
    except Exception:
        found = []
    return list(dict.fromkeys([beside, *found]))


def drain() -> bool:
    """Wait, but not for long, until the device has done what the current stream has: only then are its records whole.

    False where it has not.
    """
    try:
        event = sys.modules["torch"].cuda.Event()
        event.record()
        until = time.monotonic() + _PATIENCE
        while not event.query():
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return True
    except Exception:
        # CUDA may have failed, and with it the script.
        return False


def finish() -> None:
    """The training is over: tell what is known of it."""
    device, STATE.device = STATE.device, None
    if isinstance(device, Events):
        device.finish()
    elif _native.device_records():
        drain()
        _native.device_finish()


def leave_cupti() -> None:
    """torch's profiler is going to use it."""
    _Taken.ever = True


def give_up() -> None:
    """torch's profiler takes CUPTI."""
    leave_cupti()
    if _native.device_records():
        at = _now()
        drain()
        _native.device_finish()
        _by_events(_TAKEN, at)


def _synchronize(original: Callable[..., Any]) -> Callable[..., Any]:
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        from stallscope.torch._compute import counts

        if not counts():
            return original(*args, **kwargs)
        begun = _now()
        try:
            return original(*args, **kwargs)
        finally:
            _native.main_work("synchronize", (0, 0), 0, (begun, _now()))

    return synchronize


def _exit(original: Callable[..., Any]) -> Callable[..., Any]:
    def _exit(*args: Any, **kwargs: Any) -> Any:
        if isinstance(STATE.device, Events):
            STATE.device.tell()
        _native.device_finish()
        return original(*args, **kwargs)

    return _exit
