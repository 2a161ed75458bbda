"""A loop of one's own with accelerate, which fetches a batch ahead. Prints every loss."""

import torch
from accelerate import Accelerator
from plain import Numbers
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.manual_seed(7)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Numbers(96), batch_size=8, shuffle=True, num_workers=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print(f"{loss.item():.9f}")
