"""Seeds of the fuzz targets: tiny valid inputs, and some that are nearly valid.

usage: seeds.py FOLDER     # makes FOLDER/TARGET/NAME; names with "bad" are of inputs that must be refused

Written against the formats and not with stallscope, so that both must agree. `cargo test` checks that they do.
"""

import gzip
import io
import json
import struct
import sys
import tarfile
import zlib
from pathlib import Path


def idx_file(kind, sizes, data):
    return struct.pack(f">4B{len(sizes)}I", 0, 0, 8, kind, *sizes) + data


def idx(images, labels, packed=0):
    return struct.pack("<BH", packed, len(images)) + images + labels


def idx_seeds():
    images = idx_file(3, [2, 2, 3], bytes(range(12)))
    labels = idx_file(1, [2], bytes([7, 1]))
    zipped = [gzip.compress(file, mtime=0) for file in (images, labels)]
    named = io.BytesIO()
    with gzip.GzipFile("images-idx3-ubyte", "wb", fileobj=named, mtime=0) as file:
        file.write(images)
    members = gzip.compress(images[:9], mtime=0) + gzip.compress(images[9:], mtime=0)
    black = idx_file(3, [9, 28, 28], bytes(28 * 28 * 9))
    black_labels = idx_file(1, [9], bytes(9))
    yield "plain", idx(images, labels)
    yield "packed-here", idx(images, labels, 3)
    yield "gzipped", idx(*zipped)
    yield "named", idx(named.getvalue(), labels)
    yield "members", idx(members, labels)
    yield "one-pixel", idx(idx_file(3, [1, 1, 1], b"\xff"), idx_file(1, [1], b"\xff"))
    yield "black", idx(gzip.compress(black, mtime=0), gzip.compress(black_labels, mtime=0))
    yield "bad-bomb", idx(gzip.compress(images + bytes(1 << 15), mtime=0), labels)
    yield "bad-promise", idx(idx_file(3, [1 << 15, 1 << 7, 1 << 8], bytes(12)), labels)
    yield "bad-overflow", idx(idx_file(3, [1 << 31, 1 << 31, 4], b""), labels)


def cifar_seeds():
    pixels = bytes(i * 7 % 256 for i in range(3072))
    yield "ten", b"\x09" + pixels
    yield "hundred", b"\x13\x63" + pixels
    yield "two", b"\x00" + pixels + b"\x05" + pixels
    yield "two-hundred", (b"\x00\x00" + pixels) * 2
    yield "bad-label", b"\x0a" + pixels
    yield "bad-length", b"\x00" + pixels[:-1]


def tar_file(format, members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    # The end is padded to twenty blocks; two zero ones are enough.
    end = len(file.getvalue().rstrip(b"\0")) // 512 * 512 + 512
    return file.getvalue()[:end] + bytes(1024)


def tar_seeds():
    samples = [("a.cls", b"3"), ("a.jpg", b"\xff\xd8" * 300), ("b.cls", b" 1\n"), ("b.png", b"x")]
    long = ["n" * 120 + "/" + "m" * 120 + end for end in (".jpg", ".cls")]
    long_samples = [(long[0], b"x"), (long[1], b"12")]
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for name, format in formats.items():
        yield name, tar_file(format, samples)
        if name != "ustar":
            yield f"{name}-long", tar_file(format, long_samples)
    yield "prefix", tar_file(tarfile.USTAR_FORMAT, [("d" * 90 + "/" + "e" * 60 + ".jpg", b"x")])
    yield "unlabelled", tar_file(tarfile.USTAR_FORMAT, [("a.left.jpg", b"x"), ("a.png", b"y"), ("b.txt", b"")])
    # The oldest format has no magic, so its checksums stay as they are here.
    block = bytearray(tar_file(tarfile.USTAR_FORMAT, [("a.jpg", b"x")]))
    block[257:265] = bytes(8)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    yield "v7", bytes(block)
    yield "bad-labels", tar_file(tarfile.USTAR_FORMAT, [("a.cls", b"3"), ("a.jpg", b"x"), ("b.jpg", b"y")])
    yield "bad-cut", tar_file(tarfile.GNU_FORMAT, long_samples)[:1024]


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def tf_example(*features):
    """Features are (key, bytes or number)."""
    entries = b""
    for key, value in features:
        packed = field(1, field(1, value)) if isinstance(value, bytes) else field(3, field(1, varint(value)))
        entries += field(1, field(1, key.encode()) + field(2, packed))
    return field(1, entries)


def tf_record(data):
    """The check makes the CRCs right."""
    return struct.pack("<Q4x", len(data)) + data + bytes(4)


def tfrecord_seeds():
    imagenet = [tf_example(("image/encoded", b"\xff\xd8" * 9), ("image/class/label", 3), ("image/filename", b"x")),
                tf_example(("image/filename", b"y" * 40), ("image/encoded", b""), ("image/class/label", 0))]
    yield "imagenet", b"".join(map(tf_record, imagenet))
    yield "plain", tf_record(tf_example(("label", 300), ("image", b"\x89PNG")))
    yield "unlabelled", tf_record(tf_example(("image", b"x"))) * 2
    yield "no-picture-too", tf_record(imagenet[0]) + tf_record(tf_example(("a", 1)))
    yield "bad-labels", tf_record(tf_example(("image", b"x"))) + tf_record(imagenet[0])
    yield "bad-no-picture", tf_record(tf_example(("label", 3)))
    yield "bad-gzip", gzip.compress(tf_record(imagenet[0]), mtime=0)
    yield "bad-cut", tf_record(imagenet[0])[:-1]


def mds_shard(samples, columns):
    """`columns` are (name, encoding, size or None), `samples` tuples of bytes."""
    head = 4 * (len(samples) + 2)
    data, offsets = b"", [head]
    for sample in samples:
        sizes = [len(value) for value, (_, _, size) in zip(sample, columns) if size is None]
        data += struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(sample)
        offsets.append(head + len(data))
    shard = struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + data
    names, encodings, widths = (list(part) for part in zip(*columns))
    entry = {"format": "mds", "column_names": names, "column_encodings": encodings, "column_sizes": widths,
             "samples": len(samples), "raw_data": {"basename": "s.mds", "bytes": len(shard)}, "zip_data": None}
    listing = json.dumps({"version": 2, "shards": [entry]}).encode()
    return struct.pack("<H", len(listing)) + listing + shard


def mds_seeds():
    usual = [("image", "jpeg", None), ("label", "int", 8)]
    two = [(b"\xff\xd8" * 5, struct.pack("<q", 4)), (b"", struct.pack("<q", 0))]
    yield "usual", mds_shard(two, usual)
    yield "label-first", mds_shard([(b"\7", b"id", b"x")], [("class", "uint8", 1), ("id", "str", None), ("x", "bytes", None)])
    yield "unlabelled", mds_shard([(b"x",)], [("image", "png", None)])
    yield "bad-pil", mds_shard([(b"x",)], [("image", "pil", None)])
    yield "bad-label", mds_shard([(b"x", b"\xff" * 4)], [("image", "png", None), ("label", "uint32", 4)])
    yield "bad-cut", mds_shard(two, usual)[:-1]


def parquet_seeds():
    """Files that pyarrow wrote."""
    formats = Path(__file__).parent.parent / "src/data/tests/formats"
    for path in sorted(formats.glob("parquet-*/train-00000-*.parquet")):
        data = path.read_bytes()
        yield path.parent.name, data
        yield f"{path.parent.name}-bad-cut", data[:-9] + data[-8:]
    yield "bad-empty", b"PAR1" + bytes(4) + b"PAR1"


def padded(data):
    return data + bytes(-len(data) % 64)


def strings(names):
    ends, end = [], 0
    for name in names:
        end += len(name.encode())
        ends.append(end)
    return struct.pack(f"<{len(ends)}I", *ends) + "".join(names).encode()


def shard(kind, records, shuffle=None, shards=1, number=0):
    """`records` are (data, label, width, height)."""
    each = max(1, len(records))
    body, index = bytes(192), b""
    for source, (data, label, width, height) in enumerate(records):
        index += struct.pack("<Q6I", len(body), len(data), zlib.crc32(data), label, width, height, source)
        body = padded(body + data)
    names = strings([f"cat/{number}.jpg" for number in range(len(records))])
    sections = []
    for section in (index, names, strings(["cat", "über"])):
        body = padded(body)
        sections.append((len(body), len(section), zlib.crc32(section)))
        body += section
    largest = [max((size(record) for record in records), default=0)
               for size in (lambda r: len(r[0]), lambda r: r[2], lambda r: r[3])]
    header = b"\x89STSHD\r\n" + struct.pack("<4IQ", 1, 192, kind, shuffle is not None, shuffle or 0)
    header += b"fingerprint16byt" + struct.pack("<2I", number, shards)
    header += struct.pack("<4Q", each * shards, each, len(records), len(body))
    header += b"".join(struct.pack("<2Q", *section[:2]) for section in sections)
    header += struct.pack("<7I", *(section[2] for section in sections), 2, *largest) + bytes(24)
    return header + struct.pack("<I", zlib.crc32(header)) + body[192:]


def shard_seeds():
    encoded = [(b"\xff\xd8jpeg", 0, 5, 4), (b"\x89PNG" * 20, 1, 300, 200)]
    yield "encoded", shard(0, encoded)
    yield "rgb", shard(1, [(bytes(range(18)), 1, 3, 2)])
    yield "shuffled", shard(0, encoded * 2, shuffle=7, shards=3, number=2)
    yield "no-record", shard(0, [])
    yield "one-byte", shard(0, [(b"x", 0, 1, 1)])
    yield "bad-pixels", shard(1, [(bytes(range(18)), 1, 3, 3)])
    yield "bad-label", shard(0, [(b"x", 2, 1, 1)])
    yield "bad-cut", shard(0, encoded)[:-1]


def kineto_events():
    for step in range(3):
        at = 1000 * step

        def piece(cat, name, start, length, tid=7, **args):
            return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": at + start, "dur": length, "args": args}

        yield piece("user_annotation", f"ProfilerStep#{step}", 0, 990)
        yield piece("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 400.5)
        yield piece("cpu_op", "aten::add", 410, 200)
        yield piece("cuda_runtime", "cudaLaunchKernel", 420, 10, correlation=2 * step + 1)
        yield piece("kernel", "gemm", 450, 300, tid="stream 7", correlation=2 * step + 1, device=0, stream=7)
        yield piece("cuda_runtime", "cudaMemcpyAsync", 412, 5, correlation=2 * step + 2)
        yield piece("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 418, 20, correlation=2 * step + 2, device=0, bytes=64)
        yield piece("cuda_runtime", "cudaDeviceSynchronize", 700, 60, correlation=0)


def kineto_seeds():
    events = list(kineto_events())
    gpus = [{"id": 0, "name": "GPU"}]
    whole = json.dumps({"deviceProperties": gpus, "baseTimeNanoseconds": 17, "traceEvents": events}).encode()
    on_cpu = [event for event in events if event["cat"] in ("user_annotation", "cpu_op")]
    yield "object", whole
    yield "array", json.dumps(events).encode()
    yield "pretty", json.dumps({"traceEvents": on_cpu}, indent=2).encode()
    yield "gzipped", gzip.compress(whole, mtime=0)
    yield "cut", whole[:-200]
    yield "words", json.dumps(on_cpu).replace("400.5", "400.5, \"rate\": -inf").encode()
    yield "backwards", json.dumps(events[::-1] + [{**events[4], "dur": -5}, 3, {}]).encode()
    yield "bad-empty", b""
    yield "bad-steps", json.dumps([event for event in events if event["cat"] == "kernel"]).encode()
    yield "bad-key", b'{"traceEvents": 3}'


SEEDS = {
    "idx": idx_seeds,
    "cifar": cifar_seeds,
    "tar": tar_seeds,
    "tfrecord": tfrecord_seeds,
    "mds": mds_seeds,
    "parquet": parquet_seeds,
    "shard_raw": shard_seeds,
    "shard_sealed": shard_seeds,
    "kineto": kineto_seeds,
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: seeds.py FOLDER")
    for target, seeds in SEEDS.items():
        folder = Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
