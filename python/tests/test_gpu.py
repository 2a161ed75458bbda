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
        entered = _native.now()
        with stallscope.stage("nap"):
            begun = _native.now()
            time.sleep(self.seconds)
            ended = _native.now()
        GPU.span("around nap", entered, _native.now())
        GPU.span("nap", begun, ended)
        return torch.full((3,), float(index))
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
#: Each step waits for the device, so that all of a nap is idle time.
LOOP = PLANTED + "training(DataLoader(Naps(4 * 40, 0.005), batch_size=4), lambda step: GPU.wait())"


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


def busy_of(truth):
    """When kernels ran, and where events told of steps from their beginning to their end."""
    # Between two steps' events the time from one step to the next is asked for, too.
    steps = truth["timed"][::2]
    return union([*((begun, ended) for _, begun, ended in truth["kernels"]), *map(tuple, steps)])


def check(found, truth, steps):
    """Busy and idle time are as planted, and so is the idle time of what `truth` has spans of.

    A machine that is busy otherwise makes naps longer than they are asked for: that part is contention, not the nap. A stage
    begins and ends somewhere between the calls around it and those within: on a slow machine that is 10 us of each nap.
    """
    start, end = window(truth, steps)
    busy = busy_of(truth)
    inside = covered(busy, [(start, end)])
    device = found["device"]
    length = device["busy_ns"] + device["idle_ns"]
    assert abs(length - (end - start)) <= TOLERANCE * length, (length, end - start)
    assert abs(device["busy_ns"] - inside) <= TOLERANCE * length, (device["busy_ns"], inside)
    idle = gaps(busy, start, end)
    idle = [(max(a, start), min(b, end)) for a, b in idle if min(b, end) > max(a, start)]
    assert abs(device["idle_ns"] - sum(b - a for a, b in idle)) <= TOLERANCE * length
    within, around = (covered(idle, union((a, b) for span, a, b in truth["spans"] if span == own)) for own in ("nap", "around nap"))
    told, cores = (sum(one["ns"] for one in found["idle_causes"] if one["kind"] == own) for own in ({"capacity": "nap"}, "cpu_contention"))
    least, most = within - cores - TOLERANCE * length, around + TOLERANCE * length
    assert least <= told <= most, (told, within, around, cores, length, found["idle_causes"])
    assert sum(one["ns"] for one in found["idle_causes"]) == device["idle_ns"]
    assert found["unattributed_share"] == 0


def test_device_time_and_causes_are_those_planted_by_cupti(library, tmp_path):
    ran, found, truth = trained(tmp_path, LOOP, library, "-v")
    timeline = found["device"]["timeline"]
    assert (timeline["source"], timeline["fallback"], timeline["doubt"]) == ("cupti", None, None), timeline
    assert (timeline["lost"], timeline["late"], timeline["version"]) == (0, 0, 28)
    assert found["steps"] == 37 and timeline["kernels"] == 3 * 37
    check(found, truth, 37)
    assert found["device"]["name"] == "your training on Planted GPU"
    assert "the GPU's own, by CUPTI" in ran.stdout and "nap" in ran.stdout.splitlines()[1], ran.stdout
    assert "host: launch" in ran.stdout or "host" in ran.stdout


def test_device_time_and_causes_are_those_planted_by_events(library, tmp_path):
    _, found, truth = trained(tmp_path, LOOP, None)
    timeline = found["device"]["timeline"]
    assert timeline["source"] == "events" and "STALLSCOPE_CUPTI=off" in timeline["fallback"], timeline
    check(found, truth, 37)


@pytest.mark.parametrize("by", ["cupti", "events"])
def test_a_device_that_is_never_idle_says_so(by, library, tmp_path):
    body = PLANTED + """
model = Model(0.01, 0.02)
training(DataLoader(Naps(4 * 40, 0.0005), batch_size=4), lambda step: GPU.wait() if step % 4 == 3 else None, model)
"""
    _, found, truth = trained(tmp_path, body, library if by == "cupti" else None)
    start, end = window(truth, 37)
    busy = covered(busy_of(truth), [(start, end)])
    assert found["device"]["timeline"]["source"] == by
    assert abs(found["device"]["busy_share"] - busy / (end - start)) < TOLERANCE
    assert found["device"]["busy_share"] > 0.5


def test_copies_to_the_device_show_as_such(library, tmp_path):
    # The copy of the batch takes 6 ms on the stream that computes, so that the kernels have to wait for it.
    body = PLANTED + """
class Copies(Model):
    def forward(self, inputs):
        GPU.copy(1 << 20, 0.006)
        return super().forward(inputs)
training(DataLoader(Numbers(4 * 40, 0.0), batch_size=4), lambda step: GPU.wait(), Copies())
"""
    _, found, truth = trained(tmp_path, body, library)
    copies = found["device"]["timeline"]["copies"]
    assert (copies["count"], copies["bytes"], copies["pinned_bytes"]) == (37, 37 << 20, 37 << 20)
    assert abs(copies["ns"] - 37 * 6_000_000) <= 37 and copies["overlapped_ns"] == 0
    start, end = window(truth, 37)
    told = sum(one["ns"] for one in found["idle_causes"] if one["kind"] == {"host": "copy"})
    assert abs(told - 37 * 6_000_000) <= TOLERANCE * (end - start), (told, found["idle_causes"])
    events = json.loads((tmp_path / "run" / "trace.json").read_text())
    named = [event["name"] for event in events if event.get("ph") == "X"]
    assert named.count("Memcpy HtoD (Pinned)") == named.count("transfer") == 40
    assert named.count("forward") == named.count("backward") == named.count("optimizer") >= 39
    lanes = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert {"device", "copy engine", "stream 7"} <= lanes, lanes


def test_kernels_of_several_streams_count_once_and_those_of_other_devices_not(library, tmp_path):
    body = PLANTED + """
class Wide(Model):
    def forward(self, inputs):
        GPU.launch(0.004, "beside", stream=9)
        GPU.launch(0.050, "elsewhere", stream=1, device=1)
        return super().forward(inputs)
training(DataLoader(Naps(4 * 30, 0.005), batch_size=4), lambda step: GPU.wait(), Wide())
"""
    _, found, truth = trained(tmp_path, body, library)
    check(found, truth, 27)
    assert found["device"]["timeline"]["kernels"] == 4 * 27


@pytest.mark.parametrize("workers", [1, 2])
def test_with_workers_kernels_lie_beside_the_loading(workers, library, tmp_path):
    body = PLANTED + f"training(DataLoader(Numbers(4 * 60, 0.005), batch_size=4, num_workers={workers}))"
    ran, found, truth = trained(tmp_path, body, library)
    start, end = window(truth, 57)
    busy = covered(union((a, b) for _, a, b in truth["kernels"]), [(start, end)])
    assert abs(found["device"]["busy_ns"] - busy) <= TOLERANCE * (end - start)
    assert found["idle_causes"][0]["kind"] == {"capacity": "nap"}, found["idle_causes"]
    assert found["unattributed_share"] == 0 and "nap" in ran.stdout
    predicted = run([STALLSCOPE, "predict", "run", "--set", "num_workers=4", "--json"], tmp_path)
    assert json.loads(predicted.stdout)["prediction"]["samples_per_second"]["value"] > 0


def test_validation_on_the_device_is_device_time(library, tmp_path):
    body = PLANTED + """
model = Model()
for epoch in range(2):
    training(DataLoader(Naps(4 * 20, 0.005), batch_size=4), model=model)
    GPU.step = -1
    with torch.no_grad():
        for batch in DataLoader(Numbers(4 * 10, 0.001), batch_size=4):
            model(batch)
"""
    _, found, truth = trained(tmp_path, body, library)
    start = truth["kernels"][3 * WARMUP - 1][2]
    end = max(end for step, _, end in truth["kernels"] if step >= 0)
    busy = covered(busy_of(truth), [(start, end)])
    assert found["steps"] == 37
    assert abs(found["device"]["busy_ns"] - busy) <= TOLERANCE * (end - start), (found["device"]["busy_ns"], busy)
    assert any(one["kind"] == {"host": "validation"} for one in found["idle_causes"])


@pytest.mark.parametrize(
    "code, said",
    [("39", "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED); another profiler"), ("35", "INSUFFICIENT_PRIVILEGES); the driver lets only")],
)
def test_events_stand_in_where_cupti_refuses(code, said, library, tmp_path):
    ran, found, _ = trained(tmp_path, LOOP, library, "-v", CUPTI_REFUSES=code)
    timeline = found["device"]["timeline"]
    assert timeline["source"] == "events" and said in timeline["fallback"], timeline
    assert f"failed with {code}" in timeline["fallback"]
    assert "steps by CUDA events" in ran.stdout and "not by CUPTI" in ran.stdout, ran.stdout
    assert "not by CUPTI" in (tmp_path / "run" / "report.html").read_text()
    assert 0.2 < found["device"]["busy_share"] < 0.5


def test_events_stand_in_where_there_is_no_cupti(tmp_path):
    _, found, _ = trained(tmp_path, LOOP, "/nonexistent/libcupti.so.12")
    timeline = found["device"]["timeline"]
    assert timeline["source"] == "events" and "/nonexistent/libcupti.so.12 cannot be opened" in timeline["fallback"]


def test_the_host_stands_in_where_there_are_no_events(tmp_path):
    body = PLANTED + """
def broken(*args, **kwargs):
    raise RuntimeError("no events here")
torch.cuda.Event = broken
training(DataLoader(Naps(4 * 20, 0.005), batch_size=4))
"""
    ran, found, _ = trained(tmp_path, body, None, "-v")
    timeline = found["device"]["timeline"]
    assert timeline["source"] == "host" and "no events here" in timeline["fallback"], timeline
    assert found["steps"] == 17 and found["device"]["busy_ns"] > 0
    assert "no events here" in ran.stdout


def test_a_training_without_a_gpu_has_no_timeline(library, tmp_path):
    body = """
from stallscope.torch import _state
def each(step):
    if step == 10:
        assert _state.STATE.device is None, "each step would look for a GPU"
train(DataLoader(Numbers(60), batch_size=4), each)
"""
    _, found, _ = trained(tmp_path, body, library)
    assert found["status"] == "complete" and found["device"]["timeline"] is None
    assert found["device"]["name"] == "your training"


def test_a_gpu_that_is_there_and_not_used_has_no_timeline(library, tmp_path):
    body = PLANTED + "torch.Tensor.is_cuda = property(lambda self: False)\ntrain(DataLoader(Numbers(60), batch_size=4))"
    _, found, _ = trained(tmp_path, body, library)
    assert found["device"]["timeline"] is None and found["device"]["busy_ns"] > 0


def test_torchs_profiler_gets_cupti(library, tmp_path):
    body = PLANTED + """
from torch.autograd import profiler
from torch.profiler import ProfilerActivity
prepared = profiler._prepare_profiler
states = []
# What stands behind our hook: torch's own function, which would ask a driver.
def prepare(config, activities, *args, **kwargs):
    states.append(GPU.cupti.is_enabled())
prepared._stallscope_original, original = prepare, prepared._stallscope_original
for cell in prepared.__closure__:
    if cell.cell_contents is original:
        cell.cell_contents = prepare
def each(step):
    if step == 19:
        assert GPU.cupti.is_enabled() == 1
        profiler._prepare_profiler(None, {ProfilerActivity.CPU})
        assert states == [1]
        profiler._prepare_profiler(None, {ProfilerActivity.CPU, ProfilerActivity.CUDA})
        assert states == [1, 0], "CUPTI is free when torch's profiler takes it"
    GPU.wait()
training(DataLoader(Naps(4 * 40, 0.005), batch_size=4), each)
"""
    ran, found, truth = trained(tmp_path, body, library, "-v")
    timeline = found["device"]["timeline"]
    assert (timeline["source"], timeline["events_from"], timeline["lost"]) == ("cupti", 20, 0), (timeline, ran.stderr)
    assert "torch.profiler" in timeline["fallback"]
    assert "from step 20 on by CUDA events: torch.profiler" in " ".join(ran.stdout.split()), ran.stdout
    check(found, truth, 37)


def test_records_that_are_lost_are_said(library, tmp_path):
    body = PLANTED + "training(DataLoader(Naps(4 * 20, 0.005), batch_size=4), lambda step: step or GPU.cupti.plant_drops(7))"
    ran, found, _ = trained(tmp_path, body, library, "-v")
    timeline = found["device"]["timeline"]
    assert timeline["lost"] == 7 and timeline["doubt"].startswith("7 of "), timeline
    assert "records are missing" in " ".join(ran.stdout.split())


def test_many_kernels_find_room(library, tmp_path):
    # 60,000 kernels in a second or two, which with their calls are more than a ring holds.
    body = PLANTED + """
class Many(Model):
    def forward(self, inputs):
        for _ in range(1000):
            GPU.launch(0.000002, "small")
        return super().forward(inputs)
training(DataLoader(Naps(4 * 60, 0.001), batch_size=4), model=Many())
"""
    _, found, truth = trained(tmp_path, body, library)
    timeline = found["device"]["timeline"]
    assert (timeline["lost"], timeline["late"], timeline["doubt"]) == (0, 0, None), timeline
    assert timeline["kernels"] == 1003 * 57
    start, end = window(truth, 57)
    busy = covered(union((a, b) for _, a, b in truth["kernels"]), [(start, end)])
    assert abs(found["device"]["busy_ns"] - busy) <= TOLERANCE * (end - start)


def test_recording_ends_with_the_steps_asked_for(library, tmp_path):
    body = PLANTED + """
training(DataLoader(Naps(4 * 120, 0.002), batch_size=4))
assert not GPU.cupti.is_enabled(), "CUPTI costs something"
"""
    _, found, truth = trained(tmp_path, body, library, "--steps", "20")
    timeline = found["device"]["timeline"]
    assert found["steps"] == 20 and timeline["kernels"] == 60 and timeline["doubt"] is None, timeline
    start, end = window(truth, 20)
    busy = covered(union((a, b) for _, a, b in truth["kernels"]), [(start, end)])
    assert abs(found["device"]["busy_ns"] - busy) <= TOLERANCE * (end - start)


def test_two_blocks_record_one_after_another(library, tmp_path):
    body = PLANTED + """
import stallscope.torch
for name in ("one", "two"):
    with stallscope.torch.profile(run_dir=name, warmup_steps=2):
        training(DataLoader(Naps(4 * 20, 0.005), batch_size=4))
    assert not GPU.cupti.is_enabled()
    training(DataLoader(Numbers(8), batch_size=4))
assert GPU.cupti.clocks_registered() == 1, "CUPTI takes its clock once"
"""
    import sys

    run([sys.executable, script(tmp_path, body)], tmp_path, environment=environment(library))
    for name in ("one", "two"):
        found = report(tmp_path / name)
        assert (found["status"], found["steps"]) == ("complete", 18)
        assert found["device"]["timeline"]["source"] == "cupti", found["device"]["timeline"]
        assert found["device"]["timeline"]["kernels"] == 3 * 18


ENDS = {
    "exception": ("raise ValueError('boo')", 1, "failed"),
    "exit": ("sys.exit(3)", 3, "complete"),
    "os._exit": ("os._exit(4)", 4, "interrupted"),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT)", None, "interrupted"),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, "interrupted"),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", -signal.SIGKILL, "interrupted"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_timeline_is_whole_however_the_script_ends(end, library, tmp_path):
    action, status, said = ENDS[end]
    body = PLANTED + f"""
def each(step):
    if step == 70:
        GPU.write()
        {action}
training(DataLoader(Naps(4 * 80, 0.005), batch_size=4, num_workers=1), each)
"""
    command = [STALLSCOPE, "torch", "--run-dir", tmp_path / "run", script(tmp_path, body)]
    ran = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **environment(library)}, capture_output=True, text=True, timeout=120
    )
    assert status is None or ran.returncode == status, ran.stderr
    found = report(tmp_path / "run")
    deadline = time.monotonic() + 30
    while found["status"] == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
        found = report(tmp_path / "run")
    assert found["status"] == said or end == "exit", (found["status"], found["error"], ran.stderr)
    timeline = found["device"]["timeline"]
    # Of a process that is killed the last half a second is not known.
    least = 20 if end == "SIGKILL" else 64
    assert timeline["source"] == "cupti" and least <= found["steps"] <= 68, (found["steps"], timeline)
    truth = json.loads((tmp_path / "truth.json").read_text())
    start, stop = window(truth, found["steps"])
    busy = covered(union((a, b) for _, a, b in truth["kernels"]), [(start, stop)])
    length = found["device"]["busy_ns"] + found["device"]["idle_ns"]
    assert abs(found["device"]["busy_ns"] - busy) <= TOLERANCE * length, (found["device"]["busy_ns"], busy)
