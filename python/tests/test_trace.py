"""The trace of a run: workers are processes of their own, and arrows lead each batch to its step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recording import DEADLINE

torch = pytest.importorskip("torch")

BATCHES = 12
SCRIPT = f"""
import sys, time
import torch
from torch.utils.data import DataLoader

class Data:
    def __len__(self):
        return 2 * {BATCHES}

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.zeros(4)

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    for batch in DataLoader(Data(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        model(batch).sum().backward()
"""


@pytest.fixture(scope="module", params=["fork", "spawn"])
def run(request, tmp_path_factory):
    """The events of a trace, and the report beside it."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "stallscope", "torch", "--warmup-steps", "0", "--run-dir", "run", "train.py", request.param]
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=folder, env=given, check=True, capture_output=True, timeout=DEADLINE)
    trace = folder / "run/trace.json"
    return json.loads(trace.read_text()), json.loads((folder / "run/report.json").read_text()), trace


def named(events, what):
    """The names that processes or threads have, by their numbers."""
    own = [event for event in events if event["ph"] == "M" and event["name"] == what]
    return {(event["pid"], event.get("tid")): event["args"]["name"] for event in own}


def test_each_process_has_its_own_threads_and_no_others(run):
    processes = {pid: name for (pid, _), name in named(run[0], "process_name").items()}
    lanes = {}
    for (pid, _), name in named(run[0], "thread_name").items():
        lanes.setdefault(processes[pid], set()).add(name)
    idle = {"device busy", "device idle, by cause", "epochs"}
    workers = {f"DataLoader worker {number}": {f"worker {number}", f"feeder {number}"} for number in (0, 1)}
    assert lanes == {"main process": {"main"}, "trainer and device": idle, **workers}


def test_arrows_lead_each_batch_from_its_worker_to_its_step(run):
    events = run[0]
    threads = named(events, "thread_name")
    slices = [event for event in events if event["ph"] == "X"]
    flows = {}
    for event in events:
        if event["ph"] in "stf":
            flows.setdefault((event["cat"], event["id"]), []).append(event)
    assert len(flows) == BATCHES
    for flow in flows.values():
        assert [flow[0]["ph"], flow[-1]["ph"]] == ["s", "f"]
        way = [threads[event["pid"], event["tid"]] for event in flow]
        number = way[0][-1]
        order = [name for place, name in enumerate(way) if way[:place][-1:] != [name]]
        assert order == [f"worker {number}", f"feeder {number}", "main"]
        times = [event["ts"] for event in flow]
        assert times == sorted(times)

        def within(event):
            there = [own for own in slices if (own["pid"], own["tid"]) == (event["pid"], event["tid"])]
            return {own["name"] for own in there if own["ts"] <= event["ts"] <= own["ts"] + own["dur"]}

        assert "fetch" in within(flow[0])
        assert any("transport" in within(event) for event in flow)
        assert "step" in within(flow[-1])


def test_idle_time_has_the_causes_of_the_report(run):
    events, report, _ = run
    idle = [event for event in events if event["ph"] == "X" and event["cat"] == "idle"]
    by_cause = {}
    for event in idle:
        by_cause[event["name"]] = by_cause.get(event["name"], 0) + event["dur"] * 1000
    assert sum(by_cause.values()) == pytest.approx(report["device"]["idle_ns"], rel=1e-3)
    for cause in report["idle_causes"]:
        assert by_cause.get(cause["cause"], 0) == pytest.approx(cause["ns"], rel=1e-3, abs=1000)


def test_perfettos_engine_finds_no_error(run):
    scripts = Path(__file__).parents[2] / "scripts"
    found = subprocess.run([scripts / "perfetto-setup.sh", "--find"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    sql = "select name, value from stats where value > 0 and (severity in ('error', 'data_loss') or name = 'flow_end_without_start')"
    command = ["node", scripts / "perfetto-sql.mjs", found.stdout.split()[-1], run[2], sql]
    asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE)
    assert json.loads(asked.stdout)["rows"] == []
