"""Distributed data parallel with gloo, for torchrun. Each rank writes its losses into the folder that is given."""

import os
import sys

import torch
import torch.distributed as distributed
from plain import Numbers
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

if __name__ == "__main__":
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Numbers(96)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
    with open(os.path.join(sys.argv[1], f"losses-{rank}"), "w") as file:
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for inputs, labels in loader:
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f"{loss.item():.9f}", file=file)
    distributed.destroy_process_group()
