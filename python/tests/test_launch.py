"""`stallscope torch` runs a script as Python does, whatever becomes of it."""

import calendar
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from profiling import profile
from recording import DEADLINE, PRELUDE, Recorded

torch = pytest.importorskip("torch")

SCRIPT = """
import json, os, signal, sys, time
import torch
from torch.utils.data import DataLoader

def show():
    main = sys.modules["__main__"]
    spec = main.__spec__ and main.__spec__.name
    print(json.dumps([sys.argv, __name__, main.__file__, spec, __package__, sys.path[0], sorted(vars(main))]), flush=True)

if __name__ == "__main__":
    show()
    for batch in DataLoader(list(range(8)), num_workers=1):
        pass
    how = sys.argv[1]
    if how == "raise":
        raise ValueError("boo")
    if how == "exit":
        sys.exit(7)
    if how == "message":
        sys.exit("bye")
    if how == "_exit":
        os._exit(9)
    if how in ("SIGINT", "SIGTERM", "SIGKILL"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(20)
"""

LAUNCH = [sys.executable, "-m", "stallscope", "torch"]
# As `python -m stallscope`, with a collector that keeps the rings.
KEEPING = [sys.executable, "-c", PRELUDE + "import runpy; runpy.run_module('stallscope', run_name='__main__', alter_sys=True)", "torch"]


def start(command, folder, **more):
    given = {**os.environ, "RECORDED": str(folder / "recorded.json"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=DEADLINE, **more)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "package").mkdir()
    for path in ("train.py", "package/train.py"):
        (tmp_path / path).write_text(SCRIPT)
    (tmp_path / "package" / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize("how", ["ends", "raise", "exit", "message", "_exit", "SIGINT", "SIGTERM", "SIGKILL"])
def test_a_script_ends_as_it_does_alone(how, folder):
    words = ["train.py", how, "--run-dir", "x"]
    alone = start([sys.executable, *words], folder)
    profiled = start([*LAUNCH, "--run-dir", "run", *words], folder)
    assert profiled.returncode == alone.returncode
    assert profiled.stderr == alone.stderr
    assert profiled.stdout.splitlines()[0] == alone.stdout.splitlines()[0]
    deadline = time.monotonic() + 30
    while collectors(folder):
        assert time.monotonic() < deadline, "the collector goes on"
        time.sleep(0.1)


def collectors(folder):
    """The collectors of runs in `folder`."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"_native.collect" in line and os.fsencode(folder) in line:
            found.append(process.name)
    return found


@pytest.mark.parametrize("words", [["train.py", "ends"], ["-m", "package.train", "ends"]])
def test_scripts_and_modules_see_themselves(words, folder):
    alone = start([sys.executable, *words], folder)
    profiled = start([*KEEPING, *words], folder)
    assert (profiled.returncode, profiled.stderr) == (0, "")
    said = json.loads(profiled.stdout.splitlines()[0])
    assert said == json.loads(alone.stdout.splitlines()[0])
    events, dropped = json.loads((folder / "recorded.json").read_text())
    recorded = Recorded(profiled, events, dropped)
    assert len(recorded.of("Sample")) == 8
    (session,) = recorded.texts("Session")
    assert torch.__version__ in session and "train.py" in session and "ends" in session


def test_a_script_that_raises_is_said_to_have_failed(folder):
    profiled = start([*KEEPING, "train.py", "raise"], folder)
    assert profiled.returncode == 1
    events, dropped = json.loads((folder / "recorded.json").read_text())
    assert "ValueError: boo" in Recorded(profiled, events, dropped).texts("Failed")[0]


def test_a_script_that_is_not_there(folder):
    profiled = start([*LAUNCH, "missing.py"], folder)
    assert profiled.returncode == 2
    assert profiled.stderr == "error: cannot run missing.py: No such file or directory\n"


def test_processes_that_a_script_starts_are_profiled_each_in_a_folder_of_its_own(folder):
    (folder / "parent.py").write_text(
        "import subprocess, sys\n"
        "children = [subprocess.Popen([sys.executable, 'train.py', 'ends']) for _ in range(2)]\n"
        "sys.exit(max(child.wait() for child in children))\n"
    )
    profiled = start([*LAUNCH, "--run-dir", "run", "parent.py"], folder)
    assert profiled.returncode == 0, profiled.stderr
    assert sorted(path.name for path in (folder / "run").iterdir()) == ["process-0", "process-1"]


def test_a_sitecustomize_that_was_there_is_run(folder):
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("print('mine', flush=True)\n")
    (folder / "parent.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import stallscope'])\n")
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(
        [*LAUNCH, "parent.py"], cwd=folder, env=given, capture_output=True, text=True, timeout=DEADLINE
    )
    assert (ran.stdout, ran.stderr) == ("mine\nmine\n", "")


def test_ctrl_c_of_the_command_line_ends_it(tmp_path):
    command = [sys.executable, "-m", "stallscope", "data", "generate", str(tmp_path / "data"), "--images", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) in (130, -signal.SIGINT)
    finally:
        process.kill()


@pytest.mark.parametrize(
    "words, status, said",
    [(["--version"], 0, "stallscope "), (["nonsense"], 2, ""), (["predict", "missing"], 1, ""), (["torch"], 2, "")],
)
def test_exit_statuses_are_the_programs(words, status, said, tmp_path):
    ran = start([sys.executable, "-m", "stallscope", *words], tmp_path)
    assert ran.returncode == status and ran.stdout.startswith(said)


def test_workers_that_live_until_the_interpreter_ends_are_stopped_quietly(tmp_path):
    body = "loader = DataLoader(Numbers(8), num_workers=1, persistent_workers=True)\ntrain(loader)"
    ran, found = profile(tmp_path, body)
    assert found["status"] == "complete" and "Exception ignored" not in ran.stderr, ran.stderr


def test_ranks_of_one_launcher_choose_one_folder_however_late_they_look(tmp_path):
    look = "import time, sys; time.sleep({}); from stallscope.torch._options import default_run_dir as d; print(d('a/train.py'))"
    environment = {**os.environ, "LOCAL_RANK": "0"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", look.format(late)], env=environment, stdout=subprocess.PIPE, text=True)
        for late in (0, 1.2)
    ]
    chosen = [rank.communicate(timeout=DEADLINE)[0].strip() for rank in ranks]
    assert chosen[0] == chosen[1]
    begun = time.strptime(chosen[0], os.path.join("traces", "train-%Y%m%d-%H%M%S"))
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    assert abs(time.time() - age - calendar.timegm(begun)) < 3, "the launcher, this process, began then"
