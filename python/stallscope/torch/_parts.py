"""Names the parts of a sample: transforms by their class, reading, decoding, locks."""

from __future__ import annotations

import builtins
import io
import os
import types
import weakref
from typing import Any, Callable, Dict, List

from stallscope import _native
from stallscope.torch._place import original_of, put


def _time(owner: Any, **parts: str) -> None:
    """Take the time of the functions `parts` of a module or class as parts of these names."""
    for name, part in parts.items():
        there = owner.__dict__.get(name)
        if callable(there) and not isinstance(there, (_native.Timed, type)):
            setattr(owner, name, _native.timed(there, part))


def _called(transform: Any) -> Any:
    """What to call for `transform`: for a module its call without our hook, for all else itself."""
    from torch.nn import Module

    if type(transform).__call__ is Module.__call__:
        return types.MethodType(original_of(Module.__call__), transform)
    return transform


class _Stand:
    """Stands for a Compose, with transforms that are timed."""

    def __init__(self, compose: Any) -> None:
        key = id(compose)
        # Afterwards the number may be another's.
        self._compose = weakref.ref(compose, lambda _: _STANDS.pop(key, None))
        self.known: List[Any] = list(compose.transforms)
        names: Dict[str, int] = {}
        self.transforms = []
        for transform in self.known:
            name = getattr(transform, "__name__", None) or type(transform).__name__
            name = "function" if name == "<lambda>" else name
            names[name] = names.get(name, 0) + 1
            number = f"-{names[name]}" if names[name] > 1 else ""
            self.transforms.append(_native.timed(_called(transform), _native.part_name(name) + number))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compose(), name)


#: Of the Compose with that `id()`.
_STANDS: Dict[int, _Stand] = {}


def _compose(original: Callable[..., Any]) -> Callable[..., Any]:
    def composed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _native.collects():
            return original(self, *args, **kwargs)
        try:
            stand = _STANDS.get(id(self))
            if stand is None or stand.known != self.transforms:
                stand = _STANDS[id(self)] = _Stand(self)
        except Exception:
            return original(self, *args, **kwargs)
        return original(stand, *args, **kwargs)

    return composed


def _decoders(image: Any) -> None:
    names = [name for name in vars(image) if name.startswith("decode_")]
    _time(image, read_file="read", **{name: "decode" for name in names})


def _decoders_again(package: Any) -> None:
    """The package's own names for what its module `image` has."""
    for name, there in list(vars(package).items()):
        timed = getattr(package.image, name, None)
        if isinstance(timed, _native.Timed) and timed.__wrapped__ is there:
            setattr(package, name, timed)


def _semaphores(module: Any) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def _make_methods(self: Any) -> None:
            original(self)
            self.acquire = _native.timed(self.acquire, "lock")

        return _make_methods

    put(module.SemLock, "_make_methods", make, "waiting for locks")
    _time(module.SemLock, __enter__="lock")


def _pictures(module: Any) -> None:
    _time(module, open="open-image")
    _time(module.Image, convert="convert")


#: What is done with which module once it is imported.
PLACES: Dict[str, Callable[[Any], None]] = {
    "torchvision.transforms.transforms": lambda module: put(module.Compose, "__call__", _compose, "transforms"),
    "torchvision.transforms.v2._container": lambda module: put(module.Compose, "forward", _compose, "transforms"),
    "torchvision.io.image": _decoders,
    "torchvision.io": _decoders_again,
    "PIL.Image": _pictures,
    # Pictures are decoded when they are first looked at.
    "PIL.ImageFile": lambda module: _time(module.ImageFile, load="decode"),
    "cv2": lambda module: _time(module, imread="decode", imdecode="decode"),
    "numpy": lambda module: _time(module, load="load-array"),
    "fcntl": lambda module: _time(module, flock="lock", lockf="lock"),
    "multiprocessing.synchronize": _semaphores,
}


class _Raw(io.FileIO):
    """A file whose reads are timed; what reads from a buffer does not come here."""

    readinto = _native.timed(io.FileIO.readinto, "read")
    readall = _native.timed(io.FileIO.readall, "read")


_open_raw = _native.timed(_Raw, "read")
_collects = _native.collects
_BufferedReader = io.BufferedReader
_DEFAULT = io.DEFAULT_BUFFER_SIZE


def _text(buffered: io.BufferedReader, mode: str, encoding: Any, errors: Any, newline: Any) -> Any:
    try:
        text = io.TextIOWrapper(buffered, encoding, errors, newline)
        setattr(text, "mode", mode)
        return text
    except BaseException:
        buffered.close()
        raise


def place_open() -> None:
    """Take the time of files that are read while a sample is made."""
    original = builtins.open
    if getattr(original, "_stallscope_original", None) is not None:
        return

    def open(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        # It is called for each sample: no more is done than must be.
        if buffering == -1 and opener is None and _collects():
            is_binary = mode == "rb" and encoding is None and errors is None and newline is None
            if is_binary or mode in ("r", "rt"):
                raw = _open_raw(file if isinstance(file, (str, int)) else os.fspath(file), "r", closefd)
                buffered = _BufferedReader(raw, getattr(raw, "_blksize", _DEFAULT))
                return buffered if is_binary else _text(buffered, mode, encoding, errors, newline)
        return original(file, mode, buffering, encoding, errors, newline, closefd, opener)

    open.__doc__ = original.__doc__
    open.__qualname__ = "open"
    # Where pickle finds it.
    open.__module__ = "io"
    open._stallscope_original = original  # type: ignore[attr-defined]
    builtins.open = io.open = open
