"""What `stallscope torch` writes: of options, of ways to begin, and of what a training is made of."""

import json
import sys

import pytest

pytest.importorskip("torch")

from profiling import STALLSCOPE, profile, report, run, script, stages  # noqa: E402

LOOP = "train(DataLoader(Numbers(96), batch_size=4, num_workers=2))"


def test_steps_and_warm_up_are_those_asked_for(tmp_path):
    ran, found = profile(tmp_path, LOOP, "--steps", "10", "--warmup-steps", "5")
    assert found["steps"] == 10 and found["config"] == {"steps": 10, "warmup_steps": 5}
    assert found["status"] == "complete" and found["error"] is None
    assert found["samples"] == 40
    assert "nap" in stages(found) and str(tmp_path / "run" / "report.json") in ran.stdout
    events = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert any(event.get("name") == "nap" for event in events)


def test_the_report_is_printed_as_json(tmp_path):
    ran, found = profile(tmp_path, "train(DataLoader(Numbers(48), batch_size=4))", "--json")
    assert json.loads(ran.stdout) == found


def test_threads_of_workers_have_their_figures(tmp_path):
    # Each sample computes for 5 ms, and there are 1000 of them.
    body = """
class Busy(Numbers):
    def __getitem__(self, index):
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass
        return torch.full((3,), float(index))
train(DataLoader(Busy(1000), batch_size=4, num_workers=2))
"""
    _, found = profile(tmp_path, body)
    used = {worker["name"]: worker["usage"] for worker in found["workers"]}
    computed = sum(used[name]["user"] + used[name]["system"] for name in ("worker 0", "worker 1")) / 1e9
    # What was used before the first reading and after the last is not known: up to half a second by each.
    assert 3.0 <= computed <= 6.0, used


def test_a_with_block_has_a_report_of_its_own(tmp_path):
    body = """
import stallscope.torch
for name in ("one", "two"):
    with stallscope.torch.profile(run_dir=name, warmup_steps=2):
        train(DataLoader(Numbers(40), batch_size=4, num_workers=1))
    assert os.path.exists(os.path.join(name, "report.json"))
    train(DataLoader(Numbers(8), batch_size=4))
"""
    run([sys.executable, script(tmp_path, body)], tmp_path)
    for name in ("one", "two"):
        found = report(tmp_path / name)
        assert (found["status"], found["steps"]) == ("complete", 8), name
        assert len(found["torch"]["loaders"]) == 1


def test_hooks_of_a_with_block_take_nothing_afterwards(tmp_path):
    body = """
import stallscope.torch
from stallscope import _native
with stallscope.torch.profile(run_dir="run"):
    train(DataLoader(Numbers(40), batch_size=4))
    assert _native.is_active()
assert not _native.is_active()
assert "STALLSCOPE_TORCH" not in os.environ, "later children would be profiled"
train(DataLoader(Numbers(8), batch_size=4, num_workers=1))
"""
    run([sys.executable, script(tmp_path, body)], tmp_path)


def test_a_fork_server_starts_workers(tmp_path):
    body = "train(DataLoader(Numbers(64), batch_size=4, num_workers=2, multiprocessing_context='forkserver'))"
    ran, found = profile(tmp_path, body)
    assert found["steps"] == 13 and "nap" in stages(found), ran.stderr
    assert not found["torch"]["session"]["missing"]


def test_trainings_in_processes_that_spawn_starts(tmp_path):
    body = "import torch.multiprocessing as mp, script\nmp.spawn(script.one, nprocs=2)"
    path = script(tmp_path, body)
    one = "def one(rank):\n    train(DataLoader(Numbers(48), batch_size=4, num_workers=1))\n\n"
    path.write_text(path.read_text().replace("if __name__", one + "if __name__"))
    ran = run([STALLSCOPE, "torch", "--run-dir", tmp_path / "run", path], tmp_path)
    for place in range(2):
        found = report(tmp_path / "run" / f"process-{place}")
        assert (found["status"], found["steps"]) == ("complete", 9), ran.stderr


@pytest.mark.parametrize("how", ["module", "script"])
def test_under_torchrun_each_rank_has_a_report(how, tmp_path):
    path = script(tmp_path, "train(DataLoader(Numbers(48), batch_size=4, num_workers=1))")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words = ["-m", "stallscope"] if how == "module" else ["--no-python", STALLSCOPE]
    ran = run([*torchrun, *words, "torch", "--run-dir", "run", path], tmp_path, environment={"OMP_NUM_THREADS": "1"})
    for rank in range(2):
        found = report(tmp_path / "run" / f"rank-{rank}")
        assert (found["status"], found["steps"]) == ("complete", 9), ran.stderr
        assert found["torch"]["session"]["rank"] == rank and found["torch"]["session"]["world_size"] == 2


def test_several_loaders_at_once(tmp_path):
    body = """
one = DataLoader(Numbers(48), batch_size=4, num_workers=1)
two = DataLoader(Numbers(48), batch_size=4, num_workers=1)
class Both:
    def __iter__(self):
        return (a + b for a, b in zip(one, two))
train(Both())
"""
    ran, found = profile(tmp_path, body)
    assert found["status"] == "complete" and found["unattributed_share"] == 0, ran.stderr
    assert [loader["batches"] for loader in found["torch"]["loaders"]] == [12, 12]
    assert found["steps"] == 9


def test_hooks_on_tensors_change_nothing(tmp_path):
    body = """
def copies(step):
    tensor = torch.ones(3)
    assert tensor.to("cpu") is tensor and torch.Tensor.to(tensor, "cpu") is tensor
    assert tensor.to(torch.float64).dtype == torch.float64 and tensor.to(device="cpu", dtype=torch.int8).sum() == 3
    assert torch.nn.Parameter(tensor).to("meta").device.type == "meta"
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            assert function in (torch.Tensor.to,), function
            return "seen"
    assert torch.ones(2).as_subclass(Own).to("cpu") == "seen"
    time.sleep(0.001)
train(DataLoader(Numbers(48), batch_size=4), copies)
"""
    ran, found = profile(tmp_path, body)
    assert found["status"] == "complete", ran.stderr
    assert any(cause["kind"] == {"host": "copy"} for cause in found["idle_causes"]), found["idle_causes"]


def test_the_last_run_is_found_as_the_readme_says(tmp_path):
    training = script(tmp_path, LOOP)
    for _ in range(2):
        run([STALLSCOPE, "torch", training], tmp_path)
    runs = sorted((tmp_path / "traces").glob("*-*"))
    assert len(runs) == 2 and (tmp_path / "traces" / "latest").resolve() == runs[-1]
    predicted = run([STALLSCOPE, "predict", "traces/latest", "--set", "num_workers=8", "--json"], tmp_path)
    assert json.loads(predicted.stdout)["prediction"]["samples_per_second"]["value"] > 0
    compared = run([STALLSCOPE, "compare", str(runs[0]), "traces/latest"], tmp_path)
    assert "samples/s" in compared.stdout
