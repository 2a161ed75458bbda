"""torch's profiler beside the hooks: that of the script, and the one that ``--with-kineto`` starts for some steps."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Optional

from stallscope import _native
from stallscope.torch import _device
from stallscope.torch._place import failed, put
from stallscope.torch._state import STATE, problem

#: The trace, beside the report.
_TRACE = "kineto.json"
_JOIN = "join the script's own trace: stallscope analyze TRACE --join RUN"


class _Seen:
    """Whether a profiler has recorded in this process."""

    ever = False
    #: It is ours that starts now.
    ours = False


class Profiler:
    """Records training steps with torch's profiler, from the first after the warm-up on."""

    def __init__(self, warmup_steps: int, steps: int) -> None:
        self._first, self._left = warmup_steps, steps + 1
        self._trained = warmup_steps == 0
        self._profile: Any = None
        self._is_over = False

    def returned(self, grad: bool) -> None:
        """A batch was returned; `grad` where it is trained on."""
        self._trained |= grad

    def asks(self) -> None:
        """The next batch is about to be asked for: the step on the last one is over."""
        if self._is_over or not self._trained:
            return
        self._trained = False
        try:
            if self._profile is not None:
                self._left -= 1
                if self._left:
                    self._profile.step()
                else:
                    self._stop()
            elif self._first <= 1:
                self._start()
            else:
                self._first -= 1
        except Exception as error:
            self._is_over = True
            failed("the training by torch's profiler", error)

    def _start(self) -> None:
        torch: Any = sys.modules["torch"]
        if torch.autograd._profiler_enabled():
            self._is_over = True
            problem(f"the script uses torch.profiler itself, so --with-kineto started none; {_JOIN}")
            return
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        # With a schedule, which says nothing else, it marks the steps.
        self._profile = profile(activities=activities, schedule=lambda _: ProfilerAction.RECORD)
        _Seen.ours = True
        try:
            self._profile.start()
        finally:
            _Seen.ours = False

    def _stop(self) -> None:
        self._is_over = True
        self._profile.stop()

    def yields(self) -> None:
        """The script starts one of its own: there can be one at a time."""
        if self._profile is not None and not self._is_over:
            problem(f"the script started torch.profiler, which ended that of --with-kineto; {_JOIN}")
            self._stop()
        self._is_over = True

    def finish(self, folder: str) -> None:
        """The training is over: write the trace."""
        try:
            if self._profile is None:
                if not self._is_over:
                    problem("the training ended before --with-kineto could record a step")
                return
            if not self._is_over:
                self._stop()
            path = os.path.join(folder, _TRACE)
            self._profile.export_chrome_trace(path)
            _say(path)
        except Exception as error:
            failed("the trace of torch's profiler", error)


def begin() -> None:
    """This process begins to record."""
    options = STATE.options
    if options is not None and options.with_kineto is not None:
        STATE.profiler = Profiler(options.warmup_steps, options.with_kineto)
        _device.leave_cupti()
    if _Seen.ever:
        _say(None)


def _say(trace: Optional[str]) -> None:
    _native.text("profiler", 0, json.dumps({"trace": trace}))


def _profiles(original: Callable[..., Any]) -> Callable[..., Any]:
    def profiler_starts(*args: Any, **kwargs: Any) -> Any:
        try:
            if STATE.profiler is not None and not _Seen.ours:
                STATE.profiler.yields()
            if not _Seen.ever and _native.is_active():
                _say(None)
            _Seen.ever = True
            cuda = sys.modules["torch"].profiler.ProfilerActivity.CUDA
            given = (value for value in (*args, *kwargs.values()) if isinstance(value, (set, frozenset, list, tuple)))
            if any(cuda in activities for activities in given):
                _device.give_up()
        except Exception as error:
            failed("the GPU beside torch's profiler", error)
        return original(*args, **kwargs)

    return profiler_starts


def place(module: Any) -> None:
    """Have torch's profiler get CUPTI, which serves one at a time, and know that it records."""
    for name in ("_prepare_profiler", "_enable_profiler"):
        put(module, name, _profiles, "the GPU beside torch's profiler")
