#!/usr/bin/env python3
"""Memory of a process that takes a week's worth of batches from `stallscope.torch.Loader`, by count.

    scripts/torch_loader_growth.py MNIST_FOLDER [--batches 6048000] [--batch 1] [--workers 1]

6,048,000 is 10 batches a second for a week. Prints resident memory ten times on the way, and the largest of the last
nine over the first. Run it with the Python that has torch and the wheel.
"""
import argparse
import os
import time


def resident():
    """Bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--batches", type=int, default=6_048_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    a = parser.parse_args()
    from stallscope.torch import Loader

    loader = Loader(path=a.data, format="mnist", batch_size=a.batch, num_workers=a.workers)
    done, epochs, began, seen = 0, 0, time.monotonic(), []
    while done < a.batches:
        for _ in loader:
            done += 1
            if done % (a.batches // 10) == 0:
                seen.append(resident())
                rate = done / (time.monotonic() - began)
                print(f"{done:>9} batches, {epochs:>4} epochs: {seen[-1] / 1e6:.1f} MB, {rate:.0f} batches/s", flush=True)
            if done == a.batches:
                break
        epochs += 1
    print(f"largest over the first: {max(seen[1:]) / seen[0]:.3f}")


if __name__ == "__main__":
    main()
