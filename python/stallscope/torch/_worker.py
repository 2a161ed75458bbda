"""Hooks in a worker of a DataLoader: waiting for indices, handing over, and the thread that sends."""

from __future__ import annotations

import functools
import inspect
import os
import time
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from stallscope import _native
from stallscope.torch import _compute
from stallscope.torch._place import _MARK, failed, original_of
from stallscope.torch._state import STATE, problem, start

_now = _native.now
#: Longer a worker that ends does not wait for its last batch to be recorded, in seconds.
_PATIENCE = 0.05


class WorkerLoop:
    """Stands for torch's `_worker_loop` as the workers' target, under fork and spawn alike."""

    def __init__(self, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        setattr(self, _MARK, original)
        self.names = tuple(inspect.signature(original).parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        original = original_of(self)
        worker: Optional[_Worker] = None
        current = STATE.starting
        if STATE.options is not None and current is not None and _native.rings_fd() is not None:
            try:
                worker = _Worker(current.key, {**dict(zip(self.names, args)), **kwargs})
            except Exception as error:
                failed("a worker", error)
        try:
            return original(*args, **kwargs)
        finally:
            if worker is not None:
                worker.ends()

    def __reduce__(self) -> Any:
        current = STATE.starting
        path = f"/proc/{os.getpid()}/fd/{_native.rings_fd()}"
        return _in_another_interpreter, (current and current.key, path)


class _Starting:
    """What a worker that is no fork knows of its pass."""

    def __init__(self, key: Tuple[int, int]) -> None:
        self.key = key


def _in_another_interpreter(key: Optional[Tuple[int, int]], path: str) -> Any:
    """The loop in a process that is no fork of the one that iterates."""
    from torch.utils.data._utils import worker

    loop = worker._worker_loop
    if key is None:
        return original_of(loop)
    try:
        from stallscope.torch import _fetch, _hooks, _options

        _native.open_rings(path)
        STATE.options = STATE.options or _options.Options("")
        STATE.starting = _Starting(key)
        _hooks.place_in_worker(_fetch)
    except Exception as error:
        problem(f"a worker records nothing: {error}")
        return original_of(loop)
    return loop if isinstance(loop, WorkerLoop) else WorkerLoop(loop)


class _Worker:
    """One worker's hooks."""

    def __init__(self, key: Tuple[int, int], arguments: Dict[str, Any]) -> None:
        self.begun = _now()
        STATE.is_worker = True
        _compute.in_worker()
        STATE.collector = None
        self.key = key
        self.since = 0
        self.feeder = _Feeder(self)
        if not start():
            return
        self.number = int(arguments["worker_id"])
        self.iterable = arguments.get("dataset_kind") == 1
        self._watch_indices(arguments["index_queue"])
        self._watch_data(arguments["data_queue"])

    def _watch_indices(self, queue: Any) -> None:
        get = queue.get

        def timed_get(*args: Any, **kwargs: Any) -> Any:
            if not self.since:
                self.since = _now()
                _native.worker_begins(self.key, self.number, (self.begun, self.since))
            got = get(*args, **kwargs)
            until = _now()
            if isinstance(got, tuple):
                number, index = got
                several = isinstance(index, (list, tuple))
                samples = 0 if self.iterable else len(index) if several else 1
                _native.begin_batch(*self.key, number, self.number, samples, self.since, until)
            elif got is not None:
                # Persistent workers begin another epoch.
                self.key = (self.key[0], self.key[1] + 1)
                self.since = until
            return got

        queue.get = timed_get

    def _watch_data(self, queue: Any) -> None:
        put = queue.put

        def timed_put(item: Any, *args: Any, **kwargs: Any) -> Any:
            result = put(item, *args, **kwargs)
            if isinstance(item[0], int):
                ended = type(item[1]).__name__ == "_IterableDatasetStopIteration"
                self.since = _native.end_batch(ended)
            return result

        queue.put = timed_put
        try:
            self.feeder.watch(queue)
        except (AttributeError, KeyError) as error:
            failed("the transport of batches", error)

    def ends(self) -> None:
        """The loop has ended."""
        # The main process may have all batches while the thread that sent the last one has not recorded it.
        until = time.monotonic() + _PATIENCE
        while self.feeder.is_sending and time.monotonic() < until:
            time.sleep(0.0005)
        if self.since:
            _native.worker_ends(self.key, self.number, _now())


class _Feeder:
    """The thread that pickles batches and sends them, after `put` has returned."""

    def __init__(self, worker: _Worker) -> None:
        self.worker = worker
        self.number: Optional[int] = None
        self.is_sending = False
        self.taken = self.pickled = self.shared = 0
        self.used = (0, 0)

    def watch(self, queue: Any) -> None:
        """The thread takes these three when it starts, at the first `put`."""
        lock, send = queue._wlock, queue._send_bytes
        queue._buffer = _Buffer(self)
        queue._wlock = _Lock(lock, self)
        feeder = self

        def timed_send(data: Any, *args: Any, **kwargs: Any) -> Any:
            feeder.is_sending = True
            result = send(data, *args, **kwargs)
            feeder.sent(len(data))
            feeder.is_sending = False
            return result

        queue._send_bytes = timed_send
        self._watch_storages()

    def _watch_storages(self) -> None:
        """Count bytes of tensors that need not be moved to shared memory any more."""
        import torch

        reduce = getattr(ForkingPickler, "_extra_reducers")[torch.UntypedStorage]

        def counted(storage: Any) -> Any:
            if storage.is_shared():
                self.shared += storage.nbytes()
            return reduce(storage)

        ForkingPickler.register(torch.UntypedStorage, counted)

    def takes(self, item: Any) -> None:
        """A batch is taken out of the buffer, to be pickled."""
        known = isinstance(item, tuple) and isinstance(item[0], int)
        self.number = item[0] if known else None
        self.used, self.taken, self.shared = _native.used(), _now(), 0

    def sent(self, length: int) -> None:
        """All of it is in the pipe."""
        if self.number is not None:
            sent, worker = _now(), self.worker
            pickle = (self.taken, self.pickled)
            said = (pickle, sent, (length, self.shared), self.used)
            _native.transport(worker.key, self.number, worker.number, *said)


class _Buffer(Deque[Any]):
    def __init__(self, feeder: _Feeder) -> None:
        super().__init__()
        self._feeder = feeder

    def popleft(self) -> Any:
        item = super().popleft()
        self._feeder.takes(item)
        return item


class _Lock:
    """The lock that is taken when a batch is pickled, and before it is sent."""

    def __init__(self, lock: Any, feeder: _Feeder) -> None:
        self._lock = lock
        self._feeder = feeder
        self.release = lock.release

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        self._feeder.pickled = _now()
        return self._lock.acquire(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def place(module: Any) -> None:
    """Have workers that are started from now on record."""
    loop = getattr(module, "_worker_loop", None)
    if loop is None:
        problem("workers cannot be measured: this torch has no _worker_loop")
    elif not isinstance(loop, WorkerLoop):
        module._worker_loop = WorkerLoop(loop)
