#!/usr/bin/env python3
"""Writes small data sets with the Python libraries of each format, and compares what stallscope reads with what the
libraries read.

usage: formats-check.py STALLSCOPE [NAME ...]
       formats-check.py --fixtures FOLDER [NAME ...]    # the small files that `cargo test -p stallscope-data` reads

Needs pyarrow, mosaicml-streaming, webdataset, pillow and tensorflow-cpu; what is not installed is left out and said.

Each data set has 64 pictures. `stallscope data pack` packs it, as files' bytes and as pixels, and the shards are read
here: labels, their order and SHA-256 of the bytes must be equal, and pixels at most 2 of 255 from Pillow's on average.
`stallscope run` must recognise it by its names.
"""

import hashlib
import io
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops, ImageStat

SAMPLES = 64
MOST_DIFFERENCE = 2.0


def picture(i, format="JPEG"):
    """A gradient with a shape that depends on `i`, encoded."""
    width, height = 24 + i % 17, 20 + i % 13
    image = Image.linear_gradient("L").resize((width, height))
    red, blue = image.rotate(90).resize((width, height)), image.point(lambda v: (v + 4 * i) % 256)
    out = io.BytesIO()
    options = {"lossless": True} if format == "WEBP" and i % 2 else {}
    Image.merge("RGB", (red, image, blue)).save(out, format, **options)
    return out.getvalue()


def label(i):
    return i * 7 % 10


def samples(format="JPEG"):
    return [(label(i), picture(i, format)) for i in range(SAMPLES)]


# Writers: each makes a data set in a folder, and yields (label, bytes or Pillow image) as the library reads it.


def tfrecord(folder, names, keys, format="JPEG"):
    import tensorflow as tf

    image_key, label_key = keys
    all_samples = samples(format)
    half = len(all_samples) // 2
    for name, part in zip(names, (all_samples[:half], all_samples[half:])):
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for number, encoded in part:
                features = {
                    image_key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
                    label_key: tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
                    "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x.jpg"])),
                    "image/bbox": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 1.0])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    shape = {image_key: tf.io.FixedLenFeature([], tf.string), label_key: tf.io.FixedLenFeature([], tf.int64)}
    for record in tf.data.TFRecordDataset([str(folder / name) for name in names]):
        example = tf.io.parse_single_example(record, shape)
        yield int(example[label_key]), example[image_key].numpy()


def tfrecord_imagenet(folder):
    names = [f"train-{i:05}-of-00002" for i in range(2)]
    yield from tfrecord(folder, names, ("image/encoded", "image/class/label"))


def tfrecord_tfds(folder):
    names = [f"toy-train.tfrecord-{i:05}-of-00002" for i in range(2)]
    (folder / "toy-test.tfrecord-00000-of-00001").write_bytes(b"not read")
    yield from tfrecord(folder, names, ("image", "label"), "PNG")


def webdataset(folder, extension="tar", picture_key="jpg", label_key="cls", format="JPEG"):
    import webdataset as wds

    all_samples = samples(format)
    paths = [str(folder / f"toy-{i}.{extension}") for i in range(2)]
    for part, path in enumerate(paths):
        with wds.TarWriter(path) as writer:
            for i in range(part * SAMPLES // 2, (part + 1) * SAMPLES // 2):
                number, encoded = all_samples[i]
                value = {"label": number, "caption": "a gradient"} if label_key == "json" else str(number)
                member = value if label_key == "json" else value.encode()
                writer.write({"__key__": f"{i:06}", picture_key: encoded, label_key: member})
    for sample in wds.WebDataset(paths, shardshuffle=False):
        text = sample[label_key]
        yield (json.loads(text)["label"] if label_key == "json" else int(text)), sample[picture_key]


def webdataset_cls(folder):
    yield from webdataset(folder)


def webdataset_json_webp(folder):
    yield from webdataset(folder, "tar", "webp", "json", "WEBP")


def webdataset_txt_gz(folder):
    yield from webdataset(folder, "tar.gz", "png", "txt", "PNG")


def folder_webp(folder):
    for i, (number, encoded) in enumerate(samples("WEBP")):
        path = folder / f"class-{number}" / f"{i:03}.webp"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded)
    for path in sorted(folder.glob("*/*.webp")):
        yield int(path.parent.name[6:]), path.read_bytes()


def mds(folder, encodings, compression=None, format="JPEG"):
    from streaming import LocalDataset, MDSWriter

    columns = {"id": "str", "image": encodings[0], "label": encodings[1]}
    limit = 30_000
    with MDSWriter(out=str(folder), columns=columns, compression=compression, size_limit=limit, hashes=["sha1"]) as out:
        for i, (number, encoded) in enumerate(samples(format)):
            image = encoded if encodings[0] == "bytes" else Image.open(io.BytesIO(encoded))
            import numpy

            value = number if encodings[1] == "int" else getattr(numpy, encodings[1])(number)
            out.write({"id": f"sample {i}", "image": image, "label": value})
    read_from = folder
    if compression:
        # The library unpacks shards only as it downloads them.
        from streaming import StreamingDataset

        read_from = StreamingDataset(remote=str(folder), local=tempfile.mkdtemp(), shuffle=False, batch_size=1)
    data = read_from if compression else LocalDataset(str(folder))
    for sample in (data[i] for i in range(len(data))):
        yield int(sample["label"]), sample["image"]


def mds_jpeg(folder):
    yield from mds(folder, ("jpeg", "int"))


def mds_png(folder):
    yield from mds(folder, ("png", "uint16"), format="PNG")


def mds_bytes_zstd(folder):
    yield from mds(folder, ("bytes", "int32"), "zstd")


def parquet(folder, column, codec, rows, **options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    all_samples = samples()
    half = SAMPLES // 2
    for part, some in enumerate((all_samples[:half], all_samples[half:])):
        images = [encoded for _, encoded in some]
        if column == "struct":
            kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            images = pa.array([{"bytes": image, "path": f"{i}.jpg"} for i, image in enumerate(images)], kind)
        table = pa.table({"id": list(range(half)), "image": images, "label": [number for number, _ in some]})
        path = folder / f"train-{part:05}-of-00002.parquet"
        pq.write_table(table, path, compression=codec, row_group_size=rows, **options)
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            image = row["image"]
            yield row["label"], image["bytes"] if column == "struct" else image


def parquet_hugging_face(folder):
    yield from parquet(folder, "struct", "snappy", 10)


def parquet_plain_zstd(folder):
    yield from parquet(folder, "plain", "zstd", 7, use_dictionary=False, data_page_size=4096, data_page_version="2.0")


def parquet_uncompressed(folder):
    yield from parquet(folder, "struct", "none", 32, use_dictionary=False, write_page_checksum=True)


DATA_SETS = (
    tfrecord_imagenet,
    tfrecord_tfds,
    folder_webp,
    webdataset_cls,
    webdataset_json_webp,
    webdataset_txt_gz,
    mds_jpeg,
    mds_png,
    mds_bytes_zstd,
    parquet_hugging_face,
    parquet_plain_zstd,
    parquet_uncompressed,
)


# What stallscope reads.


def packed(folder):
    """(label, data, width, height) of every record of the shards in `folder`, in the order of the source. The layout is
    that of src/data/shard/layout.rs."""
    records = []
    for path in sorted(folder.glob("*.shard")):
        data = path.read_bytes()
        start, length = struct.unpack_from("<2Q", data, 88)
        for offset, size, _, number, width, height, source in struct.iter_unpack("<Q6I", data[start : start + length]):
            records.append((source, number, data[offset : offset + size], width, height))
    return [record[1:] for record in sorted(records)]


def stallscope(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"stallscope {' '.join(map(str, args))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def difference(image, record):
    _, pixels, width, height = record
    ours = Image.frombytes("RGB", (width, height), pixels)
    return sum(ImageStat.Stat(ImageChops.difference(ours, image.convert("RGB"))).mean) / 3


def check(program, name, write, place):
    folder = place / name
    folder.mkdir()
    want = list(write(folder))
    encoded, raw = place / f"{name}-encoded", place / f"{name}-raw"
    stallscope(program, "data", "pack", folder, encoded, "--jobs", 1)
    stallscope(program, "data", "pack", folder, raw, "--jobs", 1, "--raw", 4096)
    found, pixels = packed(encoded), packed(raw)
    problems = []
    if not len(want) == len(found) == len(pixels) == SAMPLES:
        problems.append(f"{len(want)} samples are {len(found)} and {len(pixels)}")
    labels = sum(a[0] == b[0] == c[0] for a, b, c in zip(want, found, pixels))
    comparable = [(a[1], b[1]) for a, b in zip(want, found) if isinstance(a[1], bytes)]
    digest = lambda data: hashlib.sha256(data).hexdigest()
    same = sum(digest(a) == digest(b) for a, b in comparable)
    images = [Image.open(io.BytesIO(data)) if isinstance(data, bytes) else data for _, data in want]
    worst = max(difference(image, record) for image, record in zip(images, pixels))
    if labels != SAMPLES or same != len(comparable) or worst > MOST_DIFFERENCE:
        problems.append("labels, bytes or pixels differ")
    report = place / f"{name}-run"
    sets = ["batch.size=16", "preprocess.size=16", "device=emulated:resnet50-a100", "max_time=1s", "warmup_steps=1"]
    sets = [word for setting in sets for word in ("--set", setting)]
    run = ("run", folder, "--quiet", "--mode", "loader-only", "--run-dir", report)
    stallscope(program, *run, *sets)
    print(f"{name:24} {len(found):3} samples  labels {labels:2}  bytes {same:2} of {len(comparable):2}  "
          f"pixels differ by {worst:.3f} at most  {'FAILED: ' + '; '.join(problems) if problems else 'ok'}", flush=True)
    return not problems


def write_fixture(name, write, folder):
    """Makes a data set for `cargo test`, with what the library reads of it beside."""
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir(parents=True)
    read = [[number, image if isinstance(image, bytes) else None] for number, image in write(folder / name)]
    rows = [{"label": number, "sha256": hashlib.sha256(image).hexdigest() if image else None} for number, image in read]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(lines)
    print(f"{folder / name}: {len(rows)} samples")


def main():
    fixtures = sys.argv[1:2] == ["--fixtures"]
    names = sys.argv[3 if fixtures else 2 :]
    if len(sys.argv) < 2 + fixtures:
        sys.exit(__doc__)
    known = {write.__name__.replace("_", "-"): write for write in DATA_SETS}
    if len(names) != 1:
        # A process each: TensorFlow and PyTorch, which streaming needs, do not always load into one.
        done = [subprocess.run([sys.executable, *sys.argv[: 2 + fixtures], name]) for name in names or known]
        sys.exit(any(one.returncode for one in done))
    [name] = names
    try:
        if fixtures:
            global SAMPLES
            SAMPLES = 6
            write_fixture(name, known[name], Path(sys.argv[2]))
            return
        with tempfile.TemporaryDirectory() as place:
            sys.exit(not check(str(Path(sys.argv[1]).resolve()), name, known[name], Path(place)))
    except ImportError as error:
        print(f"{name:24} left out: {error}")


if __name__ == "__main__":
    main()
