"""Runs a script under `stallscope torch`, and reads its report."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

DEADLINE = 120
STALLSCOPE = os.path.join(os.path.dirname(sys.executable), "stallscope")

# A data set whose samples sleep, and a training of two linear layers.
TRAINING = """
import os, signal, sys, time
import stallscope, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __init__(self, length, seconds=0.002):
        self.length, self.seconds = length, seconds
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        with stallscope.stage("nap"):
            time.sleep(self.seconds)
        return torch.full((3,), float(index))

def train(loader, each=lambda step: None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, batch in enumerate(loader):
        loss = model(batch.reshape(-1, 3)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        each(step)

"""


def script(folder, body):
    """Writes the training with `body` as what it does; returns its path."""
    path = folder / "script.py"
    body = body.strip("\n").replace("\n", "\n    ")
    path.write_text(f"{TRAINING}if __name__ == '__main__':\n    {body}\n")
    return path


def run(command, folder, status=0, environment=None, **more):
    """Runs a command within `folder`."""
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        **more,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran


def profile(folder, body, *options, status=0, environment=None):
    """What a script printed under `stallscope torch`, and its report."""
    command = [STALLSCOPE, "torch", "--run-dir", folder / "run", *options, script(folder, body)]
    ran = run(command, folder, status, environment)
    return ran, report(folder / "run")


def report(folder):
    """The report in a run's folder, once it is there."""
    deadline = time.monotonic() + 30
    path = Path(folder) / "report.json"
    while not path.exists():
        assert time.monotonic() < deadline, f"there is no {path}"
        time.sleep(0.05)
    return json.loads(path.read_text())


def stages(of):
    """The names of a report's stages."""
    return [stage["stage"] for stage in of["stages"]]
