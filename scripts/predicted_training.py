#!/usr/bin/env python3
"""Three PyTorch trainings that are predicted, and then measured by `time` alone.

usage: predicted_training.py waits|jpeg|small [--num-workers N] [--prefetch-factor N] [--persistent-workers] [--epochs N]

Prints samples/s over all epochs as JSON. The device is a sleep, as a GPU is to the host; `small` also computes a step.
Needs torch, torchvision and Pillow.
"""

import argparse
import gc
import io
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Waits(Dataset):
    """Samples that wait for storage, one in 16 ten times as long, and compute a little."""

    step, batch_size = 0.012, 8

    def __len__(self):
        return 480

    def __getitem__(self, index):
        chance = random.Random(index)
        time.sleep(chance.lognormvariate(-6.2, 0.5) * (10 if chance.random() < 1 / 16 else 1))
        return torch.full((1000,), float(index)), index


class Jpeg(Dataset):
    """JPEGs, decoded and transformed with torchvision."""

    step, batch_size = 0.02, 16

    def __init__(self):
        from PIL import Image
        from torchvision import transforms

        chance = torch.Generator().manual_seed(1)
        self.files = []
        for number in range(24):
            size = 200 + 12 * number
            noise = torch.rand(3, size // 8, size // 8, generator=chance)
            picture = transforms.functional.resize(transforms.functional.to_pil_image(noise), (size, size))
            file = io.BytesIO()
            picture.save(file, "jpeg", quality=90)
            self.files.append(file.getvalue())
        self.open = Image.open
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(160), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.2] * 3)])

    def __len__(self):
        return 640

    def __getitem__(self, index):
        picture = self.open(io.BytesIO(self.files[index * 7 % len(self.files)])).convert("RGB")
        return self.transform(picture), index


class Small(Dataset):
    """Small samples in memory, with words: collating and sending are what costs."""

    step, batch_size = 0.002, 64

    def __init__(self):
        self.data = torch.rand(4096, 3000)

    def __len__(self):
        return 6400

    def __getitem__(self, index):
        return self.data[index % 4096], index, ["w%d" % (index + word) for word in range(8)]


DATASETS = {"waits": Waits, "jpeg": Jpeg, "small": Small}


def train(dataset, epochs, **settings):
    """Samples/s."""
    torch.manual_seed(5)
    random.seed(5)
    model = torch.nn.Linear(3000, 10) if isinstance(dataset, Small) else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01) if model else None
    loader = DataLoader(dataset, batch_size=dataset.batch_size, shuffle=True, **settings)
    # Once after `import torch` it takes 0.3 s, and in forked workers longer: it is not to fall into some of the runs only.
    gc.collect()
    samples, begun = 0, time.monotonic()
    for _ in range(epochs):
        for batch in loader:
            samples += len(batch[1])
            if model:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(batch[0]), batch[1] % 10).backward()
                optimizer.step()
            time.sleep(dataset.step)
    return samples / (time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=DATASETS)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--prefetch-factor", type=int, default=2)
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"num_workers": options.num_workers}
    if options.num_workers:
        settings.update(prefetch_factor=options.prefetch_factor, persistent_workers=options.persistent_workers)
    print(json.dumps({"samples_per_second": train(DATASETS[options.name](), options.epochs, **settings)}))


if __name__ == "__main__":
    main()
