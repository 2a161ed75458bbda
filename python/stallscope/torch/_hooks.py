"""Installs all hooks: on modules that are imported, and on others when they are."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional

from stallscope.torch import _parts, _profiler, _state
from stallscope.torch._options import Options, from_environment
from stallscope.torch._place import failed

_WANTED: Dict[str, List[Callable[[Any], None]]] = {}
#: Has a `sitecustomize` that brings the hooks to interpreters that the script starts.
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")


def install(options: Options) -> None:
    """Have this process, and those that it starts, be profiled."""
    place(options)
    options.to_environment()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _SITE not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([_SITE, *filter(None, paths)])


def install_as_child() -> None:
    """The same in an interpreter that a profiled process has started."""
    options = from_environment()
    if options is not None and os.getpid() != options.first:
        place(options)


def place(options: Options) -> None:
    """Put all hooks in their places, now or when their modules are imported."""
    _state.STATE.options = options
    _state.watch()
    when_imported("torch.utils.data.dataloader", _place_loader)
    when_imported("torch.autograd.profiler", _profiler.place)
    _place_parts()


def place_in_worker(fetch: Any) -> None:
    """In a worker that is no fork: only what a worker needs."""
    when_imported("torch.utils.data.dataloader", fetch.place)
    _place_parts()


def _place_parts() -> None:
    for module, action in _parts.PLACES.items():
        when_imported(module, action)
    _parts.place_open()


def _place_loader(dataloader: Any) -> None:
    from stallscope.torch import _fetch, _main, _pin, _worker

    _main.place(dataloader)
    _fetch.place(dataloader)
    _worker.place(dataloader._utils.worker)
    _pin.place(dataloader._utils.pin_memory)


def when_imported(name: str, action: Callable[[Any], None]) -> None:
    """Do `action` with the module `name`: at once where it is imported, else when it is."""
    module = sys.modules.get(name)
    being_imported = getattr(getattr(module, "__spec__", None), "_initializing", False)
    if module is not None and not being_imported:
        _act(action, module)
        return
    actions = _WANTED.setdefault(name, [])
    if action not in actions:
        actions.append(action)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _act(action: Callable[[Any], None], module: Any) -> None:
    try:
        action(module)
    except Exception as error:
        failed(f"what {getattr(module, '__name__', module)} does", error)


class _Finder:
    """Finds nothing by itself: it has modules that others find call the actions once they are imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        if name not in _WANTED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                self._follow(spec, name)
                return spec
        return None

    def _follow(self, spec: Any, name: str) -> None:
        try:
            execute = spec.loader.exec_module
        except AttributeError:
            return

        def exec_module(module: Any) -> None:
            execute(module)
            for action in _WANTED.pop(name, ()):
                _act(action, module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            # Built into the interpreter: it is there for good.
            pass
