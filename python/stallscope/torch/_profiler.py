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

    #: The script used one.
    script = False
    #: It is ours that starts now.
    ours = False


class Profiler:
    """Records training steps with torch's profiler, from the first after the warm-up on, and writes its trace."""

    def __init__(self, warmup_steps: int, steps: int, folder: str) -> None:
        self._first, self._left = warmup_steps, steps
        self._folder = folder
        #: Whose batches are counted: those of the loader that the training began with, and of each that follows it.
        self._pass: Any = None
        self._trained = False
        self._profile: Any = None
        self._has_cuda = False
        self._is_over = False

    def returned(self, of: Any, grad: bool) -> None:
        """A batch was returned; `grad` where it is trained on."""
        if grad and (self._pass is None or not self._pass.is_open):
            self._pass = of
        self._trained |= grad and of is self._pass

    def asks(self) -> None:
        """The next batch is about to be asked for: the step on the last one is over."""
        # Without a warm-up the first step is recorded, too.
        is_first = self._profile is None and self._first == 0
        if self._is_over or not (self._trained or is_first):
            return
        try:
            if self._profile is None:
                if self._first <= 1:
                    self._start()
                self._first -= 1
            elif self._left:
                self._left -= 1
                self._profile.step()
            else:
                self._stop()
        except Exception as error:
            self._fails(error)
        self._trained = False

    def _start(self) -> None:
        torch: Any = sys.modules["torch"]
        if torch.autograd._profiler_enabled():
            self._is_over = True
            problem(f"the script uses torch.profiler itself, so --with-kineto started none; {_JOIN}")
            return
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        # Asked for, it would begin to use a GPU that the training does not.
        self._has_cuda = torch.cuda.is_initialized()
        if self._has_cuda:
            activities.append(ProfilerActivity.CUDA)
            # The first step is left out on a GPU.
            self._left += 1
        # With a schedule, which says nothing else, it marks the steps.
        self._profile = profile(activities=activities, schedule=lambda _: ProfilerAction.RECORD)
        _Seen.ours = True
        try:
            self._profile.start()
        finally:
            _Seen.ours = False

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        self._is_over = True
        # Stopping waits for the GPU, which may hang.
        if self._has_cuda and not _device.drain():
            problem("torch.profiler could not be stopped: the GPU has not finished its work")
            return
        profile.stop()
        path = os.path.join(self._folder, _TRACE)
        profile.export_chrome_trace(path)
        _say(path)

    def _fails(self, error: Exception) -> None:
        problem(f"torch.profiler failed, so --with-kineto has no trace: {type(error).__name__}: {error}")
        profile, self._profile = self._profile, None
        self._is_over = True
        try:
            if profile is not None:
                profile.stop()
        except Exception:
            # It has said already what is wrong.
            pass

    def yields(self) -> None:
        """The script starts one of its own: there can be one at a time."""
        if self._is_over:
            return
        problem(f"the script uses torch.profiler itself, so that of --with-kineto ended; {_JOIN}")
        self._is_over = True
        if self._profile is not None:
            self._end()

    def _end(self) -> None:
        try:
            self._stop()
        except Exception as error:
            self._fails(error)

    def finish(self) -> None:
        """The training is over."""
        if self._profile is not None:
            self._end()
        elif not self._is_over:
            problem("the training ended before --with-kineto could record a step")


def begin(folder: str) -> None:
    """This process begins to record."""
    options = STATE.options
    if options is not None and options.with_kineto is not None:
        STATE.profiler = Profiler(options.warmup_steps, options.with_kineto, folder)
        _device.leave_cupti()
    if _Seen.script:
        _say(None)


def forget() -> None:
    """Nothing is recorded any more; a profiler of the script that is on records what follows, too."""
    try:
        torch: Any = sys.modules["torch"]
        _Seen.script = bool(torch.autograd._profiler_enabled())
    except Exception:
        _Seen.script = False


def _say(trace: Optional[str]) -> None:
    _native.text("profiler", 0, json.dumps({"trace": trace, "of_script": trace is None}))


def _profiles(original: Callable[..., Any]) -> Callable[..., Any]:
    def profiler_starts(*args: Any, **kwargs: Any) -> Any:
        try:
            if not _Seen.ours:
                if STATE.profiler is not None:
                    STATE.profiler.yields()
                if not _Seen.script and _native.is_active():
                    _say(None)
                _Seen.script = True
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
