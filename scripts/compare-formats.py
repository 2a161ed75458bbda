#!/usr/bin/env python3
"""The same pictures as JPEG, as PNG and as raw pixels: what loading one takes, and how much of that is decoding.

    scripts/compare-formats.py [--images 400] [--rounds 5] [--folder DIR] [--set KEY=VALUE ...]

Pictures are generated once in --folder; raw pixels are those of the PNG files, at full size, in shards. One worker
loads them from the page cache, crops, resizes and normalises as training does. Times are the worker's own (read +
decode + preprocess, medians over the rounds of the mean of each run), formats in turns;
the first epoch, in which checksums are compared, is a warm-up. Build with
`cargo build --release` first.
"""
import argparse
import os
import statistics
import tempfile

from measured import data, run, stage

STAGES = ("read", "decode", "preprocess")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--images", type=int, default=400)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "stallscope-formats"))
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    a = p.parse_args()
    at = {name: os.path.join(a.folder, f"{name}-{a.images}") for name in ("jpeg", "png", "raw")}
    for name in ("jpeg", "png"):
        data("generate", at[name], "--images", str(a.images), "--format", name)
    data("pack", at["png"], at["raw"], "--raw", "16384")
    runs = {name: [] for name in at}
    for _ in range(a.rounds):
        for name, path in at.items():
            kind = ["source.kind=shard"] if name == "raw" else []
            report = run(f"source.path={path}", "num_workers=1", "page_cache=warm", "epochs=2", "batch.size=20",
                         f"warmup_steps={a.images // 20}", f"steps={a.images // 20}", *kind, *a.set)
            each = {s: stage(report, s)["service"]["mean_ns"] / 1e3 for s in STAGES}
            read = stage(report, "read")
            runs[name].append({**each, "all": sum(each.values()), "bytes": read["bytes_out"] / read["items"]})
    print(f"{'format':7} {'kB a picture':>12} {'load us':>9} {'read':>8} {'decode':>8} {'preprocess':>10} {'decoding':>9} {'of JPEG':>8}")
    medians = {n: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for n, rows in runs.items()}
    for name, m in medians.items():
        print(f"{name:7} {m['bytes'] / 1e3:12.1f} {m['all']:9.0f} {m['read']:8.0f} {m['decode']:8.0f} {m['preprocess']:10.0f} "
              f"{m['decode'] / m['all']:9.1%} {m['all'] / medians['jpeg']['all']:8.2f}")


if __name__ == "__main__":
    main()
