#!/usr/bin/env python3
"""What Slurm runs for stallscope, on two nodes.

usage: slurm_sweep.py [undisturbed] [node] [limit] [killed] [tune] [ranks]

undisturbed, node, limit, killed: sweeps of 24 trials, the second with a node killed, the third with a trial over its limit, the
fourth killed itself. Says of each whether the records of all trials are there, on which nodes they ran, and which trials were
started twice; fails where a record is missing or there twice, or where a trial was started twice that was not in flight.
tune: a search with two trials at once; fails where its winner is more than 3 % slower than that of one trial after another.
ranks: one run of four ranks, started by srun; fails where their merged report lacks one, or does not charge the waits of the others
to rank 2, whose disk is slow.

Needs root, and Slurm as scripts/slurm-setup.sh starts it, which this does. Build with `cargo build --release` first.
"""

import collections
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from measured import BINARY, ROOT

SETUP = os.path.join(ROOT, "scripts/slurm-setup.sh")
TRIALS = 24
#: Of which a step takes so long that the trial takes a second or two.
GRID = ["num_workers=0,1,2,3", "batch.size=4,8,16", "seed=1,2"]


def overridden(*sets):
    return [word for one in sets for word in ("--set", one)]


class Sweep:
    """One in a folder of its own."""

    def __init__(self, folder, grid, options=""):
        self.folder = os.path.join(folder, "sweep")
        sets = ["device=emulated:custom", "emulated.step_base=40ms", "warmup_steps=2", "generate.images=64",
                f"source.path={folder}/data"]
        grids = [word for key in grid for word in ("--grid", key)]
        self.words = [BINARY, "sweep", os.path.join(ROOT, "configs/quickstart.toml"), "--repeats", "1", "--steps", "30",
                      *grids, *overridden(*sets), "--out", self.folder,
                      "--launcher", f"slurm {options}".strip()]

    def start(self):
        return subprocess.Popen(self.words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def records(self):
        try:
            with open(os.path.join(self.folder, "trials.jsonl")) as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def wait_for(self, count):
        while len(self.records()) < count:
            time.sleep(0.05)

    def starts(self):
        """How often each trial was started."""
        starts = collections.Counter()
        for path in glob.glob(os.path.join(self.folder, "stallscope-*.out")):
            with open(path) as file:
                starts.update(line.split()[1] for line in file if line.startswith("trial "))
        return starts

    def running(self):
        """The trials in flight."""
        with open(os.path.join(self.folder, "slurm-arrays.json")) as file:
            places = {array["name"]: array["places"] for array in json.load(file)}
        while True:
            said = subprocess.run(["squeue", "--noheader", "--array", "--states=RUNNING", "--format=%j %K"], check=True,
                                  capture_output=True, text=True)
            if jobs := [line.split() for line in said.stdout.splitlines()]:
                return {"{point}-{repeat}".format(**places[name][int(index)]) for name, index in jobs}

    def judge(self, name, in_flight, outcomes):
        """Prints what became of it; `outcomes` are those expected, by how many."""
        records = self.records()
        places = collections.Counter(f"{r['point']}-{r['repeat']}" for r in records)
        twice = {trial for trial, count in self.starts().items() if count > 1}
        results = collections.Counter(r["result"] for r in records)
        nodes = collections.Counter(r["node"]["host"] for r in records if "node" in r)
        good = len(places) == TRIALS == len(records) and twice <= in_flight and results == outcomes
        print(f"{'ok' if good else 'NO'}  {name}: {len(places)} of {TRIALS} trials, {dict(results)}, by node {dict(nodes)}, "
              f"started twice {sorted(twice)}, in flight {sorted(in_flight)}", flush=True)
        return good


def undisturbed(folder):
    sweep = Sweep(folder, GRID)
    sweep.start().communicate()
    return sweep.judge("undisturbed", set(), {"fits": TRIALS})


def node(folder):
    """The daemon of a node and the trial on it are killed; the node comes back a while later."""
    sweep = Sweep(folder, GRID)
    process = sweep.start()
    sweep.wait_for(6)
    in_flight = sweep.running()
    subprocess.run([SETUP, "kill", "n1"], check=True)
    time.sleep(25)
    subprocess.run([SETUP, "start", "n1"], check=True)
    process.communicate()
    return sweep.judge("a node killed", in_flight, {"fits": TRIALS})


def limit(folder):
    """One trial takes hours, and a job may take a minute."""
    launches = [f"{number}ms" for number in range(TRIALS - 1)] + ["3600s"]
    sweep = Sweep(folder, [f"emulated.launch={','.join(launches)}"], "--time=1")
    sweep.start().communicate()
    late = [r["reason"].splitlines()[0] for r in sweep.records() if r["result"] == "failed"]
    print(f"    {late}")
    return sweep.judge("a trial over its limit", set(), {"fits": TRIALS - 1, "failed": 1})


def killed(folder):
    sweep = Sweep(folder, GRID)
    process = sweep.start()
    sweep.wait_for(6)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    in_flight = sweep.running()
    time.sleep(4)
    sweep.start().communicate()
    return sweep.judge("the sweep killed", in_flight, {"fits": TRIALS})


#: A disk that takes 4 ms a read, any number of them at a time.
SLOW_DISK = ["storage.emulate=custom", "storage.latency=4ms", "storage.seek=0ms", "storage.bandwidth=10GB/s"]
#: With a device that takes 20 ms a batch of 10: trials do not slow each other down, though both nodes are this machine.
TUNED = [*SLOW_DISK, "device=emulated:custom", "emulated.step_base=20ms", "batch.size=10", "num_workers=1", "generate.images=400"]


def tune(folder):
    def found(name, *options):
        began = time.monotonic()
        words = [BINARY, "tune", os.path.join(ROOT, "configs/quickstart.toml"), "--max-workers", "6", "--steps", "40", "--json",
                 *overridden(*TUNED, f"source.path={folder}/data"), "--out", os.path.join(folder, name), *options]
        done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(done.stdout), time.monotonic() - began

    alone, seconds_alone = found("alone")
    both, seconds = found("both", "--launcher", "slurm", "--jobs", "2")
    with open(os.path.join(folder, "both/launched/trials.jsonl")) as file:
        nodes = collections.Counter(json.loads(line)["node"]["host"] for line in file)
    ratio = both["winner"]["samples_per_second"] / alone["winner"]["samples_per_second"]
    good = ratio > 0.97 and len(nodes) == 2
    print(f"{'ok' if good else 'NO'}  tune: {ratio:.3f} of the winner of trials one after another ({alone['winner']['sets']}, and "
          f"{both['winner']['sets']}), {len(alone['trials'])} trials in {seconds_alone:.0f} s and {len(both['trials'])} in "
          f"{seconds:.0f} s, by node {dict(nodes)}", flush=True)
    return good


def ranks(folder):
    """Rank 2 has the slow disk."""
    out = os.path.join(folder, "run")
    command = [BINARY, "run", os.path.join(ROOT, "configs/quickstart.toml"), "--run-dir", out, "--quiet",
               *overridden("rank.all_reduce=true", "device=emulated:custom", "emulated.step_base=5ms", "batch.size=8", "steps=40",
                           "generate.images=400", f"source.path={folder}/data")]
    shell = f'[ $SLURM_PROCID = 2 ] && set -- "$@" {" ".join(overridden(*SLOW_DISK))}; exec "$@"'
    subprocess.run(["srun", "--nodes=2", "--ntasks=4", "--overcommit", "sh", "-c", shell, "sh", *command], cwd=ROOT, check=True)
    said = subprocess.run([BINARY, "report", out, "--json"], check=True, stdout=subprocess.PIPE).stdout
    merged = json.loads(said)
    charge = next(iter(merged["charges"]), {})
    good = len(merged["standing"]) == 4 and (charge.get("rank"), charge.get("stage")) == (2, "read")
    print(f"{'ok' if good else 'NO'}  ranks: {len(merged['standing'])} of 4, waits charged to rank {charge.get('rank')}, "
          f"{charge.get('stage')}", flush=True)
    return good


def main():
    checks = {check.__name__: check for check in (undisturbed, node, limit, killed, tune, ranks)}
    chosen = sys.argv[1:] or list(checks)
    if not set(chosen) <= set(checks):
        sys.exit(__doc__)
    subprocess.run([SETUP, "start"], check=True)
    good = []
    for name in chosen:
        with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target")) as folder:
            good.append(checks[name](folder))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
