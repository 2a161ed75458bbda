#!/usr/bin/env python3
"""Pictures made smaller beforehand: stallscope's shards and FFCV's files, against the originals and raw pixels.

    scripts/compare-packed.py --images FOLDER --scratch DIR [--python PEER_PYTHON] [--longest 400] [--quality 90]
                              [--rounds 5] [--seconds 5] [--pictures 200]

Each entry loads the same pictures with two workers: random-resized crop to 224, flip, normalise, batches of 64. Entries
run in turns, every other round backwards; the table has medians. Packed files are made once, in DIR: empty it when the
pictures change. FFCV resizes with OpenCV's INTER_AREA and writes JPEG of the same longest side and quality.

`difference` is the mean absolute difference of pixels, of 255, from those of the originals, over --pictures pictures: both
decoded by Pillow, the shorter side resized to 256 (bilinear, antialiased), the middle 224. FFCV's pictures are made here
as its writer makes them, by the same calls of OpenCV.

PEER_PYTHON needs NumPy, Pillow and OpenCV, and FFCV for its entries. Build stallscope with `cargo build --release` first.
"""
import argparse
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import time

from measured import BINARY, data, run

SIZE, RESIZE, BATCH, WORKERS = 224, 256, 64, 2
FFCV = ("ffcv, original size", "ffcv, smaller")


# ------------------------------------------------------------------------------------------ in the peers' Python

def pictures(root):
    for base, _, files in sorted(os.walk(root)):
        for name in sorted(files):
            if name.lower().endswith((".jpg", ".jpeg")):
                yield os.path.join(base, name)


def ffcv(images, beton, longest, quality, seconds):
    """Loads with FFCV for `seconds` after a second of warm-up and prints images/s and CPU us an image."""
    import numpy as np
    from PIL import Image
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter

    if not os.path.exists(beton):
        class Images:
            paths = list(pictures(images))

            def __len__(self):
                return len(self.paths)

            def __getitem__(self, i):
                return Image.open(self.paths[i]).convert("RGB"), 0

        field = RGBImageField(write_mode="jpg", max_resolution=longest, jpeg_quality=quality)
        writer = DatasetWriter(beton + ".part", {"image": field, "label": IntField()}, num_workers=WORKERS)
        writer.from_indexed_dataset(Images())
        os.rename(beton + ".part", beton)
    mean, std = np.array([0.485, 0.456, 0.406]) * 255, np.array([0.229, 0.224, 0.225]) * 255
    image = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip(), NormalizeImage(mean, std, np.float32),
             ToTensor(), ToTorchImage(channels_last=False)]
    loader = Loader(beton, batch_size=BATCH, num_workers=WORKERS, os_cache=True, drop_last=True, order=OrderOption.RANDOM,
                    seed=1, pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]})

    def batches():
        while True:
            yield from loader

    source = batches()
    assert next(source)[0].shape == (BATCH, 3, SIZE, SIZE)
    warm = time.perf_counter() + 1
    while time.perf_counter() < warm:
        next(source)
    begin, cpu, taken = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < begin + seconds:
        taken += len(next(source)[0])
    wall = time.perf_counter() - begin
    print(json.dumps({"rate": taken / wall, "cpu_us": (time.process_time() - cpu) / taken * 1e6}))
    sys.stdout.flush()
    os._exit(0)


def differences(images, tars, longest, quality, count):
    """For each folder of tar files, and for FFCV's way, the mean difference from the originals over `count` pictures."""
    import cv2
    import numpy as np
    from PIL import Image

    def center(picture):
        w, h = picture.size
        side = RESIZE / min(w, h)
        picture = picture.resize((max(RESIZE, int(w * side)), max(RESIZE, int(h * side))), Image.Resampling.BILINEAR)
        left, top = round((picture.width - SIZE) / 2), round((picture.height - SIZE) / 2)
        return np.asarray(picture.crop((left, top, left + SIZE, top + SIZE)), np.float32)

    def as_ffcv(picture):
        array = np.asarray(picture)
        ratio = longest / max(array.shape[:2])
        if ratio < 1:
            array = cv2.resize(array, tuple((ratio * np.array(array.shape[:2])).astype(int)[::-1]), interpolation=cv2.INTER_AREA)
        _, encoded = cv2.imencode(".jpg", cv2.cvtColor(array, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
        return Image.open(io.BytesIO(encoded.tobytes())).convert("RGB")

    originals = [Image.open(path).convert("RGB") for path, _ in zip(pictures(images), range(count))]
    wanted = [center(picture) for picture in originals]

    def mean(found):
        each = [float(np.abs(center(picture) - want).mean()) for picture, want in zip(found, wanted)]
        return {"mean": statistics.mean(each), "worst": max(each)}

    def of_tars(folder):
        for name in sorted(n for n in os.listdir(folder) if n.endswith(".tar")):
            with tarfile.open(os.path.join(folder, name)) as archive:
                for member in archive:
                    if not member.name.endswith(".cls"):
                        yield Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB")

    found = {}
    for name, folder in tars.items():
        each = list(of_tars(folder))
        if len(each) < len(wanted):
            raise SystemExit(f"{folder} has {len(each)} pictures only: remove it")
        found[name] = mean(each)
    found[FFCV[1]] = mean(as_ffcv(picture) for picture in originals)
    print(json.dumps(found))


# ----------------------------------------------------------------------------------------------------- the table

def size(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(base, name)) for base, _, names in os.walk(path) for name in names)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--images", required=True)
    p.add_argument("--scratch", required=True)
    p.add_argument("--python", default="python3")
    p.add_argument("--longest", type=int, default=400)
    p.add_argument("--quality", type=int, default=90)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--pictures", type=int, default=200)
    p.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        what, *more = a.child
        if what == "ffcv":
            return ffcv(a.images, more[0], int(more[1]) or None, a.quality, a.seconds)
        return differences(a.images, json.loads(more[0]), a.longest, a.quality, a.pictures)

    os.makedirs(a.scratch, exist_ok=True)
    at = {name: os.path.join(a.scratch, name) for name in ("stored", "smaller", "raw", "smaller-tar", "raw-tar")}
    smaller = ["--jpeg", str(a.longest), "--quality", str(a.quality)]
    data("pack", a.images, at["stored"])
    began = time.perf_counter()
    data("pack", a.images, at["smaller"], *smaller)
    print(f"packing smaller JPEG took {time.perf_counter() - began:.1f} s", flush=True)
    data("pack", a.images, at["raw"], "--raw", "256")
    for source, target in (("smaller", "smaller-tar"), ("raw", "raw-tar")):
        if not os.path.exists(at[target]):
            data("pack", at[source], at[target], "--to", "webdataset")

    def peer(*more):
        command = [a.python, os.path.abspath(__file__), "--images", a.images, "--scratch", a.scratch, "--quality", str(a.quality),
                   "--longest", str(a.longest), "--seconds", str(a.seconds), "--pictures", str(a.pictures), "--child", *more]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(" ".join(done.stderr.split())[-300:])
        return json.loads(lines[-1])

    rates = {}

    def ours(path, *sets):
        def once(seconds, guess):
            report = run(f"source.path={path}", f"num_workers={WORKERS}", f"batch.size={BATCH}", "epochs=1000000",
                         f"warmup_steps={max(2, int(guess / BATCH))}", f"steps={max(5, int(guess * seconds / BATCH))}", *sets)
            return report["samples_per_second"], report["process_cpu_ns"] / 1e3 / report["samples"]

        key = (path, sets)
        if key not in rates:
            rates[key], _ = once(1, 300)
        rate, cpu = once(a.seconds, rates[key])
        return {"rate": rate, "cpu_us": cpu}

    shard = "source.kind=shard"
    betons = [os.path.join(a.scratch, f"{name}.beton") for name in ("original", f"{a.longest}-{a.quality}")]
    entries = {
        "originals, files": (a.images, lambda: ours(a.images)),
        "originals, shards": (at["stored"], lambda: ours(at["stored"], shard)),
        "smaller, shards": (at["smaller"], lambda: ours(at["smaller"], shard)),
        "raw 256, shards": (at["raw"], lambda: ours(at["raw"], shard)),
        FFCV[0]: (betons[0], lambda: peer("ffcv", betons[0], "0")),
        FFCV[1]: (betons[1], lambda: peer("ffcv", betons[1], str(a.longest))),
    }
    found = {name: [] for name in entries}
    for n in range(a.rounds):
        for name in list(entries) if n % 2 == 0 else list(entries)[::-1]:
            try:
                found[name].append(entries[name][1]())
            except RuntimeError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
                del entries[name]
                continue
            print(f"round {n + 1}: {name}: {found[name][-1]['rate']:,.0f} images/s", flush=True)
    try:
        away = peer("differences", json.dumps({"smaller, shards": at["smaller-tar"], "raw 256, shards": at["raw-tar"]}))
    except RuntimeError as error:
        away = {}
        print(f"no differences: {error}", file=sys.stderr)
    count = sum(1 for _ in pictures(a.images))
    decoder = subprocess.run([BINARY, "doctor"], capture_output=True, text=True).stdout
    print(*re.findall(r"JPEG decoder.*", decoder), sep="\n")
    first = next(iter(entries))
    base = statistics.median(r["rate"] for r in found[first])
    print(f"\n{'':20} {'images/s':>9} {'min..max':>15} {'of first':>8} {'CPU us/image':>12} {'kB/image':>9} {'difference':>10} {'worst':>6}")
    for name, (path, _) in entries.items():
        each = [r["rate"] for r in found[name]]
        rate = statistics.median(each)
        differs = away.get(name)
        print(f"{name:20} {rate:9,.0f} {f'{min(each):,.0f}..{max(each):,.0f}':>15} {rate / base:8.2f} "
              f"{statistics.median(r['cpu_us'] for r in found[name]):12,.0f} {size(path) / count / 1e3:9.1f} "
              + (f"{differs['mean']:10.2f} {differs['worst']:6.2f}" if differs else f"{'-':>10} {'-':>6}"))


if __name__ == "__main__":
    main()
