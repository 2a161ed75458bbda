#!/usr/bin/env python3
"""How long analysing a large trace of torch.profiler takes, and how much memory: stallscope, HTA and Perfetto's engine, in turns.

usage: analyze_large.py make TRACE [--bytes 500000000]
       analyze_large.py measure TRACE [--rounds 3] [--hta PYTHON] [--perfetto]

`make` writes steps as a training of a large model on one GPU has them: operators with shapes and call stacks, launches, kernels,
a copy, and waits for a DataLoader. `measure` runs each program as a process of its own and prints MB of JSON a second of wall time,
CPU time and peak resident memory, medians over the rounds. `stallscope` must be on the PATH; --hta is a Python that has
HolisticTraceAnalysis, which answers `get_temporal_breakdown`; --perfetto needs scripts/perfetto-setup.sh and counts slices.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Operators of a step, each with a launch and a kernel.
OPERATORS = 1500
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
print(TraceAnalysis(trace_files={0: sys.argv[1]}).get_temporal_breakdown(visualize=False))
"""


def step_of(number: int):
    """Its events, from the time at which it begins; one lasts 100 ms."""
    at = 100_000.0 * number
    main = {"ph": "X", "pid": 25738, "tid": 25738}

    def mark(name, start, length):
        return {**main, "cat": "user_annotation", "name": name, "ts": at + start, "dur": length, "args": {"External id": 3 * number}}

    yield mark(f"ProfilerStep#{number}", 0.0, 99_900.0)
    yield mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 50.0, 9_000.0)
    free = at + 12_000.0
    for place in range(OPERATORS):
        start, correlation = at + 10_000.0 + 50.0 * place, number * OPERATORS + place + 1
        external = {"External id": correlation, "Ev Idx": correlation}
        shapes = {"Input Dims": [[64, 256, 56, 56], [64, 256, 1, 1], [], [], []], "Input type": ["float", "float", "", "ScalarList", ""]}
        stack = ";".join(f"/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py({1500 + depth}): _call_impl" for depth in range(4))
        yield {**main, "cat": "cpu_op", "name": f"aten::operator_{place % 97}", "ts": start, "dur": 40.0,
               "args": {**external, **shapes, "Call stack": stack}}
        is_copy = place == 0
        name = "cudaMemcpyAsync" if is_copy else "cudaLaunchKernel"
        yield {**main, "cat": "cuda_runtime", "name": name, "ts": start + 20.125, "dur": 6.5,
               "args": {"cbid": 211, "correlation": correlation, "External id": correlation}}
        begun = max(free, start + 30.0)
        free = begun + 42.0
        device = {"ph": "X", "pid": 0, "tid": 7, "ts": begun, "dur": 42.0}
        args = {"External id": correlation, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": correlation}
        if is_copy:
            yield {**device, "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "args": {**args, "bytes": 38_535_168}}
        else:
            yield {**device, "cat": "kernel", "name": f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor{place % 97}<float> >",
                   "args": {**args, "registers per thread": 32, "shared memory": 0, "grid": [3136, 1, 1], "block": [128, 1, 1]}}
        yield {"ph": "s", "id": correlation, "pid": 25738, "tid": 25738, "ts": start + 20.125, "cat": "ac2g", "name": "ac2g"}
        yield {"ph": "f", "id": correlation, "pid": 0, "tid": 7, "ts": begun, "cat": "ac2g", "name": "ac2g", "bp": "e"}


def make(path: Path, size: int) -> None:
    gpus = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}]
    with open(path, "w") as file:
        written = file.write(json.dumps({"schemaVersion": 1, "deviceProperties": gpus})[:-1] + ', "traceEvents": [\n')
        number = 0
        while written < size:
            for place, event in enumerate(step_of(number)):
                between = "" if number == place == 0 else ",\n"
                written += file.write(between + json.dumps(event))
            number += 1
        file.write('\n], "traceName": "made", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1727000000000000000}\n')
    print(f"{path}: {written / 1e6:.0f} MB, {number} steps")


def run(command: "list[str]") -> "tuple[float, float, float]":
    """Wall time, CPU time, and peak memory in MB."""
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed: {errors.decode()[-2000:]}")
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(path: Path, rounds: int, hta: "str | None", perfetto: bool) -> None:
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as folder:
        programs = {"stallscope": ["stallscope", "analyze", "-q", "--run-dir", folder, str(path)]}
        if hta:
            programs["HTA"] = [hta, "-c", HTA, str(path.resolve())]
        if perfetto:
            engine = subprocess.run([here / "perfetto-setup.sh"], check=True, capture_output=True, text=True).stdout.strip()
            sql = [here / "perfetto-sql.mjs", engine, path, "select count(*) from slice"]
            programs["Perfetto's engine"] = ["node", *map(str, sql)]
        ran = {name: [] for name in programs}
        for _ in range(rounds):
            for name, command in programs.items():
                ran[name].append(run(command))
    size = path.stat().st_size / 1e6
    print(f"{path.name}, {size:.0f} MB, medians of {rounds} rounds in turns")
    for name, all_ran in ran.items():
        wall, cpu, memory = (statistics.median(column) for column in zip(*all_ran))
        print(f"  {name:18} {size / wall:7.1f} MB/s  wall {wall:7.2f} s  CPU {cpu:7.2f} s  peak {memory:7.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "measure"))
    parser.add_argument("trace", type=Path)
    parser.add_argument("--bytes", type=float, default=500e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--perfetto", action="store_true")
    asked = parser.parse_args()
    match asked.what:
        case "make":
            make(asked.trace, int(asked.bytes))
        case _:
            measure(asked.trace, asked.rounds, asked.hta, asked.perfetto)


if __name__ == "__main__":
    main()
