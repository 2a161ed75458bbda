"""The console script ``stallscope``: the program's whole command line, in this process."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from stallscope import _native


def main() -> NoReturn:
    """Do what ``sys.argv`` says, and exit with its status."""
    if sys.argv[1:2] == ["torch"] or (sys.argv[1:2] == ["--color"] and sys.argv[3:4] == ["torch"]):
        from stallscope.torch._launch import launch

        launch(["stallscope", *sys.argv[1:]])
        sys.exit(0)
    # As for any program: what Python does with Ctrl-C waits for bytecode, of which none runs here.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.main(["stallscope", *sys.argv[1:]], [sys.executable, "-m", "stallscope"]))
