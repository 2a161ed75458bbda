#!/usr/bin/env python3
"""Orders of visiting the samples, from a warm and from a cold page cache: images/s and major page faults.

    scripts/compare-orders.py --shards RAW_SHARDS --shuffled SHUFFLED_SHARDS [--rounds 3] [--mode mmap] [--workers 2]

The shards are made by `stallscope data pack IMAGES DIR --raw 256`, the second set with `--shuffle 1`, and should be
larger than what the kernel reads ahead (128 KiB to some MiB). Each run is one epoch, since after one nothing is cold
any more; pictures are only cropped to 32 pixels, so that reading counts. `resident` is the share of the data in the
page cache before the run, as mincore tells it. A cold run on a virtual disk may still be served from its host's memory.
"""
import argparse
import statistics

from measured import run

ORDERS = {
    "sequential": ("shards", ["shuffle=false"]),
    "random": ("shards", ["shuffle=true"]),
    "block": ("shards", ["shuffle=block"]),
    "pre-shuffled": ("shuffled", ["shuffle=false"]),
}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shards", required=True)
    p.add_argument("--shuffled", required=True)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mode", default="mmap")
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    rows = {}
    for _ in range(a.rounds):
        for cache in ("warm", "cold"):
            for order, (place, sets) in ORDERS.items():
                report = run("source.kind=shard", f"source.path={getattr(a, place)}", f"read.method={a.mode}", f"page_cache={cache}",
                             f"num_workers={a.workers}", "epochs=1", "steps=1000000", "warmup_steps=0", "batch.size=50",
                             "preprocess.size=32", *sets)
                if report["cache"]["unknown"]:
                    raise SystemExit(f"what is in the page cache is not known: {report['cache']['unknown']}")
                rows.setdefault((cache, order), []).append(
                    (report["samples_per_second"], report["major_faults"], report["cache"]["epochs"][0]["resident_share"]))
    print(f"{'cache':5} {'order':13} {'resident':>8} {'images/s':>9} {'major faults':>12} {'of sequential':>13}")
    for (cache, order), runs in rows.items():
        rate, faults, resident = (statistics.median(column) for column in zip(*runs))
        base = statistics.median(r[0] for r in rows[cache, "sequential"])
        print(f"{cache:5} {order:13} {resident:8.1%} {rate:9.0f} {faults:12.0f} {rate / base:13.2f}")


if __name__ == "__main__":
    main()
