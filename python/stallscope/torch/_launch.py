"""``stallscope torch``: runs a script in this process, as Python itself would, with the hooks in place."""

from __future__ import annotations

import builtins
import json
import os
import runpy
import signal
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any, List

from stallscope import _native
from stallscope.torch import _hooks, _state
from stallscope.torch._options import Options, from_environment

#: Files whose frames are ours, and not the script's.
_OURS = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "<frozen runpy>", runpy.__file__)


def launch(argv: List[str]) -> None:
    """Run what `argv`, the words of the command line, says; the script's end is this process's."""
    asked = json.loads(_native.torch_arguments(argv))
    script, arguments = asked["script"][0], asked["script"][1:]
    options = Options.of(
        asked["run_dir"],
        asked["steps"],
        asked["warmup_steps"],
        asked["json"],
        script,
        live=asked["live"],
        quiet=asked["quiet"],
        verbose=asked["verbose"],
        color=asked["color"],
        with_kineto=asked["with_kineto"],
    )
    outer = from_environment()
    if outer is not None and asked["run_dir"] is None:
        # Under another `stallscope torch`, whose folder has one for this process.
        options = outer
    _hooks.install(options)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.excepthook = _except_hook(sys.excepthook)
    try:
        if asked["module"]:
            _run_module(script, arguments)
        else:
            _run_script(script, arguments)
    except SystemExit as error:
        if error.code not in (None, 0):
            _state.failed(error)
        raise
    except BaseException as error:
        _state.failed(error)
        raise


def _new_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _run_script(script: str, arguments: List[str]) -> None:
    sys.argv = [script, *arguments]
    if os.path.isdir(script):
        runpy.run_path(script, run_name="__main__")
        return
    try:
        with open(script, "rb") as file:
            text = file.read()
    except OSError as error:
        sys.stderr.write(f"error: cannot run {script}: {error.strerror}\n")
        sys.exit(2)
    target = os.path.join(os.path.dirname(script), os.readlink(script)) if os.path.islink(script) else script
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(target))
    main = _new_main()
    path = os.path.abspath(script)
    loader = SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    exec(compile(text, path, "exec", dont_inherit=True), main.__dict__)


def _run_module(name: str, arguments: List[str]) -> None:
    sys.argv = [name, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()
    _new_main()
    run: Any = getattr(runpy, "_run_module_as_main", None)
    if run is not None:
        run(name, alter_argv=True)
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def _except_hook(before: Any) -> Any:
    """Shows tracebacks without the frames that ran the script."""

    def hook(kind: Any, error: BaseException, traceback: Any) -> Any:
        rest = traceback
        while rest is not None and rest.tb_frame.f_code.co_filename.startswith(_OURS):
            rest = rest.tb_next
        shown = rest or traceback
        return before(kind, error.with_traceback(shown), shown)

    return hook
