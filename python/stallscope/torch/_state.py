"""What this process records as: nothing, a process that iterates DataLoaders, or a worker of one."""

from __future__ import annotations

import atexit
import json
import os
import platform
import sys
import threading
from typing import Any, List, Optional

from stallscope import _native, _stage
from stallscope.torch import _collector
from stallscope.torch._options import Options, rank, world_size


class State:
    """One for each process."""

    def __init__(self) -> None:
        #: What the user asked for; None where this process does not profile.
        self.options: Optional[Options] = None
        self.is_worker = False
        #: Iterators made so far.
        self.iterators = 0
        #: The pass whose workers are being started.
        self.starting: Any = None
        #: When `iter()` was called, while it runs.
        self.iter_called = 0
        #: The thread that iterates, and how deep it is in the loader or in what else is counted already.
        self.thread = 0
        self.within = 0
        #: What tells when the training's GPU works, where that is for Python to do.
        self.device: Any = None
        #: Torch's profiler, where it is to record some steps.
        self.profiler: Any = None
        self.problems: List[str] = []
        self.collector: Optional[_collector.Collector] = None
        #: It has been tried to begin recording.
        self.begun = False


STATE = State()


def problem(text: str) -> None:
    """Say that something cannot be measured; once."""
    if text not in STATE.problems:
        STATE.problems.append(text)
        if _native.is_active():
            _native.text("problem", 0, text)


def start() -> bool:
    """Begin to record; false where this process cannot."""
    started = _native.start()
    _stage.record(started)
    return started


def records() -> bool:
    """Whether this process, which is about to iterate a DataLoader, records; the first time it begins to."""
    if STATE.begun or STATE.is_worker or STATE.options is None:
        return not STATE.is_worker and _native.is_active()
    STATE.begun = True
    STATE.thread = threading.get_ident()
    try:
        fd = _native.create_rings()
        STATE.collector = _collector.Collector(fd, STATE.options)
        if start():
            from stallscope.torch import _compute, _device, _profiler

            _compute.place()
            _device.look()
            _native.text("session", 0, json.dumps(session()))
            for text in STATE.problems:
                _native.text("problem", 0, text)
            _profiler.begin(STATE.collector.folder)
    except Exception as error:
        sys.stderr.write(f"warning: stallscope cannot record this process: {error}\n")
        _native.stop()
        _stage.record(False)
    return _native.is_active()


def session() -> dict[str, Any]:
    """What the report says of the training."""
    torch = sys.modules.get("torch")
    return {
        "torch": str(getattr(torch, "__version__", "")),
        "python": platform.python_version(),
        "command": sys.argv,
        "pid": os.getpid(),
        "rank": rank(),
        "world_size": world_size(),
        "threads": torch.get_num_threads() if torch is not None else 0,
        "missing": list(STATE.problems),
    }


def failed(error: BaseException) -> None:
    """Say that the script ends with `error`."""
    if _native.is_active():
        _native.text("failed", 0, f"{type(error).__name__}: {error}"[:2000])


def finish() -> None:
    """Have the report written and the verdict printed; nothing is recorded afterwards."""
    collector, STATE.collector = STATE.collector, None
    profiler, STATE.profiler = STATE.profiler, None
    STATE.options = None
    STATE.begun = False
    if collector is not None:
        from stallscope.torch import _device, _profiler

        if profiler is not None:
            profiler.finish()
        _profiler.forget()
        _device.finish()
        _native.finish()
        _stage.record(False)
        collector.wait()


def _forked() -> None:
    """In a child: the rings are the parent's, until a worker's loop says that they are its own, too."""
    _native.forked()
    _stage.record(False)
    STATE.collector = None
    STATE.begun = False
    STATE.device = None
    STATE.profiler = None
    STATE.within = 0
    if STATE.options is not None:
        STATE.thread = threading.get_ident()


def watch() -> None:
    """Finish at the process's end, and know of forks; once."""
    if not getattr(watch, "done", False):
        watch.done = True  # type: ignore[attr-defined]
        atexit.register(finish)
        os.register_at_fork(after_in_child=_forked)
