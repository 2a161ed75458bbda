"""Hooks on the iterators of DataLoaders, in the process that iterates them."""

from __future__ import annotations

from threading import get_ident
from typing import Any, Callable, Dict, Optional, Tuple

from stallscope import _native
from stallscope.torch._place import failed, put
from stallscope.torch._state import STATE, records

_now = _native.now
_NAME = "_stallscope_pass"


class Pass:
    """An iterator's current iteration. It must not know its iterator, whose end is the end of the workers."""

    def __init__(self, iterator: int, inline: bool) -> None:
        self.key: Tuple[int, int] = (iterator, 0)
        self.inline = inline
        self.is_open = False
        self.returned = 0
        #: Of the batch that was drawn last: when it was drawn, in how much CPU time, and its samples.
        self.sampler = (0, 0)
        self.sampler_cpu = 0
        self.drawn = 0
        #: Samples of batches that are out.
        self.samples: Dict[int, int] = {}
        self.received = 0
        #: When the first bytes of what is being received were there, and how many there are.
        self.first_bytes = 0
        self.bytes = 0
        self.workers = 0

    def begin(self) -> None:
        """A pass over the data begins."""
        import torch

        self.returned, self.is_open = 0, True
        self.samples.clear()
        _native.pass_begins(self.key, torch.is_grad_enabled(), STATE.iter_called or _now())

    def end(self, early: bool) -> None:
        """It is over."""
        if self.is_open:
            self.is_open = False
            _native.pass_ends(self.key, early, _now())


def pass_of(iterator: Any) -> Optional[Pass]:
    """What is recorded of an iterator, if it is."""
    found = iterator.__dict__.get(_NAME)
    return found if isinstance(found, Pass) and _native.is_active() else None


def _iter(original: Callable[..., Any]) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:
        if not records():
            return original(self)
        called, before = _now(), STATE.iter_called
        STATE.iter_called = called
        STATE.within += 1
        try:
            iterator = original(self)
        finally:
            STATE.within -= 1
            STATE.iter_called = before
        current = getattr(iterator, "__dict__", {}).get(_NAME)
        if current is not None:
            _native.main_work("iter", current.key, 0, (called, _now()))
        return iterator

    return __iter__


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if records():
            try:
                from stallscope.torch import _describe

                loader = args[0] if args else kwargs["loader"]
                current = Pass(STATE.iterators, not loader.num_workers)
                STATE.iterators += 1
                STATE.starting = current
                setattr(self, _NAME, current)
                current.begin()
                _native.text("loader", current.key[0], _describe.loader(loader))
            except Exception as error:
                failed("an iterator of a DataLoader", error)

    return __init__


def _reset(original: Callable[..., Any]) -> Callable[..., Any]:
    def _reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        current = pass_of(self)
        if current is not None:
            first = kwargs.get("first_iter", args[1] if len(args) > 1 else False)
            try:
                if first:
                    _watch_queue(self, current)
                else:
                    current.end(early=True)
                    current.key = (current.key[0], current.key[1] + 1)
                    current.begin()
            except Exception as error:
                failed("the start of an epoch", error)
        return original(self, *args, **kwargs)

    return _reset


def _watch_queue(iterator: Any, current: Pass) -> None:
    """See when the first bytes of a batch are there, and how many."""
    if iterator._pin_memory:
        return
    queue = iterator._worker_result_queue
    poll, receive = queue._poll, queue._recv_bytes

    def timed_poll(*args: Any) -> Any:
        ready = poll(*args)
        current.first_bytes = _now()
        return ready

    def counted_receive(*args: Any) -> Any:
        received = receive(*args)
        current.bytes = len(received)
        return received

    queue._poll, queue._recv_bytes = timed_poll, counted_receive


def _next_index(original: Callable[..., Any]) -> Callable[..., Any]:
    def _next_index(self: Any) -> Any:
        current = pass_of(self)
        if current is None:
            return original(self)
        begun, cpu = _now(), _native.thread_cpu()
        index = original(self)
        ended = _now()
        current.sampler, current.sampler_cpu = (begun, ended), _native.thread_cpu() - cpu
        try:
            # An iterable data set has no indices.
            several = isinstance(index, (list, tuple))
            current.drawn = 0 if self._dataset_kind == 1 else len(index) if several else 1
            if current.inline:
                number, key = current.returned, current.key
                _native.dispatch(key, number, 0, current.drawn, current.sampler, current.sampler_cpu, ended)
                _native.begin_batch(*key, number, 0, current.drawn, ended, ended)
        except Exception as error:
            failed("the sampler", error)
        return index

    return _next_index


def _inline(original: Callable[..., Any]) -> Callable[..., Any]:
    def _next_data(self: Any) -> Any:
        if pass_of(self) is None:
            return original(self)
        ended = False
        try:
            return original(self)
        except StopIteration:
            ended = True
            raise
        finally:
            _native.end_batch(ended)

    return _next_data


def _try_put_index(original: Callable[..., Any]) -> Callable[..., Any]:
    def _try_put_index(self: Any) -> Any:
        current = pass_of(self)
        if current is None:
            return original(self)
        number = self._send_idx
        result = original(self)
        try:
            if self._send_idx != number:
                worker, drawn = self._task_info[number][0], current.drawn
                current.samples[number] = drawn
                sampler, cpu = current.sampler, current.sampler_cpu
                _native.dispatch(current.key, number, worker, drawn, sampler, cpu, _now())
        except Exception as error:
            failed("dealing batches to workers", error)
        return result

    return _try_put_index


def _get_data(original: Callable[..., Any]) -> Callable[..., Any]:
    def _get_data(self: Any) -> Any:
        current = pass_of(self)
        if current is None:
            return original(self)
        since, current.first_bytes, current.bytes = _now(), 0, 0
        result = original(self)
        until = _now()
        try:
            number = result[0]
            if isinstance(number, int):
                worker = self._task_info[number][0]
                parked = getattr(self, "_in_order", True) and number != self._rcvd_idx
                work = (current.first_bytes or until, until)
                _native.receive(current.key, number, worker, parked, since, work, current.bytes)
                current.received = number
        except Exception as error:
            failed("receiving batches", error)
        return result

    return _get_data


def _next(original: Callable[..., Any]) -> Callable[..., Any]:
    def __next__(self: Any) -> Any:
        current = pass_of(self)
        if current is None:
            return original(self)
        if STATE.thread == get_ident():
            if STATE.device is not None:
                STATE.device.step_ends()
            if STATE.profiler is not None:
                STATE.profiler.asks()
        STATE.within += 1
        _native.next_begins(current.key)
        try:
            data = original(self)
            ended = _now()
        except BaseException as error:
            _native.next_ends(current.key, current.returned, False, False, 0, _now())
            if isinstance(error, StopIteration):
                current.end(early=False)
            raise
        finally:
            STATE.within -= 1
        _returned(self, current, ended)
        return data

    return __next__


def _returned(iterator: Any, current: Pass, at: int) -> None:
    try:
        import torch

        number = current.returned
        if not current.inline:
            in_order = getattr(iterator, "_in_order", True)
            number = iterator._rcvd_idx - 1 if in_order else current.received
        samples = current.samples.pop(number, current.drawn if current.inline else 0)
        current.returned += 1
        grad = torch.is_grad_enabled()
        _native.next_ends(current.key, number, True, grad, samples, at)
        if STATE.profiler is not None and STATE.thread == get_ident():
            STATE.profiler.returned(current, grad)
    except Exception as error:
        failed("the steps of the training", error)


def _shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    def _shutdown_workers(self: Any) -> Any:
        # Torch also stops workers after the interpreter has cleared its modules.
        current = pass_of(self) if _native is not None else None
        if current is None or getattr(self, "_shutdown", True):
            return original(self)
        begun, used = _now(), _native.used()
        try:
            return original(self)
        finally:
            try:
                when = (begun, _now())
                _native.main_work("stop_workers", current.key, current.workers, when, used)
                if self._rcvd_idx < self._send_idx:
                    current.end(early=True)
            except Exception as error:
                failed("stopping workers", error)

    return _shutdown_workers


def _start(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Any) -> Any:
        from stallscope.torch._worker import WorkerLoop

        current = STATE.starting
        if current is None or not isinstance(getattr(self, "_target", None), WorkerLoop):
            return original(self)
        begun, used = _now(), _native.used()
        result = original(self)
        _native.main_work("start_workers", current.key, current.workers, (begun, _now()), used)
        current.workers += 1
        return result

    return start


def place(dataloader: Any) -> None:
    """Put all of them in place."""
    import multiprocessing.process

    base = dataloader._BaseDataLoaderIter
    inline = dataloader._SingleProcessDataLoaderIter
    several = dataloader._MultiProcessingDataLoaderIter
    put(dataloader.DataLoader, "__iter__", _iter, "the start of iterations")
    put(base, "__init__", _made, "all of the loading")
    put(base, "__next__", _next, "the waiting for batches")
    put(base, "_reset", _reset, "epochs with persistent workers")
    put(base, "_next_index", _next_index, "the sampler")
    put(inline, "_next_data", _inline, "loading without workers")
    put(several, "_try_put_index", _try_put_index, "dealing batches to workers")
    put(several, "_get_data", _get_data, "receiving batches")
    put(several, "_shutdown_workers", _shutdown, "stopping workers")
    put(multiprocessing.process.BaseProcess, "start", _start, "starting workers")
