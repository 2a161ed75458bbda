"""What the user asked for, and how it reaches processes that are started later."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from typing import Optional, Union

#: Has the options, as JSON, in processes that the script starts.
VARIABLE = "STALLSCOPE_TORCH"


@dataclasses.dataclass
class Options:
    """As the command line has them."""

    run_dir: str
    steps: Optional[int] = None
    warmup_steps: int = 3
    json: bool = False
    live: bool = False
    #: The process that the command started; others write into folders within its own.
    first: int = 0
    quiet: bool = False
    verbose: bool = False
    #: When to print in colour: auto, always or never.
    color: str = "auto"
    #: Training steps for torch's profiler; None for no profiler.
    with_kineto: Optional[int] = None

    @classmethod
    def of(
        cls,
        run_dir: Union[str, "os.PathLike[str]", None],
        steps: Optional[int],
        warmup_steps: int,
        as_json: bool,
        script: str = "",
        live: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        color: str = "auto",
        with_kineto: Optional[int] = None,
    ) -> "Options":
        """Those of this process, which is the first."""
        script = script or sys.argv[0] or "python"
        folder = os.fspath(run_dir) if run_dir is not None else default_run_dir(script)
        run_dir = os.path.abspath(folder)
        return cls(run_dir, steps, warmup_steps, as_json, live, os.getpid(), quiet, verbose, color, with_kineto)

    def to_environment(self) -> None:
        """Have processes that are started from now on be profiled, too."""
        os.environ[VARIABLE] = json.dumps(dataclasses.asdict(self))


def from_environment() -> Optional[Options]:
    """What the process that started this one was asked for."""
    try:
        return Options(**json.loads(os.environ[VARIABLE]))
    except (KeyError, ValueError, TypeError):
        return None


def started(process: int) -> float:
    """When a process was started, in whole seconds since 1970: to whoever asks it is the same."""
    with open(f"/proc/{process}/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/stat") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    return booted + ticks // os.sysconf("SC_CLK_TCK")


def default_run_dir(script: str) -> str:
    """``traces/SCRIPT-TIMESTAMP``; for the ranks of a launcher it is the same one."""
    is_rank = "LOCAL_RANK" in os.environ
    begun = time.time()
    if is_rank:
        with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
            begun = started(os.getppid())
    name = os.path.splitext(os.path.basename(script))[0] or "python"
    stem = os.path.join("traces", f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(begun))}")
    if is_rank:
        return stem
    numbered = (f"{stem}-{number}" for number in range(2, 100))
    return next((path for path in (stem, *numbered) if not os.path.exists(path)), stem)


def rank() -> Optional[int]:
    """This process's rank, where it is one of several."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return int(os.environ["RANK"])
    except Exception:
        pass
    return None


def world_size() -> int:
    """How many ranks there are."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return int(distributed.get_world_size())
        return int(os.environ.get("WORLD_SIZE", "1"))
    except Exception:
        return 1


def speaks(options: Options) -> bool:
    """Whether this process is the one that says how the training stands."""
    number = rank()
    return number == 0 if number is not None else options.first == os.getpid()


def folder_of(options: Options) -> str:
    """Where this process's report goes: never one that another process writes into."""
    number = rank()
    if number is not None:
        return os.path.join(options.run_dir, f"rank-{number}")
    if options.first == os.getpid():
        return options.run_dir
    for place in range(1000):
        folder = os.path.join(options.run_dir, f"process-{place}")
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            continue
    return os.path.join(options.run_dir, f"process-{os.getpid()}")
