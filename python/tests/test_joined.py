"""torch's profiler beside the hooks: one timeline of its trace and of what the hooks told, for one process and for two ranks."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from profiling import DEADLINE, STALLSCOPE, run, script
from test_scripts import SCRIPTS

torch = pytest.importorskip("torch")

LOOP = "train(DataLoader(Numbers(96, 0.004), batch_size=4, num_workers=2))"
#: The same, profiled by the script itself.
PROFILED = """
from torch.profiler import ProfilerActivity, profile, schedule
save = lambda own: own.export_chrome_trace("own.json")
plan = schedule(wait=5, warmup=2, active=8, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=save) as own:
    train(DataLoader(Numbers(96, 0.004), batch_size=4, num_workers=2), lambda step: own.step())
"""
PROFILER = 5
EVENTS = "events.bin"


def reports(folder):
    return json.loads((folder / "report.json").read_text())


def agrees(folder, least):
    """Both saw the same waits for batches, and one clock shows their ends together."""
    joined = reports(folder)["profiler_trace"]["joined"]
    assert joined["waits"] >= least, joined
    events = json.loads((folder / "trace.json").read_text())
    slices = [own for own in events if own["ph"] == "X"]
    ends = [own["ts"] + own["dur"] for own in slices if own["pid"] == PROFILER and own["name"].startswith("enumerate")]
    steps = [own["ts"] for own in slices if own["name"] == "step"]
    off = sorted(min(abs(end - step) for end in ends) for step in steps)
    print(f"{joined}, ends of waits off by {off} us")
    # The thread's core may be taken in between, now and then.
    assert len(steps) >= least - 1 and off[len(off) // 2] < 50, off
    return joined


def rows(sql, trace):
    scripts = Path(__file__).parents[2] / "scripts"
    found = subprocess.run([scripts / "perfetto-setup.sh", "--find"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    command = ["node", scripts / "perfetto-sql.mjs", found.stdout.split()[-1], trace, sql]
    asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE)
    return json.loads(asked.stdout)["rows"]


def idles_for_a_part(report):
    """What keeps the device idle is a part that only the workers know."""
    causes = {cause["cause"]: cause["share"] for cause in report["idle_causes"]}
    assert max(causes, key=causes.get) == "nap capacity", causes


def test_a_profiler_of_our_own_is_joined_at_the_end(tmp_path):
    path = script(tmp_path, LOOP)
    told = run([STALLSCOPE, "torch", "--with-kineto=8", "--run-dir", "run", path], tmp_path).stdout
    assert "joined   " in told and "8 of these steps, with torch.profiler" in told and "--join" not in told, told
    folder = tmp_path / "run"
    assert (folder / EVENTS).exists() and (folder / "kineto.json").exists()
    report = reports(folder / "kineto")
    assert (report["steps"], report["samples"]) == (8, 32)
    joined = agrees(folder / "kineto", 9)
    # Behind the three steps of the warm-up.
    assert joined["first_step"] == 4, joined
    idles_for_a_part(report)
    assert (folder / "kineto/report.html").exists()
    # All of the run is still in its own report.
    assert reports(folder)["steps"] == 21
    trace = folder / "kineto/trace.json"
    wrong = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
    assert rows(wrong, trace) == []
    waits = "select count(*) from slice where name glob 'enumerate*__next__' and category = 'torch.profiler'"
    assert [list(row.values()) if isinstance(row, dict) else row for row in rows(waits, trace)] == [[8]]
    # The operators of a step lie within that step of ours.
    events = [event for event in json.loads(trace.read_text()) if event["ph"] == "X"]
    steps = [(own["ts"], own["ts"] + own["dur"]) for own in events if own["name"] == "step"]
    linear = [own["ts"] for own in events if own["name"] == "aten::linear" and own["pid"] == PROFILER]
    within = [any(start - 50 <= at <= end for start, end in steps) for at in linear]
    assert len(steps) == 8 and len(linear) == 16 and all(within)


def test_a_profiler_of_the_script_is_joined_afterwards(tmp_path):
    path = script(tmp_path, PROFILED)
    told = run([STALLSCOPE, "torch", "--run-dir", "run", path], tmp_path).stdout
    assert "--join" in told, told
    run([STALLSCOPE, "analyze", "own.json", "--join", "run", "--run-dir", "joined"], tmp_path)
    report = reports(tmp_path / "joined")
    assert report["steps"] >= 7
    agrees(tmp_path / "joined", 8)
    idles_for_a_part(report)
    # It can be predicted from, as any run.
    run([STALLSCOPE, "predict", "joined", "--set", "num_workers=4"], tmp_path)
    alone = run([STALLSCOPE, "analyze", "own.json", "--run-dir", "alone", "--json"], tmp_path)
    assert json.loads(alone.stdout)["idle_causes"][0]["cause"] == "dataloader capacity"
    # A run without a profiler keeps nothing, and says what to do.
    run([STALLSCOPE, "torch", "-q", "--run-dir", "plain", script(tmp_path, LOOP)], tmp_path)
    assert not (tmp_path / "plain" / EVENTS).exists()
    refused = run([STALLSCOPE, "analyze", "own.json", "--join", "plain"], tmp_path, status=1)
    assert "--with-kineto" in refused.stderr, refused.stderr
    # Nor is a report replaced by another.
    refused = run([STALLSCOPE, "analyze", "own.json", "--join", "run", "--run-dir", "run"], tmp_path, status=1)
    assert "another --run-dir" in refused.stderr, refused.stderr


@pytest.mark.parametrize("plan", ["wait=5, warmup=2, active=8", "wait=1, warmup=1, active=12"])
def test_a_profiler_of_the_script_comes_first(tmp_path, plan):
    path = script(tmp_path, PROFILED.replace("wait=5, warmup=2, active=8", plan))
    run([STALLSCOPE, "torch", "-q", "--with-kineto", "--run-dir", "run", path], tmp_path)
    assert (tmp_path / "own.json").exists()
    assert "--join RUN" in reports(tmp_path / "run")["error"]
    run([STALLSCOPE, "analyze", "own.json", "--join", "run", "-q", "--run-dir", "joined"], tmp_path)
    agrees(tmp_path / "joined", 8)


def test_a_training_that_ends_at_once_says_that_nothing_was_profiled(tmp_path):
    path = script(tmp_path, "train(DataLoader(Numbers(8), batch_size=4))")
    run([STALLSCOPE, "torch", "-q", "--with-kineto", "--run-dir", "run", path], tmp_path)
    assert "before --with-kineto" in reports(tmp_path / "run")["error"]


def test_a_step_with_batches_of_two_loaders_is_one(tmp_path):
    both = "DataLoader(Numbers(96), batch_size=4, num_workers=1)"
    path = script(tmp_path, f"train(torch.cat(two) for two in zip({both}, {both}))")
    run([STALLSCOPE, "torch", "-q", "--with-kineto=6", "--run-dir", "run", path], tmp_path)
    report = reports(tmp_path / "run/kineto")
    assert (report["steps"], report["profiler_trace"]["joined"]["first_step"]) == (6, 4), report["profiler_trace"]["joined"]


def test_what_was_profiled_outlives_a_script_that_does_not_end_properly(tmp_path):
    leaves = "train(DataLoader(Numbers(96), batch_size=4, num_workers=1), lambda step: os._exit(3) if step == 18 else None)"
    run([STALLSCOPE, "torch", "-q", "--with-kineto=4", "--run-dir", "run", script(tmp_path, leaves)], tmp_path, status=3)
    # The collector goes on by itself.
    until = time.monotonic() + DEADLINE
    while not (tmp_path / "run/kineto/report.html").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert reports(tmp_path / "run/kineto")["steps"] == 4


def test_a_failing_profiler_leaves_the_training_alone(tmp_path):
    broken = """
    import torch.profiler
    def step(self):
        raise ValueError("planted")
    torch.profiler.profile.step = step
    """.replace("\n    ", "\n")
    path = script(tmp_path, broken + LOOP)
    run([STALLSCOPE, "torch", "-q", "--with-kineto=4", "--run-dir", "run", path], tmp_path)
    report = reports(tmp_path / "run")
    assert "planted" in report["error"] and report["steps"] == 21
    assert not (tmp_path / "run/kineto.json").exists()


def test_two_ranks_wait_for_the_part_of_the_one_that_is_late(tmp_path):
    import torch.distributed

    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    profiled = [*torchrun, "-m", "stallscope", "torch", "-q", "--with-kineto=70", "--run-dir", tmp_path / "run"]
    run([*profiled, "ranks.py", "moving", "2", tmp_path], SCRIPTS)
    traces = [tmp_path / f"run/rank-{rank}/kineto.json" for rank in range(2)]
    asked = [STALLSCOPE, "analyze", *traces, "--join", tmp_path / "run", "--run-dir", tmp_path / "joined", "--json"]
    merged = json.loads(run(asked, tmp_path).stdout)
    assert [stretch["rank"] for stretch in merged["stretches"]] == [0, 1], merged["stretches"]
    charged = {(own["rank"], own["cause"]): own["ns"] for own in merged["charges"]}
    most = sorted(charged, key=charged.get)[-2:]
    assert sorted(most) == [(0, "augment capacity"), (1, "augment capacity")], charged
    # Each finds its own beside the other's, and refuses the other's alone.
    run([STALLSCOPE, "analyze", traces[1], "--join", tmp_path / "run/rank-0", "--run-dir", "one", "-q"], tmp_path)
    assert reports(tmp_path / "one")["profiler_trace"]["joined"]["path"].endswith("rank-1")
    shutil.copytree(tmp_path / "run/rank-0", tmp_path / "alone")
    wrong = run([STALLSCOPE, "analyze", traces[1], "--join", tmp_path / "alone"], tmp_path, status=1)
    assert "rank 1" in wrong.stderr, wrong.stderr
    for rank in range(2):
        agrees(tmp_path / f"joined/rank-{rank}", 60)
