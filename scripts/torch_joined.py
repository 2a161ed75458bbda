#!/usr/bin/env python3
"""Does torch.profiler see the waits for batches that the hooks see, on one clock? Trainings recorded by both at once.

    scripts/torch_joined.py [--steps 200] [--workers 0,1,2] [--rounds 3]

Needs stallscope's wheel and torch in the interpreter that runs it, and for the last column Perfetto's engine
(scripts/perfetto-setup.sh) with node. For each training: waits (`__next__`) in the profiler's trace that the hooks saw, too; of
those, the ones of which both ends are within 50 us; how far the furthest is off; and rows of Perfetto's `stats` that tell of an
error in the joined trace. Exit status 1 if there is such a row, or a wait that only one saw.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRAINING = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4 * (int(sys.argv[2]) + 20)
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((3,), float(index))

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 200), torch.nn.Linear(200, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in DataLoader(Numbers(), batch_size=4, num_workers=int(sys.argv[1])):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.004)
"""
ERRORS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"


def error_rows(trace):
    """Perfetto's error rows, or None without its engine."""
    found = subprocess.run([HERE / "perfetto-setup.sh", "--find"], capture_output=True, text=True)
    if found.returncode:
        return None
    command = ["node", HERE / "perfetto-sql.mjs", found.stdout.split()[-1], trace, ERRORS]
    asked = subprocess.run(command, check=True, capture_output=True, text=True)
    return len(json.loads(asked.stdout)["rows"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    failed = False
    print("workers  steps  waits  within 50 us  furthest  error rows")
    for workers in args.rounds * args.workers.split(","):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "train.py").write_text(TRAINING)
            torch = [sys.executable, "-m", "stallscope", "torch", "-q", f"--with-kineto={args.steps}"]
            command = [*torch, "--run-dir", "run", "train.py", workers, str(args.steps)]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            report = json.loads((folder / "run/kineto/report.json").read_text())
            joined = report["profiler_trace"]["joined"]
            waits, agree, furthest = joined["waits"], joined["agree"], joined["furthest_ns"] / 1e3
            rows = error_rows(folder / "run/kineto/trace.json")
            failed |= bool(rows) or waits < args.steps
            print(f"{workers:>7} {report['steps']:6} {waits:6} {agree:13} {furthest:6.1f} us {'-' if rows is None else rows:>11}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
