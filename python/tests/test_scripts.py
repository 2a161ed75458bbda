"""Scripts that know nothing of stallscope print the same losses under it, and get their report."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SCRIPTS = Path(__file__).parent / "scripts"
DEADLINE = 300
STALLSCOPE = os.path.join(os.path.dirname(sys.executable), "stallscope")


def run(command, **more):
    ran = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=DEADLINE, **more)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    "script, needs, arguments",
    [
        ("plain.py", "torch", ["0"]),
        ("plain.py", "torch", ["2"]),
        ("lightning_fit.py", "lightning", []),
        ("trainer_fit.py", "transformers", []),
        ("accelerate_fit.py", "accelerate", []),
    ],
)
def test_losses_are_the_same(script, needs, arguments, tmp_path):
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    alone = run([sys.executable, script, *arguments])
    profiled = run([STALLSCOPE, "torch", "--run-dir", str(tmp_path), script, *arguments])
    assert alone.strip() and alone in profiled
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["status"] == "complete"
    # Two epochs of 12 batches; a sanity check before and validation after them are no steps.
    assert report["steps"] + report["config"]["warmup_steps"] == 24, report["steps"]


def test_each_rank_has_its_report(tmp_path):
    import torch.distributed

    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    alone, profiled, runs = tmp_path / "alone", tmp_path / "profiled", tmp_path / "runs"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for folder, command in [
        (alone, [*torchrun, "ddp.py"]),
        (profiled, [STALLSCOPE, "torch", "--run-dir", str(runs), "-m", *torchrun[2:], "ddp.py"]),
    ]:
        folder.mkdir()
        run([*command, str(folder)])
    for rank in range(2):
        losses = (alone / f"losses-{rank}").read_text()
        assert losses and losses == (profiled / f"losses-{rank}").read_text()
        report = json.loads((runs / f"rank-{rank}" / "report.json").read_text())
        assert report["status"] == "complete" and report["torch"]["session"]["rank"] == rank
