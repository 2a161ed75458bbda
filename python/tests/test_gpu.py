"""A training on a GPU, which `planted_gpu.py` and `cupti.c` stand for: what is planted is what the report says.

Nothing here has to do with a real GPU; benches/results/PENDING.md says what has not run on one.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from profiling import STALLSCOPE, profile, report, run, script  # noqa: E402

HERE = Path(__file__).parent
WARMUP = 3
#: Of the window.
TOLERANCE = 1e-3

#: A loader that naps for 4 x 5 ms in the thread that trains, and a training whose steps take the device 8 ms.
PLANTED = """
from planted_gpu import GPU, SGD, Model, install
from stallscope import _native
install()
class Naps(Numbers):
    def __getitem__(self, index):
        begun = _native.now()
        item = super().__getitem__(index)
        GPU.span("nap", begun, _native.now())
        return item
def training(loader, each=lambda step: None, model=None):
    torch.manual_seed(0)
    model = model or Model()
    optimizer = SGD(model.parameters(), 1e-3)
    for step, batch in enumerate(loader):
        GPU.step = step
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        each(step)
"""
LOOP = PLANTED + "training(DataLoader(Naps(4 * 40, 0.005), batch_size=4))"


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The libcupti that stands for NVIDIA's."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler `cc`")
    path = tmp_path_factory.mktemp("cupti") / "libcupti.so.12"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", path, HERE / "cupti.c"], check=True)
    return str(path)


def environment(library, **more):
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"STALLSCOPE_CUPTI": library or "off", "PLANTED_CUPTI": library or "", "PYTHONPATH": os.pathsep.join(paths)}
    return {**own, **more}


def trained(folder, body, library, *options, status=0, **more):
    """What a training printed, its report and the truth."""
    ran, found = profile(folder, body, *options, status=status, environment=environment(library, **more))
    truth = json.loads((folder / "truth.json").read_text()) if (folder / "truth.json").exists() else None
    return ran, found, truth


def union(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def covered(one, other):
    """How long both are."""
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in other)


def gaps(busy, start, end):
    times = [start, *(time for part in busy for time in part), end]
    return [(a, b) for a, b in zip(times[::2], times[1::2]) if b > a]


def window(truth, steps):
    """From the end of the warm-up's last step on the device to the end of the last one's."""
    ends = {step: end for step, _, end in truth["kernels"]}
    return ends[WARMUP - 1], ends[WARMUP + steps - 1]


def check(found, truth, steps, cause):
    """Busy and idle time are as planted, and so is the share of idle time of what `truth` has spans of."""
    start, end = window(truth, steps)
    busy = union((begun, ended) for _, begun, ended in truth["kernels"])
    inside = covered(busy, [(start, end)])
    device = found["device"]
    length = device["busy_ns"] + device["idle_ns"]
    assert abs(length - (end - start)) <= TOLERANCE * length, (length, end - start)
    assert abs(device["busy_ns"] - inside) <= TOLERANCE * length, (device["busy_ns"], inside)
    idle = gaps(busy, start, end)
    idle = [(max(a, start), min(b, end)) for a, b in idle if min(b, end) > max(a, start)]
    assert abs(device["idle_ns"] - sum(b - a for a, b in idle)) <= TOLERANCE * length
    kind, name = cause
    planted = covered(idle, union((a, b) for span, a, b in truth["spans"] if span == name))
    told = sum(one["ns"] for one in found["idle_causes"] if one["kind"] == kind)
    assert abs(told - planted) <= 2 * TOLERANCE * length, (told, planted, length, found["idle_causes"])
    assert sum(one["ns"] for one in found["idle_causes"]) == device["idle_ns"]
    assert found["unattributed_share"] == 0


def test_device_time_and_causes_are_those_planted_by_cupti(library, tmp_path):
    ran, found, truth = trained(tmp_path, LOOP, library, "-v")
    timeline = found["device"]["timeline"]
    assert (timeline["source"], timeline["fallback"], timeline["doubt"]) == ("cupti", None, None), timeline
    assert (timeline["lost"], timeline["late"], timeline["version"]) == (0, 0, 28)
    assert found["steps"] == 37 and timeline["kernels"] == 3 * 37
    check(found, truth, 37, ({"capacity": "nap"}, "nap"))
    assert found["device"]["name"] == "your training on Planted GPU"
    assert "the GPU's own, by CUPTI" in ran.stdout and "nap" in ran.stdout.splitlines()[1], ran.stdout
    assert "host: launch" in ran.stdout or "host" in ran.stdout


def test_device_time_and_causes_are_those_planted_by_events(library, tmp_path):
    _, found, truth = trained(tmp_path, LOOP, None)
    timeline = found["device"]["timeline"]
    assert timeline["source"] == "events" and "STALLSCOPE_CUPTI=off" in timeline["fallback"], timeline
    check(found, truth, 37, ({"capacity": "nap"}, "nap"))


@pytest.mark.parametrize("by", ["cupti", "events"])
def test_a_device_that_is_never_idle_says_so(by, library, tmp_path):
    body = PLANTED + """
model = Model(0.01, 0.02)
training(DataLoader(Naps(4 * 40, 0.0005), batch_size=4), lambda step: GPU.wait() if step % 4 == 3 else None, model)
"""
    _, found, truth = trained(tmp_path, body, library if by == "cupti" else None)
    start, end = window(truth, 37)
    busy = covered(union((a, b) for _, a, b in truth["kernels"]), [(start, end)])
    assert found["device"]["timeline"]["source"] == by
    assert abs(found["device"]["busy_share"] - busy / (end - start)) < TOLERANCE
    assert found["device"]["busy_share"] > 0.9
