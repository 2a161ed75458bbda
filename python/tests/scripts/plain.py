"""A training as a beginner writes it: two epochs, a validation pass after each. Prints every loss."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(16, generator=generator) + torch.rand(16) * 0.1, index % 4


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = DataLoader(Numbers(96), batch_size=8, shuffle=True, num_workers=workers)
    validation = DataLoader(Numbers(32), batch_size=8, num_workers=workers)
    for _ in range(2):
        for inputs, labels in training:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"{loss.item():.9f}")
        with torch.no_grad():
            for inputs, labels in validation:
                print(f"{torch.nn.functional.cross_entropy(model(inputs), labels).item():.9f}")


if __name__ == "__main__":
    main()
