"""The process beside a training that takes what it records."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import stallscope
from stallscope.torch import _options

#: It runs apart from the script's folder and environment, in which other modules may have our names.
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from stallscope import _native
sys.exit(_native.collect(sys.argv[2], sys.argv[3]))
"""


class Collector:
    """A collector for the rings with the descriptor `fd`."""

    def __init__(self, fd: int, options: _options.Options) -> None:
        self.folder = folder = _options.folder_of(options)
        package = os.path.dirname(os.path.dirname(os.path.abspath(stallscope.__file__)))
        # Of several processes the first speaks for all.
        speaks = _options.speaks(options)
        asked = {
            "run_dir": folder,
            "steps": options.steps,
            "warmup_steps": options.warmup_steps,
            "json": options.json,
            "quiet": options.quiet,
            "verbose": options.verbose,
            "color": options.color,
            "live": options.live and speaks,
            "latest": speaks,
        }
        environment = {name: value for name, value in os.environ.items() if name != _options.VARIABLE}
        arguments = [package, f"/proc/self/fd/{fd}", json.dumps(asked)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
            env=environment,
            # Ctrl-C ends the script, and this one when it has heard the end.
            start_new_session=True,
        )

    def wait(self) -> None:
        """Wait until it has written all; Ctrl-C ends the waiting alone."""
        try:
            sys.stdout.flush()
            self._process.wait()
        except (KeyboardInterrupt, OSError, ValueError):
            pass
