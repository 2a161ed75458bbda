"""Hooks on what computes: modules, gradients, optimizers, copies to the device."""

from __future__ import annotations

import importlib
import threading
import types
from typing import Any, Callable, List

from stallscope import _native
from stallscope.torch._place import put
from stallscope.torch._state import STATE, problem

_now = _native.now
#: Whether this process is a worker, where nothing that computes counts; a global, since torch's compiler reads it.
#: The hooks stay: to change a class is to write to all its subclasses, and a fork pays for each page that it writes to.
_is_worker = False


def in_worker() -> None:
    """From now on the hooks only pass calls on, as fast as they can: samples may call modules."""
    global _is_worker
    _is_worker = True
    STATE.within = 1


def counts() -> bool:
    """Whether this is the training's thread, and not within what is counted already."""
    return not STATE.within and _native.is_active() and threading.get_ident() == STATE.thread


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Compilers see no more than this and the call.
        if _is_worker or is_compiling() or STATE.within or not counts():
            return original(self, *args, **kwargs)
        if STATE.device is not None:
            STATE.device.begins(self.parameters(), is_grad_enabled())
        begun = _now()
        STATE.within += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            STATE.within -= 1
            _native.compute("forward" if is_grad_enabled() else "inference", (begun, _now()))
            if STATE.device is not None:
                STATE.device.computed()

    return __call__


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        if not counts():
            return original(*args, **kwargs)
        if STATE.device is not None:
            tensors = args[0] if args else kwargs.get("tensors", ())
            STATE.device.begins(tensors if isinstance(tensors, (list, tuple)) else (tensors,))
        begun = _now()
        STATE.within += 1
        try:
            return original(*args, **kwargs)
        finally:
            STATE.within -= 1
            _native.compute("backward", (begun, _now()))
            if STATE.device is not None:
                STATE.device.computed()

    return backward


_STEPS: List[int] = []


def _step_begins(optimizer: Any, *_: Any) -> None:
    counted = counts()
    if counted and STATE.device is not None:
        STATE.device.begins(tensor for group in optimizer.param_groups for tensor in group["params"])
    _STEPS[:] = [_now()] if counted else []


def _step_ends(*_: Any) -> None:
    if _STEPS and counts():
        _native.compute("optimizer", (_STEPS.pop(), _now()))
        if STATE.device is not None:
            STATE.device.computed()


class _Copy:
    """Stands for a method of tensors; it is that method to whatever compares it, as `__torch_function__` does."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_worker or not counts():
            return self._original(*args, **kwargs)
        begun = _now()
        try:
            return self._original(*args, **kwargs)
        finally:
            _native.main_work("copy", (0, 0), 0, (begun, _now()))

    def __eq__(self, other: Any) -> bool:
        return bool(self._original == getattr(other, "_original", other))

    def __hash__(self) -> int:
        return hash(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def place() -> None:
    """Put all of them in place; torch is imported."""
    import torch

    put(torch.nn.Module, "__call__", _call, "forward passes")
    put(torch.autograd, "backward", _backward, "backward passes")
    try:
        if not getattr(place, "done", False):
            place.done = True  # type: ignore[attr-defined]
            # Newer versions have it as no attribute of `torch.optim`.
            optimizer = importlib.import_module("torch.optim.optimizer")
            optimizer.register_optimizer_step_pre_hook(_step_begins)
            optimizer.register_optimizer_step_post_hook(_step_ends)
            for name in ("to", "cuda"):
                setattr(torch.Tensor, name, _Copy(getattr(torch.Tensor, name)))
    except Exception as error:
        problem(f"optimizer steps and copies cannot be measured: {error}")
