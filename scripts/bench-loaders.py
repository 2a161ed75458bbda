#!/usr/bin/env python3
"""Our loader alone and other people's loaders, in turns, on the same files: one table.

    scripts/bench-loaders.sh --images FOLDER --mnist FOLDER [--python PEER_PYTHON] [--scratch DIR] [--out RESULTS.jsonl]
                             [--rounds 5] [--seconds 8] [--workers 2] [--tasks jpeg-train,mnist] [--only REGEX] [--list]

The tasks: `jpeg-train`, random-resized crop to 224, flip, normalise, batches of 64; `jpeg-center`, the shorter side to
256, the middle 224, normalise, batches of 64; `raw`, jpeg-train from pixels that were decoded beforehand (ours with the
longer side at 256, the peer's at full size, so it reads more); `raw u8`, ours alone: the same shards copied whole for
the device to crop, resize, flip and normalise, which is done nowhere here; `mnist`, MNIST's IDX files, normalised, shuffled,
batches of 128. Our recorder is on. Build with `cargo build --release` first.

A round runs each entry once, every other round backwards. What fails is reported and left out from then on. The table
has medians over the rounds. `of best` is images/s over the task's best peer's, `of least` CPU time an image over that
of its thriftiest peer. Peak MB: ours is the process's peak resident set, a peer's the sum of its processes'. Clock and
CPU time start after about a second of batches, for peers and for ours.

memcpy: --workers threads copy their parts of an array of 256 MB into another, again and again; GB/s are 1e9 bytes read
and bytes written together, so each byte copied counts twice. `output` is what our loader hands over, and `of memcpy`
that over memcpy's figure: a loader that did nothing but copy its batches once would reach 50 %.

The peers' scripts (--peers) print one JSON line each; see their README. --scratch keeps what they and we make on first
use: empty it when the images change.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# For each task the batch size and a guess of our images/s, for the pilot run.
TASKS = {"jpeg-train": (64, 300.0), "jpeg-center": (64, 300.0), "raw": (64, 1000.0), "raw u8": (64, 10000.0), "mnist": (128, 1e6)}

# Ours: name -> (task, configuration, what to set besides the data, the workers, the batch and the steps).
CENTER = ["preprocess.crop=center", "preprocess.flip=0"]
SHARD = ["source.kind=shard"]
OURS = {
    "jpeg-train ours image": ("jpeg-train", "loader-train", ["decode.decoder=image"]),
    "jpeg-train ours turbojpeg": ("jpeg-train", "loader-train", ["decode.decoder=turbojpeg", "read.method=pread"]),
    "jpeg-center ours image": ("jpeg-center", "loader-train", [*CENTER, "decode.decoder=image"]),
    "jpeg-center ours turbojpeg": ("jpeg-center", "loader-train", [*CENTER, "decode.decoder=turbojpeg", "read.method=pread"]),
    "raw-train ours": ("raw", "loader-train", SHARD),
    "raw-train ours u8": ("raw u8", "loader-train", [*SHARD, "preprocess.on=device"]),
    "mnist ours": ("mnist", "mnist-linear", []),
    "mnist ours w0": ("mnist", "mnist-linear", ["num_workers=0"]),
}

# Each peer in the settings it does best in; W is --workers.
IMAGE_PEERS = {
    "torch_pil wW": "torch_pil.py --workers W",
    "torch_io wW": "torch_io.py --workers W",
    "spdl image wW": "spdl_threads.py --workers W --unit image",
    "spdl batch wW": "spdl_threads.py --workers W --unit batch",
    "tf_data wW": "tf_data.py --workers W",
    "tf_data antialias wW": "tf_data.py --workers W --antialias",
    "grain threads wW": "grain_loader.py --workers W --mode threads",
    "grain procs wW": "grain_loader.py --workers W --mode procs",
    "dali_cpu wW": "dali_cpu.py --workers W",
    "ffcv wW": "ffcv_loader.py --workers W --scratch SCRATCH",
    "webdataset wW": "webdataset_loader.py --workers W --scratch SCRATCH",
}
BARE = {  # with --bare: no loaders, but loops over a decoder and a resize
    "limit turbojpeg wW": "limit.py --workers W --backend turbojpeg",
    "limit turbojpeg scaled wW": "limit.py --workers W --backend turbojpeg --scaled",
    "limit simplejpeg wW": "limit.py --workers W --backend simplejpeg",
}
RAW_PEERS = {"ffcv raw wW": "ffcv_loader.py --workers W --scratch SCRATCH --write raw"}
MNIST_PEERS = {
    "torch_pil w0": "torch_pil.py --workers 0",
    "torch_pil w0 1thread": "torch_pil.py --workers 0 --torch-threads 1",
    "torch_pil wW": "torch_pil.py --workers W",
    "torch_io w0": "torch_io.py --workers 0",
    "torch_io w0 1thread": "torch_io.py --workers 0 --torch-threads 1",  # torch's own threads spin
    "torch_io wW": "torch_io.py --workers W",
    "spdl wW": "spdl_threads.py --workers W",
    "tf_data vectorised wW": "tf_data.py --workers W --vectorised",
    "grain w0": "grain_loader.py --workers 0",
    "grain procs wW": "grain_loader.py --workers W",
    "dali_cpu wW": "dali_cpu.py --workers W",
    "ffcv wW": "ffcv_loader.py --workers W --scratch SCRATCH",
    "limit numpy w0": "limit.py --workers 0",
    "limit numpy wW": "limit.py --workers W",
}

MEMCPY = """
import sys, threading, time
import numpy as np
threads, seconds = int(sys.argv[1]), float(sys.argv[2])
source, target = np.ones(256_000_000, np.uint8), np.zeros(256_000_000, np.uint8)
parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
copied, start, stop = [0] * threads, threading.Barrier(threads + 1), []
def copy(k):
    a, b = parts[k]
    start.wait()
    while not stop:
        np.copyto(b, a)
        copied[k] += a.nbytes
pool = [threading.Thread(target=copy, args=(k,)) for k in range(threads)]
for t in pool: t.start()
start.wait()
begin = time.perf_counter()
time.sleep(seconds)
stop.append(True)
for t in pool: t.join()
print(2 * sum(copied) / (time.perf_counter() - begin))
"""


class Failed(Exception):
    pass


def child(command, timeout):
    """What the command printed, and its peak resident set in MB. It has a process group of its own, so that its
    workers end with it. Linux starts a process's peak at its parent's size: keep this script small (no NumPy)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            p = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True, cwd=ROOT,
                                 env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        except OSError as e:
            raise Failed(str(e)) from None

        timed_out = threading.Event()

        def kill():
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

        timer = threading.Timer(timeout, lambda: (timed_out.set(), kill()))
        timer.daemon = True
        try:
            timer.start()
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if p.returncode != 0:
                kill()
        out.seek(0)
        err.seek(0)
        if p.returncode:
            said = " ".join(err.read().split())
            raise Failed(f"timed out after {timeout:.0f} s" if timed_out.is_set() else
                         f"exit {p.returncode}: {said if len(said) < 300 else '...' + said[-300:]}")
        return out.read(), usage.ru_maxrss * 1024 / 1e6


def run_ours(a, name, rate, seconds):
    """One run of ours, as long as `seconds` at `rate` images/s, after a second of warm-up."""
    task, config, sets = OURS[name]
    batch = TASKS[task][0]
    data = a.mnist if task == "mnist" else a.shards if task.startswith("raw") else a.images
    sets = [f"source.path={data}", f"num_workers={a.workers}", f"batch.size={batch}", "epochs=1000000",
            f"warmup_steps={max(2, int(rate / batch))}", f"steps={max(5, int(rate * seconds / batch))}", *sets]
    with tempfile.TemporaryDirectory() as out:
        _, peak = child([a.binary, "run", f"configs/{config}.toml", "--run-dir", out, "--trace", "none", "--quiet",
                         "--mode", "loader-only", *(x for s in sets for x in ("--set", s))], a.timeout)
        with open(os.path.join(out, "report.json")) as f:
            report = json.load(f)
    handed = [s["bytes_out"] / s["items"] for s in report["stages"] if s["stage"] == "copy" and s["items"]]
    seconds = report["window_ns"] / 1e9
    return {"images_per_s": report["samples_per_second"], "seconds": seconds, "images": report["samples"],
            "cpu_us_per_image": report["process_cpu_ns"] / 1e3 / report["samples"], "peak_rss_mb": peak,
            "output_bytes_per_s": handed[0] * report["steps"] / seconds if handed else None}


def ours(a, name, rates):
    if OURS[name][0].startswith("raw"):
        pack(a)
    if name not in rates:
        rates[name] = run_ours(a, name, TASKS[OURS[name][0]][1], 1)["images_per_s"]
    result = run_ours(a, name, rates[name], a.seconds)
    rates[name] = result["images_per_s"]
    return result


def pack(a):
    """Makes the shards unless they are there."""
    if not os.path.exists(a.shards):
        part = a.shards + ".part"
        shutil.rmtree(part, ignore_errors=True)
        os.makedirs(os.path.dirname(a.shards), exist_ok=True)
        try:
            child([a.binary, "data", "pack", a.images, part, "--raw", "256"], a.timeout)
            os.rename(part, a.shards)
        except (Failed, OSError) as e:
            raise Failed(f"no shards: {e}") from None


def peer(a, task, command):
    script, *options = (a.scratch if x == "SCRATCH" else x for x in command.split())
    text, _ = child([a.python, os.path.join(a.peers, script), *options, "--data",
                     a.mnist if task == "mnist" else a.images, "--batch", str(TASKS[task][0]), "--size", "224",
                     "--seconds", str(a.seconds), "--task", "jpeg-train" if task == "raw" else task], a.timeout)
    lines = [x for x in text.splitlines() if x.startswith("{")]
    if not lines:
        raise Failed("it printed no JSON line")
    return json.loads(lines[-1])


def memcpy(a):
    text, _ = child([a.python, "-c", MEMCPY, str(max(1, a.workers)), "1"], a.timeout)
    return {"bytes_per_s": float(text)}


def entries(a):
    """(name, task, whose, how to run it), in the order of a round."""
    rates = {}
    todo = [("memcpy", None, "memcpy", lambda: memcpy(a))]
    for task in a.tasks:
        for name, (its, _, _) in OURS.items():
            if its == task:
                todo.append((name, task, "ours", lambda name=name: ours(a, name, rates)))
        peers = {"mnist": MNIST_PEERS, "raw": RAW_PEERS, "raw u8": {}}.get(task, {**IMAGE_PEERS, **(BARE if a.bare else {})})
        for name, command in peers.items() if a.peers else ():
            command = re.sub(r"\bW\b", str(a.workers), command)
            name = f"{'raw-train' if task == 'raw' else task} {name.replace('wW', f'w{a.workers}')}"
            todo.append((name, task, "peer", lambda task=task, command=command: peer(a, task, command)))
    kept = [e for e in todo if e[2] != "memcpy" and re.search(a.only, e[0])]
    kept = [e for e in kept if not (a.skip and re.search(a.skip, e[0]))]
    return ([todo[0]] if any(e[2] == "ours" for e in kept) else []) + kept


def show(rows, failed, tasks):
    """The table: `rows` are the lines of --out."""
    def median(name, key):
        values = [r[key] for r in rows if r["name"] == name and r.get(key) is not None]
        return statistics.median(values) if values else None

    def cell(value, form, width):
        return f"{'-' if value is None else format(value, form):>{width}}"

    copy = median("memcpy", "bytes_per_s")
    print(f"\n{'medians':34} {'runs':>4} {'images/s':>11} {'min..max':>23} {'of best':>7} {'CPU us/image':>12} "
          f"{'of least':>8} {'peak MB':>8} {'output MB/s':>11} {'of memcpy':>9}")
    for task in tasks:
        names = {r["name"]: r["whose"] for r in rows if r["task"] == task}
        rates = {n: median(n, "images_per_s") for n in names}
        cpus = {n: median(n, "cpu_us_per_image") for n in names}
        theirs = [n for n in names if names[n] == "peer"]
        best, least = (max(rates[n] for n in theirs), min(cpus[n] for n in theirs)) if theirs else (None, None)
        for n in sorted(names, key=rates.get, reverse=True):
            each = [r["images_per_s"] for r in rows if r["name"] == n]
            output = median(n, "output_bytes_per_s")
            print(f"{n:34} {len(each):4} {rates[n]:11,.0f} {f'{min(each):,.0f}..{max(each):,.0f}':>23} "
                  f"{cell(best and rates[n] / best, '.2f', 7)} {cpus[n]:12,.2f} "
                  f"{cell(least and cpus[n] / least, '.2f', 8)} {median(n, 'peak_rss_mb'):8,.0f} "
                  f"{cell(output and output / 1e6, ',.0f', 11)} "
                  f"{cell(output and copy and output / copy, '.1%', 9)}")
        if names:
            print()
    if copy:
        workers = {r["workers"] for r in rows}
        print(f"memcpy: {copy / 1e9:.2f} GB/s read + written ({copy / 2e9:.2f} GB/s copied), "
              f"{'/'.join(map(str, sorted(workers)))} threads, 256 MB")
    for name, why in failed.items():
        print(f"left out: {name}: {why}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--images", help="a folder of JPEGs, one folder a class")
    p.add_argument("--mnist", help="the folder of MNIST's files")
    p.add_argument("--peers", default=os.path.join(ROOT, "../shared/bench/peers"), help="the peers' scripts")
    p.add_argument("--python", default="python3", help="the Python that has the peers")
    p.add_argument("--scratch", default=os.path.join(tempfile.gettempdir(), "bench-loaders"))
    p.add_argument("--shards", help="raw shards, made of the images on first use [SCRATCH/raw-256]")
    p.add_argument("--binary", default=os.path.join(ROOT, "target/release/stallscope"))
    p.add_argument("--out", help="a line is appended for each run")
    p.add_argument("--table", action="store_true", help="run nothing, show the table of --out (an interrupted run's)")
    p.add_argument("--tasks", default=",".join(TASKS))
    p.add_argument("--only", default="")
    p.add_argument("--skip", default="")
    p.add_argument("--bare", action="store_true", help="with the bare decoding loops of limit.py on the JPEGs too")
    p.add_argument("--list", action="store_true")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--timeout", type=float, default=900, help="seconds for one run, with what it makes on first use")
    a = p.parse_args()
    a.tasks = a.tasks.split(",")
    if unknown := [t for t in a.tasks if t not in TASKS]:
        p.error(f"no such task: {', '.join(unknown)} (there are {', '.join(TASKS)})")
    if a.table:
        if not a.out:
            p.error("--table needs --out")
        with open(a.out) as f:
            return show([json.loads(line) for line in f], {}, a.tasks)
    for key in ("images", "mnist", "peers", "scratch", "shards", "binary"):
        if getattr(a, key):
            setattr(a, key, os.path.abspath(getattr(a, key)))
    if os.sep in a.python:
        a.python = os.path.abspath(a.python)
    a.shards = a.shards or os.path.join(a.scratch, "raw-256")
    if not os.path.isdir(a.peers):
        print(f"only ours: there are no peers in {a.peers} (--peers)")
        a.peers = None
    for task in list(a.tasks):
        if not (a.mnist if task == "mnist" else a.images):
            print(f"{task} is left out: it needs --{'mnist' if task == 'mnist' else 'images'}")
            a.tasks.remove(task)
    todo = entries(a)
    if a.list:
        print(*(name for name, *_ in todo), sep="\n")
        return
    os.makedirs(a.scratch, exist_ok=True)
    rows, failed = [], {}
    try:
        for n in range(a.rounds):
            for name, task, whose, run in todo if n % 2 == 0 else todo[::-1]:
                if name in failed:
                    continue
                try:
                    result = run()
                except (Failed, OSError, ValueError, LookupError) as e:
                    failed[name] = str(e) if isinstance(e, Failed) else repr(e)
                    print(f"round {n + 1}: {name}: FAILED, left out from now on: {failed[name]}", flush=True)
                    continue
                rows.append({**result, "name": name, "task": task, "whose": whose, "round": n + 1,
                             "workers": a.workers, "load1": os.getloadavg()[0], "unix_seconds": time.time()})
                if a.out:
                    with open(a.out, "a") as f:
                        f.write(json.dumps(rows[-1]) + "\n")
                print(f"round {n + 1}: {name}: " + (
                    f"{result['bytes_per_s'] / 1e9:.2f} GB/s" if whose == "memcpy" else
                    f"{result['images_per_s']:.0f} images/s, {result['cpu_us_per_image']:.2f} us CPU each"), flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    show(rows, failed, a.tasks)


if __name__ == "__main__":
    main()
