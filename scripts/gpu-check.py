#!/usr/bin/env python3
"""What a release binary does on a machine with one NVIDIA GPU, check by check.

    scripts/gpu-check.sh [BINARY] [--only a,c] [--out DIR] [--record FILE] [--budget-seconds 500]
    scripts/gpu-check.sh --list | --self-test

BINARY is `stallscope` as built for release ($STALLSCOPE, or target/release/stallscope). A check that fails, or takes
longer than its share, does not stop the others; the most important come first. The table is written as it grows to
FILE (benches/results/DATE-gpu-check.txt), and printed. DIR (target/gpu-check) keeps the data, the reports, and what
was tuned and compiled for the GPU: a second check is spared all that. Exit status: 0 all pass, 1 one fails, 2 none
fails but some could not be run, as on a machine without a GPU. `--device emulated:resnet50-a100` rehearses the
script on a machine without one. Python's standard library is all it needs; no network, no cargo.
"""
import argparse
import functools
import os
import platform
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import gpu_judges as judges
from gpu_bench import TOO_LARGE, WIDE, Bench, Failed, OutOfTime, message, parsed
from gpu_smi import watched

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = ["model.kind=resnet50", "model.precision=bf16", "model.classes=1000", "model.learning_rate=0.001"]
FITS = re.compile(r"batch\.size=(\d+), which fits")


def check_doctor(bench):
    return judges.doctor(parsed(bench.must("doctor", "--json")))


def small_run(bench, model, device=None, *sets):
    """Some steps on small pictures, the same on every device."""
    small = ["preprocess.size=64", "batch.size=4", "model.learning_rate=0.001"]
    config, own = ("jpeg", small) if model.startswith("resnet") else ("digits", ["batch.size=64"])
    device = device or bench.device
    name = "-".join(["losses", model, device.split(":")[0], *(one.split("=")[1] for one in sets)])
    return bench.report(name, config, [f"model.kind={model}", "warmup_steps=2", "steps=20", *own, *sets], device)


def check_losses(bench):
    models = ["linear", "dense", "resnet18", "resnet50"]
    for config in ("digits", "jpeg"):
        bench.config(config)
    # On the GPU one after another: kernels are not tuned well beside each other.
    with ThreadPoolExecutor(len(models)) as cpu, ThreadPoolExecutor(1) as gpu:
        on_cpu = [cpu.submit(small_run, bench, model, "cpu") for model in models]
        on_gpu = [gpu.submit(small_run, bench, model) for model in models]
    rows = []
    for model, cpu, gpu in zip(models, on_cpu, on_gpu):
        rows += judged(f"{model}: losses as on the CPU", lambda: judges.losses(model, cpu.result(), gpu.result()))
    return rows


def check_precision(bench):
    rows = []
    for precision in ("bf16", "f16"):
        run = functools.partial(small_run, bench, "resnet18", None, f"model.precision={precision}")
        rows += judged(f"{precision}: losses as in f32",
                       lambda: judges.precision(precision, small_run(bench, "resnet18"), run()))
    return rows


def check_ahead(bench):
    """Batches of a wide model come far faster than it takes them: their memory must not be given out again while
    steps that run ahead still read it."""
    wide = ["batch.size=1024", "model.hidden=[16384, 8192]", "model.learning_rate=0.001"]
    runs = [small_run(bench, "dense", None, *wide, f"gpu.run_ahead={ahead}") for ahead in (0, 8)]
    return judges.ahead(*runs)


def check_planted(bench):
    # A timeline that is off has exit status 1 and figures; without figures there is a message.
    status, said, errors = bench.call("doctor", "--planted-kernels", "--device", "cuda:0", "--json")
    if status is None:
        raise OutOfTime("out of time: doctor --planted-kernels")
    if "{" not in said:
        raise Failed(f"exit {status}: doctor --planted-kernels: {message(errors)}")
    return judges.planted(parsed(said))


def check_preparation(bench):
    """The first run compiles and tunes; the second finds that done."""
    first, again = (raw_run(bench, name, "warmup_steps=0", "steps=5") for name in ("first-use", "again"))
    return judges.preparation(first, again)


def check_cupti(bench):
    pairs, longest = [], 0.0

    def rate(pair, timeline):
        sets = ["mode=device-only", "steps=60", f"gpu.timeline={timeline}"]
        return judges.get(raw_run(bench, f"cupti-{pair:02}-{timeline}", *sets), "samples_per_second")

    for pair in range(judges.PAIRS):
        began = time.monotonic()
        if bench.left() < 1.2 * longest:
            break
        # The order alternates, so that neither gains from a machine that warms up.
        order = ["cupti", "events"] if pair % 2 == 0 else ["events", "cupti"]
        try:
            rates = {timeline: rate(pair, timeline) for timeline in order}
        except OutOfTime:
            break
        pairs.append((rates["cupti"], rates["events"]))
        longest = max(longest, time.monotonic() - began)
    return judges.cupti_cost(pairs)


def jpeg_run(bench, workers):
    # Few steps where they are slow; what is not decode must not bind.
    steps = 30 if workers < 4 else 60
    sets = [f"decode.workers={workers}", "preprocess.workers=4", "read.workers=2", f"steps={steps}"]
    return bench.report(f"jpeg-{workers}", "jpeg", [*MODEL, *sets])


def raw_run(bench, name="raw", *sets):
    workers = ["decode.workers=2", "preprocess.workers=12", "read.workers=2", "batch.prefetch=4"]
    return bench.report(name, "raw", [*MODEL, *workers, *sets])


def check_bounds(bench):
    rows = judged("starved: top cause of idle", lambda: judges.starved(jpeg_run(bench, 1)))
    own = functools.partial(raw_run, bench, "device-only", "mode=device-only")
    rows += judged("saturated", lambda: judges.saturated(raw_run(bench), own()))
    return rows + judged("saturated: copies beside kernels", lambda: judges.overlapped(raw_run(bench)))


def check_timeline(bench):
    """Needs no run of its own."""
    rows = judged("the GPU's own timeline", lambda: judges.timeline(raw_run(bench)))
    return rows + judged("device memory", lambda: judges.device_memory(raw_run(bench)))


def check_side_by_side(bench):
    rows = []
    settings = [(f"JPEG, decode.workers={workers}", functools.partial(jpeg_run, bench, workers))
                for workers in (1, 2, 4, 12)]
    for name, run in [*settings, ("raw shard", functools.partial(raw_run, bench))]:
        rows += judged(f"side by side: {name}", lambda: judges.side_by_side(name, run()))
    return rows


def check_smi(bench):
    """The same counters, asked for by nvidia-smi beside a run."""
    with watched() as readings:
        report = raw_run(bench, "raw-beside-nvidia-smi")
    return judges.as_nvidia_smi(report, readings)


def check_on_device(bench):
    return judges.on_device(raw_run(bench), raw_run(bench, "raw-on-device", "preprocess.on=device"))


def check_copies(bench):
    rows = []
    for key in ["copy.pinned", "copy.overlap"]:
        off = functools.partial(raw_run, bench, f"raw-no-{key.split('.')[1]}", f"{key}=false")
        rows += judged(f"{key} off -> on", lambda: judges.compared(key, off(), raw_run(bench), bench.any_speed))
        rows += judged(f"{key}: what the GPU says", lambda: judges.copied_as_asked(key, off(), raw_run(bench)))
    return rows


def check_fallbacks(bench):
    rows = []
    for source in ("events", "host"):
        run = functools.partial(raw_run, bench, f"raw-{source}", f"gpu.timeline={source}", "steps=60")
        rows += judged(f"gpu.timeline = {source}", lambda: judges.fallback(source, run(), raw_run(bench)))
    return rows


def check_memory(bench):
    # Two batches in all, made by the trainer's thread: more would be the host's memory.
    sets = [*WIDE, "warmup_steps=0", "steps=2", "num_workers=0"]
    arguments = bench.run_arguments("too-large", "specks", [*sets, f"batch.size={TOO_LARGE}"])
    status, _, errors = bench.call(*arguments, seconds=70)
    rows = judges.out_of_memory(status, errors, next(map(int, FITS.findall(errors)), None))
    sets = [*sets, "batch.size=8192"]
    sets = [part for one in [*sets, *bench.sets] for part in ("--set", one)]
    status, said, errors = bench.call("batch-size", bench.config("specks"), "--device", bench.device, "--min",
                                      "8192", "--steps", "3", "--json", *sets)
    if status != 0:
        return rows + judges.size_fits(None, None, errors)
    found = parsed(said)
    size = judges.get(found, "largest.batch_size")
    arguments = bench.run_arguments("largest", "specks", [*WIDE, "steps=3", "num_workers=0", f"batch.size={size}"])
    again, _, _ = bench.call(*arguments)
    return rows + judges.size_fits(size, again, judges.get(found, "limited_by"))


def check_kernels(bench):
    """On cuda:0 in any case: nothing else has plain kernels."""
    def timed(device, *arguments):
        return parsed(bench.must("time-kernels", "--json", "--device", device, *arguments))
    kinds = [["--kernels", kind] for kind in ("optimised", "plain")]
    rows = []
    for model in ("vgg16", "resnet50"):
        rows += judged(f"{model}: optimised against plain kernels", lambda: judges.kernels(
            model, *(timed("cuda:0", "--model", model, *kind) for kind in kinds)))
    sizes = ["--matmul", "64,128,256,512,1024,2048"]
    return rows + judged("matrix products", lambda: judges.products(
        timed("cpu", *sizes, "--repeats", "5"), *(timed("cuda:0", *sizes, *kind) for kind in kinds)))


def tables(bench, *wanted):
    """Published tables, each with its options; DIR/reproduce-TABLE has it, to be committed under benches/results."""
    rows = []
    for name, *options in wanted:
        def measured():
            out = bench.path(f"reproduce-{name}")
            return judges.table(parsed(bench.must("reproduce", name, "--json", "--out", out, "--repeats", "1", *options)))
        rows += judged(f"reproduce {name}", measured)
    return rows


def check_tables(bench):
    both = ["--device", "cpu", "--device", bench.device]
    return tables(bench, ("gpu-util", "--device", bench.device), ("mnist-linear", *both))


def check_dense_tables(bench):
    """All epochs that were published, 100 among them, and the sweep over widths, whose CPU column takes long."""
    return tables(bench, ("mnist-dense", "--device", bench.device), ("cifar100-dense", "--device", bench.device))


def check_cnn_table(bench):
    """Five networks by tuned and by plain kernels, each of which is compiled and tuned first."""
    return tables(bench, ("cnn", "--device", bench.device))


def make_data(bench):
    """What most checks run on, so that none of them pays for it."""
    for kind in ("jpeg", "raw", "digits"):
        bench.config(kind)
    figure = f"2048 JPEG (decoder {bench.decoder}), 2048 raw, 4096 of 28x28"
    return [judges.Row("pictures, shard and digits", True, figure, "")]


# In the order in which they run, with the most seconds each may take. Together they may take more than the budget,
# since few need all of theirs: what the time runs out for is the number of d's pairs.
CHECKS = [
    ("data", "pictures, packed and not, and digits are made", 60, make_data),
    ("a", "doctor finds driver, NVML, CUPTI, NVRTC and headers", 20, check_doctor),
    ("c", "planted kernels are measured as planned", 40, check_planted),
    ("j", "kernels are compiled and tuned before the run, once", 130, check_preparation),
    ("b", "losses on cuda:0 and on cpu: linear, dense, ResNet-18, ResNet-50", 90, check_losses),
    ("o", "steps that run ahead learn what those learn that are waited for", 30, check_ahead),
    ("e", "starved and saturated, ResNet-50 in bf16", 60, check_bounds),
    ("k", "CUPTI's records and the device's memory, in the saturated run", 30, check_timeline),
    ("f", "GPU-Util beside device busy, from starved to saturated", 60, check_side_by_side),
    ("h", "copy.pinned and copy.overlap, off and on", 40, check_copies),
    ("g", "preprocess.on = device against host", 40, check_on_device),
    ("l", "gpu.timeline = events and host", 40, check_fallbacks),
    ("n", "NVML against nvidia-smi", 30, check_smi),
    ("m", "bf16 and f16 against f32", 50, check_precision),
    ("p", "optimised against plain kernels, and matrix products on CPU and GPU", 150, check_kernels),
    ("i", "out of memory, and the batch size that fits", 130, check_memory),
    ("q", "reproduce gpu-util and mnist-linear", 150, check_tables),
    ("d", "what CUPTI costs, in interleaved pairs", 250, check_cupti),
    ("r", "reproduce mnist-dense and cifar100-dense", 480, check_dense_tables),
    ("s", "reproduce cnn", 480, check_cnn_table),
]


def judged(what, judge):
    """Rows of a judgement; whatever keeps it from being made is a failure and not the end."""
    try:
        return judge()
    except Exception as error:  # a report in another shape is a finding, too
        known = isinstance(error, (Failed, judges.MissingKey))
        return [judges.Row(what, False, str(error) if known else f"{type(error).__name__}: {error}", "")]


def run_checks(bench, wanted, note):
    """Tells `note` of every row as it comes: check, result, figure, limit, seconds."""
    for letter, title, seconds, check in wanted:
        began = time.monotonic()
        if bench.end - began < 5:
            note((f"{letter} {title}", "NOT RUN", "the time is used up", "", 0.0))
            continue
        bench.deadline = min(bench.end, began + seconds)
        print(f"{letter} {title} ...", file=sys.stderr)
        rows = judged(title, lambda: check(bench))
        for number, row in enumerate(rows):
            took = time.monotonic() - began if number == 0 else 0.0
            note((f"{letter} {row.what}", "PASS" if row.holds else "FAIL", row.figure, row.limit, took))


def format_table(table):
    lines = [("check", "result", "seconds", "limit", "figure")]
    lines += [(check, result, f"{took:.1f}" if took else "", limit, figure)
              for check, result, figure, limit, took in table]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    padded = ("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[4]]) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def facts(binary):
    """The machine, and what was checked."""
    def said(*command):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=20)
            return done.stdout if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            return ""

    smi = said("nvidia-smi", "-q")
    found = [re.search(pattern, smi) for pattern in (
        r"Product Name +: (.+)", r"Driver Version +: (.+)", r"CUDA Version +: (.+)",
        r"FB Memory Usage\s+Total +: (.+)")]
    gpu = [match.group(0) for match in found if match]
    gpu = [re.sub(r"\s+", " ", line).replace(" :", ":") for line in gpu]
    try:
        with open("/proc/cpuinfo") as f:
            model = re.search(r"model name\s*: (.+)", f.read())
    except OSError:
        model = None
    cores = len(os.sched_getaffinity(0))
    commit = said("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()
    return [f"GPU: {'; '.join(gpu) or 'nvidia-smi does not answer'}",
            f"CPU: {model.group(1) if model else platform.processor()}, {cores} cores; Linux {platform.release()}",
            f"binary: {said(binary, '--version').strip() or os.path.basename(binary)}; commit {commit or 'not known'}"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("STALLSCOPE", os.path.join(ROOT, "target/release/stallscope"))
    parser.add_argument("binary", nargs="?", default=default)
    parser.add_argument("--only", default="", metavar="a,c", help="these checks alone")
    parser.add_argument("--out", metavar="DIR", default=os.path.join(ROOT, "target/gpu-check"),
                        help="for the data, the reports and the kernels")
    parser.add_argument("--record", metavar="FILE", help="the table; benches/results/DATE-gpu-check.txt by default")
    parser.add_argument("--budget-seconds", type=float, default=500, help="for all checks together")
    parser.add_argument("--device", default="cuda:0", help="another one rehearses the script; its record is in DIR")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run on that device")
    parser.add_argument("--any-speed", action="store_true",
                        help="copy.pinned and copy.overlap may be slower, as on a stand-in for a GPU that runs on the same cores")
    parser.add_argument("--list", action="store_true", help="the checks, and the most that each may take")
    parser.add_argument("--self-test", action="store_true", help="the judgements, on made-up reports")
    options = parser.parse_args()
    letters = [letter.strip() for letter in options.only.split(",") if letter.strip()]
    unknown = [letter for letter in letters if letter not in {check[0] for check in CHECKS}]
    if unknown:
        parser.error(f"no check {', '.join(unknown)}; --list shows them")
    if set(letters) - {"a", "c", "p"}:
        letters.append("data")
    wanted = [check for check in CHECKS if not letters or check[0] in letters]
    return options, wanted


def unusable(bench):
    """Why no check can be run; None where they can."""
    try:
        found = parsed(bench.must("doctor", "--json"))
        return judges.not_usable(found) if bench.on_gpu() else None
    except OSError as error:
        return f"{bench.binary} cannot be run: {error.strerror}; build it with `cargo build --release`"
    except (Failed, judges.MissingKey) as error:
        return f"doctor does not say: {error}"


class Record:
    """The table so far, in a file that is whole at any moment, so that a script that is killed leaves what it has."""

    def __init__(self, path, facts):
        self.path, self.facts, self.table = path, facts, []

    def note(self, row):
        self.table.append(row)
        print(f"  {row[1]}  {row[0]}: {row[2]}", file=sys.stderr)
        with open(self.path + ".part", "w") as f:
            f.write(self.text() + "\n")
        os.replace(self.path + ".part", self.path)

    def text(self):
        return "\n".join([*self.facts, format_table(self.table)])


def record_path(options, bench):
    if options.record:
        return os.path.abspath(options.record)
    if not bench.on_gpu():
        return bench.path("rehearsal.txt")
    return os.path.join(ROOT, "benches/results", time.strftime("%Y-%m-%d-gpu-check.txt"))


def stopped(*_):
    raise KeyboardInterrupt


def main():
    options, wanted = arguments()
    if options.self_test:
        import gpu_judges_test
        return gpu_judges_test.main()
    if options.list:
        for letter, title, seconds, _ in wanted:
            print(f"{letter}  {title} ({seconds} s at most)")
        return 0
    out = os.path.abspath(options.out)
    os.makedirs(out, exist_ok=True)
    bench = Bench(os.path.abspath(options.binary), out, options.budget_seconds, options.device,
                  options.set, options.any_speed)
    known = [f"# scripts/gpu-check.sh {' '.join(os.path.basename(word) if os.path.isabs(word) else word for word in sys.argv[1:])}".rstrip(),
             *(f"# {fact}" for fact in facts(bench.binary))]
    reason = unusable(bench)
    if reason:
        table = [(f"{letter} {title}", "NOT RUN", "", "", 0.0) for letter, title, _, _ in wanted]
        print("\n".join([*known, format_table(table), f"not run: {reason}"]))
        return 2
    record = Record(record_path(options, bench), known)
    signal.signal(signal.SIGTERM, stopped)
    try:
        run_checks(bench, wanted, record.note)
    except KeyboardInterrupt:
        record.note(("the rest", "NOT RUN", "stopped", "", 0.0))
    print(record.text())
    print(f"written to {record.path}; reports in {bench.runs}")
    results = {row[1] for row in record.table}
    return 1 if "FAIL" in results else 2 if "NOT RUN" in results else 0


if __name__ == "__main__":
    sys.exit(main())
