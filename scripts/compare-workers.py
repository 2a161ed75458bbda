#!/usr/bin/env python3
"""How the loader scales with workers that wait: raw shards behind an emulated read latency of 5 ms.

    scripts/compare-workers.py --shards RAW_SHARDS [--latency 5ms] [--rounds 5] [--set KEY=VALUE ...]

`of linear` is images/s over that of one worker (the first of --workers) times the number of workers: 100 % until the
cores are saturated. Medians over the rounds. Build with `cargo build --release` first.
"""
import argparse
import statistics

from measured import run


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shards", required=True)
    p.add_argument("--latency", default="5ms")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--workers", default="1,2,4,8,16,32")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    a = p.parse_args()
    counts = [int(n) for n in a.workers.split(",")]
    found = {n: [] for n in counts}
    for _ in range(a.rounds):
        for workers in counts:
            steps = max(10, int(a.seconds * workers * 180 / 16))
            report = run("source.kind=shard", f"source.path={a.shards}", "storage.emulate=custom", f"storage.latency={a.latency}",
                         "page_cache=warm", "epochs=1000000", f"steps={steps}", f"warmup_steps={2 * workers}", "batch.size=16",
                         f"num_workers={workers}", *a.set)
            found[workers].append((report["samples_per_second"], report["process_cpu_ns"] / report["window_ns"]))
    print(f"{'workers':>7} {'images/s':>9} {'of linear':>9} {'cores used':>10}")
    one = statistics.median(rate for rate, _ in found[counts[0]]) / counts[0]
    for workers, runs in found.items():
        rate, cores = map(statistics.median, zip(*runs))
        print(f"{workers:7} {rate:9.1f} {rate / workers / one:9.1%} {cores:10.2f}")


if __name__ == "__main__":
    main()
