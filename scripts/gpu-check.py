#!/usr/bin/env python3
"""What a release binary does on a machine with one NVIDIA GPU, check by check.

    scripts/gpu-check.sh [BINARY] [--only a,c] [--out DIR] [--budget-seconds 500]
    scripts/gpu-check.sh --list | --self-test

BINARY is `stallscope` as built for release ($STALLSCOPE, or target/release/stallscope). A check that fails does not
stop the others. The table is printed and written to benches/results/DATE-gpu-check.txt; the reports stay in DIR.
Exit status: 0 all pass, 1 one fails, 2 none fails but some could not be run, as on a machine without a GPU.
Python's standard library is all it needs; no network, no cargo.
"""
import argparse
import functools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import gpu_judges as judges

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 64
MODEL = ["model.kind=resnet50", "model.precision=bf16", "model.classes=1000", "model.learning_rate=0.001"]
SIZE = re.compile(r"batch\.size\s*=\s*(\d+)")


class Failed(Exception):
    """A check that could not be judged, and why."""


class OutOfTime(Failed):
    """Another try may have more of it."""


class Bench:
    """The binary, the data and the time there is. Data is made when a check first asks; runs are kept."""

    def __init__(self, binary, out, seconds):
        self.binary, self.out = binary, out
        self.end = time.monotonic() + seconds
        self.deadline = self.end
        self.reports = {}

    def left(self):
        return max(self.deadline - time.monotonic(), 0.0)

    def call(self, *arguments, seconds=None):
        """Exit status (None: killed, out of time), output and errors of `stallscope ARGUMENTS`."""
        seconds = min(seconds or self.left(), self.left())
        command = [self.binary, *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 errors="replace", stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            said, errors = child.communicate(timeout=seconds)
            return child.returncode, said, errors
        except subprocess.TimeoutExpired:
            # Its own children, too: trials of a search.
            os.killpg(child.pid, signal.SIGKILL)
            said, errors = child.communicate()
            return None, said, errors

    def must(self, *arguments):
        """The output of a command that has to succeed."""
        status, said, errors = self.call(*arguments)
        if status is None:
            raise OutOfTime(f"out of time: {' '.join(arguments[:2])}")
        if status:
            raise Failed(f"exit {status}: {' '.join(arguments[:2])}: {message(errors)}")
        return said

    def run_arguments(self, name, config, sets, device="cuda:0"):
        sets = [part for one in sets for part in ("--set", one)]
        return ["run", self.config(config), "--device", device, "--run-dir", self.path(name),
                "--trace", "none", "--quiet", *sets]

    def report(self, name, config, sets, device="cuda:0"):
        """The report of a run, which has to succeed; of one made before, the same, or the same failure."""
        if name not in self.reports:
            try:
                self.must(*self.run_arguments(name, config, sets, device))
                with open(self.path(name, "report.json")) as f:
                    self.reports[name] = json.load(f)
            except OutOfTime:
                raise
            except Failed as failure:
                self.reports[name] = failure
        if isinstance(self.reports[name], Failed):
            raise self.reports[name]
        return self.reports[name]

    def path(self, *names):
        return os.path.join(self.out, *names)

    def config(self, kind):
        """The configuration file of this kind, and its data; made once, since runs beside each other read it."""
        path = self.path(f"{kind}.toml")
        if os.path.exists(path):
            return path
        source, folder = {"jpeg": ("image-folder", self.jpeg), "raw": ("shard", self.raw),
                          "digits": ("idx", self.digits), "million": ("idx", self.million)}[kind]
        lines = [f'source.kind = "{source}"', f"source.path = {json.dumps(folder())}", "seed = 7",
                 f"batch.size = {BATCH}", "warmup_steps = 10", "steps = 100"]
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        return path

    def jpeg(self):
        folder = self.path("jpeg")
        if not os.path.exists(folder):
            self.must("data", "generate", folder, "--images", "2048", "--classes", "16", "--format", "jpeg")
        return folder

    def raw(self):
        folder = self.path("raw")
        if not os.path.exists(folder):
            self.must("data", "pack", self.jpeg(), folder, "--raw", "224")
        return folder

    def digits(self):
        return write_idx(self.path("digits"), 4096)

    def million(self):
        return write_idx(self.path("million"), 1_000_000)


def write_idx(folder, images):
    """`images` images of 28x28 in MNIST's format, bright in the rows of their class; made once."""
    if os.path.exists(folder):
        return folder
    os.makedirs(folder + ".part")
    block = 1000
    pixels = bytearray()
    for image in range(block):
        for place in range(784):
            bright = place // 28 // 2 == image * 7 % 10
            pixels.append(255 if bright else (place * 31 + image) % 64)
    labels = bytes(image * 7 % 10 for image in range(block))
    counts = [min(block, images - first) for first in range(0, images, block)]
    number = images.to_bytes(4, "big")
    side = (28).to_bytes(4, "big")
    with open(os.path.join(folder + ".part", "train-images-idx3-ubyte"), "wb") as f:
        f.write(b"\0\0\x08\x03" + number + side + side)
        for count in counts:
            f.write(pixels[:784 * count])
    with open(os.path.join(folder + ".part", "train-labels-idx1-ubyte"), "wb") as f:
        f.write(b"\0\0\x08\x01" + number)
        for count in counts:
            f.write(labels[:count])
    os.rename(folder + ".part", folder)
    return folder


def message(text):
    """A program's errors in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = " ".join(lines) or "no message"
    return said if len(said) <= 300 else said[:297] + "..."


def parsed(text):
    """The JSON object in an output that may begin with other lines."""
    try:
        return json.loads(text[text.index("{"):])
    except ValueError as error:
        raise Failed(f"no JSON in the output: {error}")


def check_doctor(bench):
    return judges.doctor(parsed(bench.must("doctor", "--json")))


def check_losses(bench):
    small = ["preprocess.size=64", "batch.size=4", "model.learning_rate=0.001"]
    models = [("linear", "digits", ["batch.size=64"]), ("dense", "digits", ["batch.size=64"]),
              ("resnet18", "jpeg", small), ("resnet50", "jpeg", small)]
    for _, config, _ in models:
        bench.config(config)

    def one(task):
        model, config, sets, device = task
        sets = [f"model.kind={model}", "warmup_steps=2", "steps=20", *sets]
        return bench.report(f"losses-{model}-{device.split(':')[0]}", config, sets, device)

    tasks = [(*model, device) for model in models for device in ("cpu", "cuda:0")]
    with ThreadPoolExecutor(len(tasks)) as pool:
        runs = [pool.submit(one, task) for task in tasks]
    rows = []
    for (model, _, _), on_cpu, on_gpu in zip(models, runs[::2], runs[1::2]):
        rows += judged(f"{model}: losses as on the CPU", lambda: judges.losses(model, on_cpu.result(), on_gpu.result()))
    return rows


def check_planted(bench):
    # A timeline that is off has exit status 1 and figures; without figures there is a message.
    status, said, errors = bench.call("doctor", "--planted-kernels", "--device", "cuda:0", "--json")
    if status is None:
        raise OutOfTime("out of time: doctor --planted-kernels")
    if "{" not in said:
        raise Failed(f"exit {status}: doctor --planted-kernels: {message(errors)}")
    return judges.planted(parsed(said))


def check_cupti(bench):
    pairs, longest = [], 0.0
    sets = ["model.kind=resnet18", "preprocess.size=64", "mode=device-only", "steps=300"]

    def rate(pair, timeline):
        name = f"cupti-{pair:02}-{timeline}"
        return judges.get(bench.report(name, "raw", [*sets, f"gpu.timeline={timeline}"]), "samples_per_second")

    for pair in range(15):
        began = time.monotonic()
        if bench.left() < 1.3 * longest:
            break
        # The order alternates, so that neither gains from a machine that warms up.
        order = ["cupti", "events"] if pair % 2 == 0 else ["events", "cupti"]
        rates = {timeline: rate(pair, timeline) for timeline in order}
        pairs.append((rates["cupti"], rates["events"]))
        longest = max(longest, time.monotonic() - began)
    return judges.cupti_cost(pairs)


def jpeg_run(bench, workers):
    steps = 30 if workers < 4 else 60
    return bench.report(f"jpeg-{workers}", "jpeg", [*MODEL, f"decode.workers={workers}", f"steps={steps}"])


def raw_run(bench, name="raw-12", *sets):
    workers = ["decode.workers=12", "preprocess.workers=12", "read.workers=2", "batch.prefetch=4"]
    return bench.report(name, "raw", [*MODEL, *workers, *sets])


def check_bounds(bench):
    rows = judged("starved: top cause of idle", lambda: judges.starved(jpeg_run(bench, 1)))
    own = functools.partial(raw_run, bench, "device-only", "mode=device-only")
    rows += judged("saturated", lambda: judges.saturated(raw_run(bench), own()))
    return rows + judged("saturated: copies beside kernels", lambda: judges.overlapped(raw_run(bench)))


def check_side_by_side(bench):
    rows = []
    settings = [(f"JPEG, decode.workers={workers}", functools.partial(jpeg_run, bench, workers))
                for workers in (1, 2, 4, 8, 12)]
    for name, run in [*settings, ("raw shard", functools.partial(raw_run, bench))]:
        rows += judged(f"side by side: {name}", lambda: judges.side_by_side(name, run()))
    return rows


def check_on_device(bench):
    return judges.on_device(raw_run(bench), raw_run(bench, "raw-on-device", "preprocess.on=device"))


def check_copies(bench):
    rows = []
    for key in ["copy.pinned", "copy.overlap"]:
        off = functools.partial(raw_run, bench, f"raw-no-{key.split('.')[1]}", f"{key}=false")
        rows += judged(f"{key} off -> on", lambda: judges.compared(key, off(), raw_run(bench)))
    return rows


def check_memory(bench):
    sets = ["model.kind=resnet18", "batch.size=1000000", "warmup_steps=0", "steps=2", "num_workers=0"]
    arguments = bench.run_arguments("too-large", "million", sets)
    status, _, errors = bench.call(*arguments, seconds=140)
    sizes = [size for size in map(int, SIZE.findall(errors)) if size < 1_000_000]
    rows = judges.out_of_memory(status, errors, sizes[-1] if sizes else None)
    _, said, _ = bench.call("batch-size", bench.config("digits"), "--device", "cuda:0", "--least", "64", "--most", "256",
                            "--steps", "5", "--set", "model.kind=resnet18", seconds=60)
    answers = list(map(int, SIZE.findall(said)))
    again = None
    if answers:
        sets = ["model.kind=resnet18", "steps=5", f"batch.size={max(answers)}"]
        again, _, _ = bench.call(*bench.run_arguments("largest", "digits", sets))
    return rows + judges.size_fits(max(answers, default=None), again)


def make_data(bench):
    """What most checks run on, so that none of them pays for it."""
    bench.raw()
    bench.digits()
    return [judges.Row("pictures, shard and digits", True, "2048 JPEG, 2048 raw, 4096 of 28x28", "")]


# In the order in which they run: what the time runs out for is the number of d's pairs.
CHECKS = [
    ("data", "pictures, packed and not, and digits are made", 120, make_data),
    ("a", "doctor finds driver, NVML, CUPTI, NVRTC and headers", 20, check_doctor),
    ("c", "planted kernels are measured as planned", 40, check_planted),
    ("b", "losses on cuda:0 and on cpu: linear, dense, ResNet-18, ResNet-50", 120, check_losses),
    ("e", "starved and saturated, ResNet-50 in bf16", 120, check_bounds),
    ("f", "GPU-Util beside device busy, from starved to saturated", 120, check_side_by_side),
    ("g", "preprocess.on = device against host", 60, check_on_device),
    ("h", "copy.pinned and copy.overlap, off and on", 80, check_copies),
    ("i", "out of memory, and the batch size that fits", 200, check_memory),
    ("d", "what CUPTI costs, in interleaved pairs", 250, check_cupti),
]


def judged(what, judge):
    """Rows of a judgement; whatever keeps it from being made is a failure and not the end."""
    try:
        return judge()
    except Exception as error:  # a report in another shape is a finding, too
        known = isinstance(error, (Failed, judges.MissingKey))
        return [judges.Row(what, False, str(error) if known else f"{type(error).__name__}: {error}", "")]


def run_checks(bench, wanted):
    """(check, result, figure, limit, seconds) of every row."""
    table = []
    for letter, title, seconds, check in wanted:
        began = time.monotonic()
        if bench.end - began < 5:
            table.append((f"{letter} {title}", "NOT RUN", "the time is used up", "", 0.0))
            continue
        bench.deadline = min(bench.end, began + seconds)
        print(f"{letter} {title} ...", file=sys.stderr)
        rows = judged(title, lambda: check(bench))
        for number, row in enumerate(rows):
            took = time.monotonic() - began if number == 0 else 0.0
            table.append((f"{letter} {row.what}", "PASS" if row.holds else "FAIL", row.figure, row.limit, took))
    return table


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
            f"binary: {said(binary, '--version').strip() or binary}; commit {commit or 'not known'}"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("STALLSCOPE", os.path.join(ROOT, "target/release/stallscope"))
    parser.add_argument("binary", nargs="?", default=default)
    parser.add_argument("--only", default="", metavar="a,c", help="these checks alone")
    parser.add_argument("--out", metavar="DIR", help="for the data and the reports; a new temporary one by default")
    parser.add_argument("--budget-seconds", type=float, default=500, help="for all checks together")
    parser.add_argument("--list", action="store_true", help="the checks, and the most that each may take")
    parser.add_argument("--self-test", action="store_true", help="the judgements, on made-up reports")
    parsed_arguments = parser.parse_args()
    letters = [letter.strip() for letter in parsed_arguments.only.split(",") if letter.strip()]
    unknown = [letter for letter in letters if letter not in {check[0] for check in CHECKS}]
    if unknown:
        parser.error(f"no check {', '.join(unknown)}; --list shows them")
    if set(letters) - {"a", "c"}:
        letters.append("data")
    wanted = [check for check in CHECKS if not letters or check[0] in letters]
    return parsed_arguments, wanted


def unusable(bench):
    """Why no check can be run; None where they can."""
    try:
        return judges.not_usable(parsed(bench.must("doctor", "--json")))
    except OSError as error:
        return f"{bench.binary} cannot be run: {error.strerror}; build it with `cargo build --release`"
    except (Failed, judges.MissingKey) as error:
        return f"doctor does not say: {error}"


def write_record(lines):
    path = os.path.join(ROOT, "benches/results", time.strftime("%Y-%m-%d-gpu-check.txt"))
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    print(f"written to {path}")


def main():
    options, wanted = arguments()
    if options.self_test:
        import gpu_judges_test
        return gpu_judges_test.main()
    if options.list:
        for letter, title, seconds, _ in wanted:
            print(f"{letter}  {title} ({seconds} s)")
        return 0
    # Beside an absolute path the reports lie where they are said to lie.
    out = os.path.abspath(options.out or tempfile.mkdtemp(prefix="gpu-check-"))
    os.makedirs(out, exist_ok=True)
    bench = Bench(os.path.abspath(options.binary), out, options.budget_seconds)
    reason = unusable(bench)
    if reason:
        table = [(f"{letter} {title}", "NOT RUN", "", "", 0.0) for letter, title, _, _ in wanted]
    else:
        table = run_checks(bench, wanted)
    command = "# scripts/gpu-check.sh " + " ".join(sys.argv[1:])
    lines = [command.rstrip(), *(f"# {fact}" for fact in facts(bench.binary)), format_table(table)]
    if reason:
        lines.append(f"not run: {reason}")
    print("\n".join(lines))
    results = {row[1] for row in table}
    if results != {"NOT RUN"}:
        write_record(lines)
        print(f"reports in {out}")
    return 1 if "FAIL" in results else 2 if "NOT RUN" in results else 0


if __name__ == "__main__":
    sys.exit(main())
