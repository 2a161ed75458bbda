#!/usr/bin/env python3
"""Reads from an S3-compatible server on loopback whose answers a proxy delays or spoils, and compares with arithmetic.

usage: store-check.py STALLSCOPE [measure|faults|peers ...] [--server s3s-fs|moto] [--latency MS] [--samples N]

  measure   images/s with 1 to 64 requests in flight, which should be requests / latency; what `predict` makes of one of
            these runs for the others
  faults    5 % of the answers 503, connections cut in the middle of an object, too few bytes, credentials that expired
  peers     images/s at 2 workers beside WebDataset and torch with s3fs, of the same server

Needs `s3s-fs` (cargo install s3s-fs@0.14.1 --features binary) or `moto_server` (pip install moto[server]) in PATH, Pillow,
and for `peers` torch, webdataset and s3fs.
"""

import argparse
import asyncio
import contextlib
import io
import json
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

from PIL import Image

KEY, SECRET = "testkey", "testsecret-that-nobody-may-see"
BUCKET = "bucket"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# The proxy: passes requests on as they are, so that signatures hold.


async def head_of(reader):
    text = await reader.readuntil(b"\r\n\r\n")
    lines = text.decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    return text, lines[0], {name.lower(): value for name, value in fields.items()}


def refusal(status, code):
    body = f"<Error><Code>{code}</Code><Message>planted</Message><AWSAccessKeyId>{KEY}</AWSAccessKeyId></Error>".encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def serve(client, to_client, backend, latency, plan, counts):
    upstream = None
    try:
        while True:
            text, first, fields = await head_of(client)
            began = asyncio.get_running_loop().time()
            is_read = first.startswith("GET") and "range" in fields
            fault = plan() if is_read else plan("expired")
            if is_read:
                counts["reads"] = counts.get("reads", 0) + 1
            if fault in ("throttle", "expired"):
                counts[fault] = counts.get(fault, 0) + 1
                status = {"throttle": ("503 Slow Down", "SlowDown"), "expired": ("400 Bad Request", "ExpiredToken")}
                to_client.write(refusal(*status[fault]))
                continue
            if upstream is None:
                upstream = await asyncio.open_connection("127.0.0.1", backend)
            upstream[1].write(text)
            answer, _, answered = await head_of(upstream[0])
            length = 0 if first.startswith("HEAD") else int(answered.get("content-length", 0))
            chunked = answered.get("transfer-encoding") == "chunked"
            body = await upstream[0].readexactly(length) if length else b""
            while chunked:
                size = await upstream[0].readline()
                body += size + await upstream[0].readexactly(int(size, 16) + 2)
                chunked = int(size, 16) > 0
            if is_read:
                await asyncio.sleep(max(0, began + latency - asyncio.get_running_loop().time()))
            if fault == "cut":
                counts[fault] = counts.get(fault, 0) + 1
                to_client.write(answer + body[: len(body) // 2])
                await to_client.drain()
                return
            if fault == "short":
                counts[fault] = counts.get(fault, 0) + 1
                body = body[: len(body) // 2]
                lines = answer.decode("latin-1").split("\r\n")
                lines = [f"Content-Length: {len(body)}" if line.lower().startswith("content-length:") else line for line in lines]
                answer = "\r\n".join(lines).encode("latin-1")
            to_client.write(answer + body)
            await to_client.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        to_client.close()
        if upstream:
            upstream[1].close()


def proxy(port, backend, latency, fault, share, counts):
    """Delays reads by `latency` seconds, and does `fault` to a `share` of them."""
    chance = random.Random(7)

    def plan(only=None):
        if fault is None or only and fault != only:
            return None
        return fault if only or chance.random() < share else None

    async def run():
        server = await asyncio.start_server(
            lambda r, w: serve(r, w, backend, latency, plan, counts), "127.0.0.1", port, limit=1 << 20, backlog=512)
        async with server:
            await server.serve_forever()

    asyncio.run(run())


@contextlib.contextmanager
def proxied(backend, latency, fault=None, share=0.0):
    with multiprocessing.Manager() as manager:
        counts, port = manager.dict(), free_port()
        process = multiprocessing.Process(target=proxy, args=(port, backend, latency, fault, share, counts), daemon=True)
        process.start()
        wait_for(port)
        yield environment(port), counts
        process.terminate()
        process.join()


def wait_for(port):
    for _ in range(400):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    sys.exit(f"nothing answers at port {port}")


def environment(port):
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}


@contextlib.contextmanager
def server(kind, folder):
    """An S3-compatible server that has the files in `folder`/bucket."""
    port = free_port()
    if kind == "s3s-fs":
        command = ["s3s-fs", "--host", "127.0.0.1", "--port", str(port), "--access-key", KEY, "--secret-key", SECRET, str(folder)]
    else:
        command = ["moto_server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        if kind == "moto":
            base = f"http://127.0.0.1:{port}/{BUCKET}"
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            put = lambda url, data: direct.open(urllib.request.Request(
                url, data=data, method="PUT", headers={"Content-Type": "application/octet-stream"}), timeout=20)
            put(base, b"")
            for path in sorted((folder / BUCKET).rglob("*")):
                if path.is_file():
                    put(f"{base}/{path.relative_to(folder / BUCKET)}", path.read_bytes())
        yield port
    finally:
        process.terminate()
        process.wait()


def make_data(folder, samples):
    """Tar shards of small pictures, 256 in each, and a folder of some of them."""
    shards = folder / BUCKET / "shards"
    shards.mkdir(parents=True)
    pictures = []
    for i in range(64):
        out = io.BytesIO()
        Image.linear_gradient("L").resize((48, 40)).rotate(i * 5).convert("RGB").save(out, "JPEG", quality=90)
        pictures.append(out.getvalue())
    for first in range(0, samples, 256):
        with tarfile.open(shards / f"{first // 256:05}.tar", "w") as tar:
            for i in range(first, min(samples, first + 256)):
                for name, data in ((f"{i:06}.jpg", pictures[i % 64]), (f"{i:06}.cls", str(i % 10).encode())):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    for i in range(40):
        path = folder / BUCKET / "pictures" / f"class{i % 4}" / f"{i:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pictures[i])


CONFIG = """batch.size = 32
mode = "loader-only"
preprocess.size = 32
warmup_steps = 2
source.kind = "webdataset"
read.prefetch = 64
trace.steps = 50
"""


def run(program, env, folder, *sets, path="shards", check=True):
    config = folder / "run.toml"
    config.write_text(CONFIG + f'source.path = "s3://{BUCKET}/{path}"\n')
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = [word for one in sets for word in ("--set", one)]
    done = subprocess.run([program, "run", str(config), "--quiet", "--run-dir", str(out), *words], env=env, capture_output=True,
                          text=True)
    for said in (done.stdout, done.stderr, *(path.read_text(errors="replace") for path in out.rglob("*") if path.is_file())):
        assert SECRET not in said and KEY not in said, "a credential was told"
    if check and done.returncode:
        sys.exit(done.stderr)
    report = json.loads((out / "report.json").read_text()) if (out / "report.json").exists() else {}
    return done, report, out


def predicted(program, out, *sets):
    words = [word for one in sets for word in ("--set", one)]
    done = subprocess.run([program, "predict", str(out), "--json", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["prediction"]["samples_per_second"]["value"]


def measure(args, folder, port):
    latency = args.latency / 1000
    all_requests = [1, 2, 4, 8, 16, 32, 64]
    with proxied(port, latency) as (env, _):
        rates, runs, sets = {}, {}, {}
        for requests in all_requests:
            sets[requests] = [f"read.requests={requests}", f"steps={max(8, int(requests / latency * 8 / 32))}"]
            _, report, out = run(args.program, env, folder, *sets[requests])
            rates[requests], runs[requests] = report["samples_per_second"], report["data"]["store"]
            kept = folder / f"kept-{requests}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(out, kept)
    print(f"requests  images/s  requests/latency  ratio  mean read ms   predicted from 8  ratio  ({args.server}, {args.latency} ms)")
    for requests in all_requests:
        ideal = requests / latency
        foretold = predicted(args.program, folder / "kept-8", *sets[requests])
        rate = rates[requests]
        print(f"{requests:8} {rate:9.1f} {ideal:17.1f} {rate / ideal:6.3f} {runs[requests]['mean_ns'] / 1e6:13.2f} "
              f"{foretold:18.1f} {foretold / rate:6.3f}", flush=True)


def faults(args, folder, port):
    for fault, share in [(None, 0), ("throttle", 0.05), ("cut", 0.05), ("short", 0.05), ("short", 1.0), ("expired", 1.0)]:
        with proxied(port, 0.005, fault, share) as (env, counts):
            done, report, _ = run(args.program, env, folder, "epochs=1", "drop_last=false", "warmup_steps=0", check=False)
            store = report.get("data", {}).get("store", {})
            told = " ".join(done.stderr.split())
            print(f"{fault or 'none'}, {share:.0%}: exit {done.returncode}, samples {report.get('samples')}, planted {dict(counts)}, "
                  f"told {dict((k, store.get(k)) for k in ('requests', 'throttled', 'server_errors', 'cut_off'))}; {told}", flush=True)


PEER = """
import io, os, sys, time, torch
from PIL import Image
from torchvision import transforms
peer, shards = sys.argv[1], sys.argv[2:]
take = transforms.Compose([transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
if peer == "webdataset":
    import webdataset
    urls = [f"pipe:python3 -c 'import s3fs,sys,shutil; shutil.copyfileobj(s3fs.S3FileSystem().open(sys.argv[1]), sys.stdout.buffer)' {s}"
            for s in shards]
    data = webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(256).decode("pil").to_tuple("jpg", "cls").map(
        lambda pair: (take(pair[0]), pair[1]))
    loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=2)
else:
    import tarfile, s3fs
    class Pictures(torch.utils.data.Dataset):
        def __init__(self):
            store = s3fs.S3FileSystem()
            self.store, self.places = None, []
            for shard in shards:
                with tarfile.open(fileobj=io.BytesIO(store.cat_file(shard))) as tar:
                    self.places += [(shard, m.offset_data, m.size) for m in tar if m.name.endswith(".jpg")]
        def __len__(self):
            return len(self.places)
        def __getitem__(self, i):
            if self.store is None:
                self.store = s3fs.S3FileSystem(skip_instance_cache=True)
            shard, at, size = self.places[i]
            return take(Image.open(io.BytesIO(self.store.cat_file(shard, start=at, end=at + size))).convert("RGB")), i % 10
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=32, num_workers=2, shuffle=True)
count, began = 0, None
for number, (pictures, _) in enumerate(loader):
    if number == 2:
        began, count = time.perf_counter(), 0
    count += len(pictures)
    if began and time.perf_counter() - began > 15:
        break
print(count / (time.perf_counter() - began))
"""


def peers(args, folder, port):
    shards = [f"s3://{BUCKET}/shards/{path.name}" for path in sorted((folder / BUCKET / "shards").iterdir())]
    with proxied(port, args.latency / 1000) as (env, _):
        env.update(AWS_DEFAULT_REGION="us-east-1")
        for turn in range(3):
            line = []
            for sets in (["num_workers=2"], ["num_workers=2", "read.requests=1"]):
                _, report, _ = run(args.program, env, folder, *sets, "max_time=8s", "steps=100000")
                line.append(f"stallscope {' '.join(sets)}: {report['samples_per_second']:.1f}")
            for peer in ("torch with s3fs", "webdataset"):
                done = subprocess.run([sys.executable, "-c", PEER, peer, *shards], env=env, capture_output=True, text=True)
                line.append(f"{peer}: {float(done.stdout):.1f}" if done.returncode == 0 else f"{peer}: {done.stderr[-300:]}")
            print("; ".join(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("what", nargs="*", default=["measure", "faults"])
    parser.add_argument("--server", default="s3s-fs")
    parser.add_argument("--latency", type=float, default=100)
    parser.add_argument("--samples", type=int, default=4096)
    args = parser.parse_args()
    args.program = args.program.resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_data(folder, args.samples)
        with server(args.server, folder) as port:
            for what in args.what:
                {"measure": measure, "faults": faults, "peers": peers}[what](args, folder, port)


if __name__ == "__main__":
    main()
