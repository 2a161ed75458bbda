#!/usr/bin/env python3
"""How exact predictions and their intervals are: one run is profiled, other settings are predicted from it, the
predictions are saved, and only then each setting is run once.

    python3 scripts/prediction.py --data DATA/mnist           (in about 20 minutes; makes its photos itself)
    python3 scripts/prediction.py --data DATA/mnist --before OTHER/stallscope

Three data sets: photos of about 500x400 pixels; MNIST, whose batches take as little as handing them on; and 600 photos
with six pictures of 8000x6000 pixels among them. Profiles and settings vary in workers, layout, batch size, prefetching
and the latency of an emulated disk. The device is emulated, and as fast in each setting as the table says: in some the
loader is slower, in some the two are about as fast.

Each run counts by itself, with no averages over rounds and none left out. Reported are the median of the errors with
their sign (the bias), the median of their sizes, the 90th percentile, and the share of runs inside the interval of 95 %.
`--before` gives the same figures of another build, from a profile of its own right before each of this one's, held
against the same runs. Needs target/release/stallscope; run it on a machine that does nothing else.
"""

import argparse
import itertools
import json
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HUGE, WIDTH, HEIGHT = 6, 8000, 6000


def disk(milliseconds):
    return f" storage.emulate=custom storage.latency={milliseconds}ms"


# Settings are words of `--set`, and how long the device takes for a sample over what one loader thread takes. A profile is
# `longer` times as long as a run.
PHOTOS = {
    "samples": 2400,
    "longer": 2,
    "profiles": [
        ("num_workers=1 batch.size=32", 0.3),
        ("num_workers=2 batch.size=16", 0.45),
        ("num_workers=per-stage decode.workers=1 batch.size=32", 0.3),
        ("num_workers=4 batch.size=32" + disk(8), 0.3),
    ],
    "settings": [
        ("num_workers=0 batch.size=64", 0.2),
        ("num_workers=1 batch.size=16", 1.0),
        ("num_workers=1 batch.size=128 prefetch_factor=4", 0.8),
        ("num_workers=2 batch.size=32", 0.2),
        ("num_workers=2 batch.size=32", 0.52),
        ("num_workers=3 batch.size=32", 0.2),
        ("num_workers=4 batch.size=16", 0.5),
        ("num_workers=8 batch.size=16", 0.2),
        ("num_workers=per-stage decode.workers=2 batch.size=32", 0.5),
        ("num_workers=per-stage decode.workers=4 preprocess.workers=2 batch.size=64 batch.prefetch=4", 0.2),
        ("num_workers=6 batch.size=32" + disk(8), 0.3),
        ("num_workers=8 batch.size=32" + disk(8), 0.3),
        ("num_workers=24 batch.size=32" + disk(8), 0.1),
        ("num_workers=per-stage read.workers=8 decode.workers=2 batch.size=32" + disk(8), 0.3),
    ],
}
MNIST = {
    "samples": 9_000_000,
    "longer": 2,
    "profiles": [
        ("num_workers=1 batch.size=256 prefetch_factor=8", 0.5),
        ("num_workers=2 batch.size=128", 1.0),
        ("num_workers=0 batch.size=256", 0.5),
    ],
    "settings": [
        ("num_workers=0 batch.size=64", 0.5),
        ("num_workers=1 batch.size=128 prefetch_factor=8", 1.0),
        ("num_workers=1 batch.size=512 prefetch_factor=4", 1.0),
        ("num_workers=2 batch.size=256 prefetch_factor=8", 0.5),
        ("num_workers=2 batch.size=128", 3.0),
        ("num_workers=4 batch.size=128 prefetch_factor=2", 1.0),
        ("num_workers=4 batch.size=256 prefetch_factor=1" + disk(1), 15.0),
        ("num_workers=8 batch.size=256 prefetch_factor=1" + disk(2), 15.0),
    ],
}
RARE = {
    "samples": 606 * 2,
    "longer": 1,
    "profiles": [("num_workers=2 batch.size=32" + disk(8), 0.05), ("num_workers=4 batch.size=16" + disk(8), 0.05)],
    "settings": [
        ("num_workers=2 batch.size=16", 0.05),
        ("num_workers=3 batch.size=32" + disk(8), 0.05),
        ("num_workers=8 batch.size=32" + disk(8), 0.05),
        ("num_workers=24 batch.size=16" + disk(8), 0.05),
        ("num_workers=per-stage read.workers=4 decode.workers=2 batch.size=32" + disk(8), 0.05),
    ],
}
# What is set to its default where only the profile's setting has it.
DEFAULTS = {
    "prefetch_factor": "2",
    "read.workers": "1",
    "decode.workers": "1",
    "preprocess.workers": "1",
    "batch.prefetch": "2",
    "storage.emulate": "none",
}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def huge_picture(path, seed):
    """A PNG file of 8000x6000 pixels."""
    noise = random.Random(seed)
    rows = [bytes((x // 40 + noise.randrange(6)) & 255 for x in range(3 * WIDTH)) for _ in range(16)]
    pack = zlib.compressobj(1)
    data = b"".join(pack.compress(b"\0" + rows[(y // 8) % 16]) for y in range(HEIGHT)) + pack.flush()
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def make_data(binary, out):
    """The photos, and those with rare huge pictures."""
    photos, rare = out / "photos", out / "rare"
    for folder, images, seed in [(photos, 1200, 0), (rare, 600, 5)]:
        command = [binary, "data", "generate", folder, "--images", images, "--seed", seed]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
    classes = sorted(path for path in rare.iterdir() if path.is_dir())
    for number in range(HUGE):
        huge_picture(classes[number] / f"huge-{number}.png", number)
    return photos, rare


def keys(words):
    return dict(word.split("=", 1) for word in words.split())


class DataSet:
    """Profiles, predicts and runs settings of one data set."""

    def __init__(self, name, experiment, pipeline, base):
        self.name, self.experiment, self.pipeline = name, experiment, pipeline
        self.base = [*base, "device=emulated:custom", "train=false", "emulated.step_base=0ms", "trace.enabled=false"]
        self.sample_us = None

    def sets(self, words, step, longer=1, instead_of=""):
        """`--set` of a setting; what only the setting `instead_of` sets has its default."""
        own = keys(words)
        per_stage = own["num_workers"] == "per-stage"
        fits = {"storage.emulate": True, "prefetch_factor": not per_stage}
        only = [key for key in keys(instead_of) if key in DEFAULTS and key not in own and fits.get(key, per_stage)]
        only = [f"{key}={DEFAULTS[key]}" for key in only]
        steps = max(8, longer * self.experiment["samples"] // int(own["batch.size"]))
        more = [f"steps={steps}", f"warmup_steps={max(4, steps // 10)}"]
        more.append(f"emulated.step_per_sample={step * self.sample_us / 1e3:.9f}ms")
        return [word for one in only + self.base + words.split() + more for word in ("--set", one)]

    def run(self, binary, sets, folder):
        command = [str(binary), "run", str(self.pipeline), "--quiet", "--run-dir", str(folder), *sets]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads((folder / "report.json").read_text())

    def measure_sample(self, binary, folder):
        """How long one loader thread takes for a sample, so that steps suit any machine."""
        self.sample_us = 1e-3
        rate = self.run(binary, self.sets(self.experiment["profiles"][0][0], 1), folder)["samples_per_second"]
        self.sample_us = 1e6 / rate


def predict(binary, report, sets):
    command = [str(binary), "predict", str(report), "--json", *sets]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["prediction"]


def one_round(data, binaries, profile, settings, out):
    """Profiles a run, predicts all settings, saves that, and runs each once."""
    folder = out / "runs" / data.name
    rows = [{"data": data.name, "from": profile[0], "words": words, "step": step} for words, step in settings]
    for which, binary in binaries.items():
        data.run(binary, data.sets(*profile, longer=data.experiment["longer"]), folder / which)
        for row in rows:
            sets = data.sets(row["words"], row["step"], instead_of=profile[0])
            prediction = predict(binary, folder / which, sets)
            row[which] = {**prediction["samples_per_second"], "bound": prediction["bound_samples_per_second"]}
    with (out / "predictions.jsonl").open("a") as saved:
        saved.writelines(json.dumps(row) + "\n" for row in rows)
    for row in rows:
        report = data.run(binaries["now"], data.sets(row["words"], row["step"]), folder / "run")
        row["measured"] = report["samples_per_second"]
        row["others"] = report["profile"]["other_programs_cores"]
        row["at"] = time.time()
    return rows


def figures(rows, which):
    """Bias, median size of the error, its 90th percentile, and the share of runs inside the interval."""
    errors = [row[which]["value"] / row["measured"] - 1 for row in rows]
    sizes = sorted(abs(error) for error in errors)
    inside = [row[which]["low"] <= row["measured"] <= row[which]["high"] for row in rows]
    tail = sizes[int(0.9 * (len(sizes) - 1) + 0.5)]
    return statistics.median(errors), statistics.median(sizes), tail, statistics.mean(inside)


def show(rows, binaries):
    for row in sorted(rows, key=lambda row: (row["data"], row["words"], row["step"], row["from"])):
        error, low, high = (row["now"][key] / row["measured"] - 1 for key in ("value", "low", "high"))
        outside = " " if low <= 0 <= high else "*"
        print(
            f"{row['data']:<7}{row['measured']:12.1f} {100 * error:+6.1f} % [{100 * low:+6.1f} ..{100 * high:+6.1f}]{outside} "
            f"{row['words']}, step x{row['step']:g}  <-  {row['from']}"
        )
    print(f"\n{'':<18}{'runs':>5} {'bias':>9} {'median':>8} {'90th':>8} {'inside':>8}")
    for which in reversed(binaries):
        for name in ["photos", "mnist", "rare", None]:
            some = [row for row in rows if name in (None, row["data"])]
            bias, median, tail, inside = figures(some, which)
            print(
                f"{which:<8}{name or 'all':<10}{len(some):5} {100 * bias:+7.2f} % {100 * median:6.2f} % "
                f"{100 * tail:6.1f} % {100 * inside:6.1f} %"
            )
    others = statistics.mean(row["others"] for row in rows)
    print(f"\nother programs used {others:.3f} cores on average; * outside the interval")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of MNIST's files")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/stallscope")
    parser.add_argument("--before", type=Path, help="another build to compare with")
    parser.add_argument("--minutes", type=float, default=20, help="no round begins later than that")
    parser.add_argument("--out", type=Path, help="where data, predictions and measurements are kept")
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="prediction-"))
    out.mkdir(parents=True, exist_ok=True)
    binaries = {"before": args.before.resolve()} if args.before else {}
    binaries["now"] = args.binary.resolve()
    photos, rare = make_data(binaries["now"], out / "data")
    jpeg, mnist = ROOT / "pipelines/jpeg-folder.toml", ROOT / "configs/mnist-linear.toml"
    of_mnist = [f"source.path={args.data.resolve()}", "epochs=100000", "split.choose=last", "shuffle=false"]
    sets = [
        DataSet("photos", PHOTOS, jpeg, [f"source.path={photos}"]),
        DataSet("mnist", MNIST, mnist, of_mnist),
        DataSet("rare", RARE, jpeg, [f"source.path={rare}"]),
    ]
    began = time.time()
    for data in sets:
        data.measure_sample(binaries["now"], out / "probe")
    profiles = itertools.zip_longest(*(data.experiment["profiles"] for data in sets))
    rounds = [(data, one) for turn in profiles for data, one in zip(sets, turn) if one]
    rows, number = [], 0
    while time.time() - began < 60 * args.minutes:
        data, profile = rounds[number % len(rounds)]
        settings = data.experiment["settings"][:]
        random.Random(number).shuffle(settings)
        rows += one_round(data, binaries, profile, settings, out)
        number += 1
        (out / "rows.json").write_text(json.dumps(rows))
    show(rows, list(binaries))


if __name__ == "__main__":
    main()
