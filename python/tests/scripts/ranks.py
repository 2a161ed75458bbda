"""Data-parallel training by gloo: each sample sleeps, and so does each step. Usage: ranks.py PLANT EPOCHS FOLDER

PLANT is what one rank does beside: `stage` and `disk` in each sample on ranks 2 and 1, `moving` on another rank in each epoch;
`killed`: rank 3 ends by SIGKILL in the second epoch. Each rank leaves what its backward passes took in FOLDER, the first 3 steps
left out.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import stallscope

SAMPLE, STEP, EXTRA = 0.004, 0.03, 0.012
BATCH, STEPS = 8, 40
plant, epochs, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.set_num_threads(1)


class Samples(Dataset):
    epoch = 0

    def __len__(self):
        return world * BATCH * STEPS

    def __getitem__(self, index):
        with stallscope.stage("load"):
            time.sleep(SAMPLE + (EXTRA if plant == "disk" and rank == 1 else 0))
        with stallscope.stage("augment"):
            if plant == "stage" and rank == 2 or plant == "moving" and rank == self.epoch % world:
                time.sleep(EXTRA)
        return torch.ones(4), index % 2


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 2)

    def forward(self, inputs):
        time.sleep(STEP)
        return self.line(inputs)


samples = Samples()
sampler = DistributedSampler(samples)
batches = DataLoader(samples, batch_size=BATCH, num_workers=2, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
backward = []
for epoch in range(epochs):
    samples.epoch = epoch
    sampler.set_epoch(epoch)
    for number, (inputs, labels) in enumerate(batches):
        if plant == "killed" and (rank, epoch, number) == (3, 1, STEPS // 2):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        begun = time.monotonic()
        loss.backward()
        backward.append(time.monotonic() - begun)
        optimizer.step()
with open(os.path.join(folder, f"backward-{rank}"), "w") as file:
    file.write(str(sum(backward[3:])))
torch.distributed.destroy_process_group()
