"""What the hooks record of real DataLoaders."""

import pytest

torch = pytest.importorskip("torch")

from recording import numbers, record  # noqa: E402

TRAINING = """
import time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Numbers(Dataset):
    def __init__(self, length=12, slow=()):
        self.length, self.slow = length, slow
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        if index in self.slow:
            time.sleep(0.3)
        with stallscope.stage("tokenize"):
            return torch.full((3,), float(index))

class Counting(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10.0).reshape(10, 1))

def train(loader, epochs=1):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.LazyLinear(2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in loader:
            loss = model(batch.reshape(-1, batch.shape[-1])).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item())
"""


def main(body):
    return TRAINING + "if __name__ == '__main__':\n    " + body.replace("\n", "\n    ") + "\n"


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_of_workers(workers, context, persistent, tmp_path):
    body = (
        f"train(DataLoader(Numbers(), batch_size=4, num_workers={workers}, "
        f"multiprocessing_context={context!r}, persistent_workers={persistent}), epochs=2)"
    )
    recorded = record(main(body), tmp_path)
    assert recorded.dropped == 0 and not recorded.texts("Problem")
    # Two epochs of three batches of four samples, and all of them once at each place.
    for kind, times in [("Dispatch", 6), ("Receive", 6), ("Fetch", 6), ("Transport", 6), ("Sample", 24)]:
        events = recorded.of(kind)
        assert len(events) == times, kind
        # The ways of samples, with batch and worker, are whole.
        places = {(*numbers(event, "iterator"), *numbers(event, "epoch"), *numbers(event, "number")) for event in events}
        assert len(places) == 6, kind
    passes = [("iterator: 0, epoch: 0", "iterator: 0, epoch: 1")] if persistent else [("iterator: 0", "iterator: 1")]
    for first, second in passes:
        for of in (first, second):
            assert len(recorded.of("PassBegins", of, "grad: true")) == 1
            assert len(recorded.of("PassEnds", of, "early: false")) == 1
            assert len(recorded.of("Dispatch", of)) == 3
    started = workers * (1 if persistent else 2)
    assert len(recorded.of("WorkerBegins")) == len(recorded.of("WorkerEnds")) == started
    assert len(recorded.of("Main", "StartWorkers")) == started
    assert len(recorded.of("NextEnds", "is_some: true", "samples: 4")) == 6
    assert len(recorded.of("NextEnds", "is_some: false")) == 2
    assert {phase: len(recorded.of("Compute", phase)) for phase in ("Forward", "Backward", "Optimizer", "Inference")} == {
        "Forward": 6, "Backward": 6, "Optimizer": 6, "Inference": 0,
    }
    assert set(recorded.part_names()) == {"tokenize"}
    # Everything is on one clock, and in the order in which it happens.
    for received in recorded.of("Receive", "iterator: 0, epoch: 0"):
        same = f"epoch: 0 }}, number: {numbers(received, 'number')[0]} "
        (dispatch,) = recorded.of("Dispatch", "iterator: 0", same)
        (fetch,) = recorded.of("Fetch", "iterator: 0", same)
        (transport,) = recorded.of("Transport", "iterator: 0", same)
        assert numbers(dispatch, "sampler")[1] <= numbers(dispatch, "put")[0]
        wait, span, collate = (numbers(fetch, name) for name in ("wait", "span", "collate"))
        assert numbers(dispatch, "sampler")[1] <= wait[1] == span[0] < collate[0] <= collate[1] <= span[1]
        pickle, sent = numbers(transport, "pickle"), numbers(transport, "sent")[0]
        assert collate[1] <= pickle[0] <= pickle[1] <= sent
        work = numbers(received, "work")
        assert pickle[1] <= work[1] and work[0] <= work[1]
        assert numbers(transport, "bytes") == numbers(received, "bytes")
        assert numbers(fetch, "worker") == numbers(dispatch, "worker") == numbers(received, "worker")


def test_without_workers_samples_are_made_within_next(tmp_path):
    recorded = record(main("train(DataLoader(Numbers(), batch_size=4), epochs=2)"), tmp_path)
    assert not recorded.texts("Problem")
    assert len(recorded.of("Sample")) == 24 and len(recorded.of("Fetch", "worker: 0")) == 6
    assert len(recorded.of("Dispatch")) == 6 and not recorded.of("Receive")
    begun = [numbers(event, "at")[0] for event in recorded.of("NextBegins")]
    ended = [numbers(event, "at")[0] for event in recorded.of("NextEnds")]
    for event in recorded.of("Sample"):
        span = numbers(event, "span")
        assert any(since <= span[0] <= span[1] <= until for since, until in zip(begun, ended))
    assert len({event.pid for event in recorded.events}) == 1


def test_a_slow_batch_parks_those_that_come_before_it(tmp_path):
    body = "train(DataLoader(Numbers(24, slow=[0]), batch_size=4, num_workers=2))"
    recorded = record(main(body), tmp_path)
    parked = recorded.of("Receive", "parked: true")
    assert parked and all("worker: 1" in event.said for event in parked)
    assert len(recorded.of("Receive")) == 6


@pytest.mark.skipif("in_order" not in torch.utils.data.DataLoader.__init__.__code__.co_varnames, reason="torch has no in_order")
def test_out_of_order_nothing_is_parked(tmp_path):
    body = "train(DataLoader(Numbers(24, slow=[0]), batch_size=4, num_workers=2, in_order=False))"
    recorded = record(main(body), tmp_path)
    assert not recorded.of("Receive", "parked: true")
    returned = [numbers(event, "number")[0] for event in recorded.of("NextEnds", "is_some: true")]
    assert sorted(returned) == list(range(6)) and returned != sorted(returned)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_data_ends(workers, tmp_path):
    recorded = record(main(f"train(DataLoader(Counting(), batch_size=4, num_workers={workers}))"), tmp_path)
    assert not recorded.texts("Problem")
    copies = max(workers, 1)
    assert len(recorded.of("Sample", "index: 18446744073709551615")) == 10 * copies
    assert len(recorded.of("Fetch", "ended: false")) == 3 * copies
    assert len(recorded.of("Fetch", "ended: true")) == copies
    assert '\\"iterable\\": true' in recorded.texts("Loader")[0]


def test_whole_batches_and_single_samples(tmp_path):
    body = """
class Whole(Numbers):
    def __getitems__(self, indices):
        return [self[index] for index in indices]

train(DataLoader(Whole(), batch_size=4))
train(DataLoader(torch.utils.data.Subset(Numbers(), range(4)), batch_size=4))
train(DataLoader(Numbers(), batch_size=None))
"""
    recorded = record(main(body), tmp_path)
    assert len(recorded.of("Sample", "iterator: 0", "samples: 4")) == 3
    # A Subset's whole batches are made one by one.
    assert len(recorded.of("Sample", "iterator: 1", "samples: 1")) == 4
    assert len(recorded.of("Sample", "iterator: 2", "samples: 1")) == 12
    assert len(recorded.of("Fetch", "iterator: 2")) == 12


def test_a_loop_that_is_left_and_one_without_gradients(tmp_path):
    body = """
loader = DataLoader(Numbers(40), batch_size=4, num_workers=1)
with torch.no_grad():
    for batch in loader:
        torch.nn.Linear(3, 1)(batch)
        break
del batch
for batch in loader:
    break
"""
    recorded = record(main(body), tmp_path)
    assert len(recorded.of("PassBegins", "grad: false")) == len(recorded.of("PassBegins", "grad: true")) == 1
    assert len(recorded.of("PassEnds", "early: true")) >= 1
    assert len(recorded.of("Compute", "Inference")) == 1 and not recorded.of("Compute", "Forward")


def test_an_exception_of_a_worker_is_the_scripts(tmp_path):
    body = """
class Bad(Numbers):
    def __getitem__(self, index):
        if index == 5:
            raise ValueError("no such sample")
        return super().__getitem__(index)

train(DataLoader(Bad(), batch_size=4, num_workers=2))
"""
    recorded = record(main(body), tmp_path, status=1)
    assert "no such sample" in recorded.ran.stderr
    assert len(recorded.of("NextEnds", "is_some: true")) == 1


def test_a_worker_that_is_killed(tmp_path):
    body = """
class Deadly(Numbers):
    def __getitem__(self, index):
        if index == 9:
            time.sleep(0.5)
            os.kill(os.getpid(), 9)
        return super().__getitem__(index)

train(DataLoader(Deadly(), batch_size=4, num_workers=1))
"""
    recorded = record(main(body), tmp_path, status=1)
    assert "exited unexpectedly" in recorded.ran.stderr
    # What it has written before is there.
    assert len(recorded.of("Sample")) == 9 and len(recorded.of("Transport")) == 2


def test_stages_outside_of_samples_and_parts_within_parts(tmp_path):
    body = """
@stallscope.stage("outer")
def outer():
    with stallscope.stage("inner"):
        time.sleep(0.02)
    time.sleep(0.01)

class Nested(Numbers):
    def __getitem__(self, index):
        outer()
        return super().__getitem__(index)

for batch in DataLoader(Nested(4), batch_size=4):
    outer()
"""
    recorded = record(main(body), tmp_path)
    took = recorded.part_names()
    assert set(took) == {"outer", "inner", "tokenize"}
    # 4 x 10 ms without the 4 x 20 ms inside it.
    assert 40 <= took["outer"] < took["inner"]
    assert len(recorded.of("Stage")) == 2


def test_stages_around_a_loader_do_not_hide_those_after_it(tmp_path):
    body = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(4):
            with stallscope.stage("within"):
                yield number

# What is recorded begins with the first loader.
list(DataLoader(Numbers(1)))
with stallscope.stage("train"):
    for data in (Numbers(4), Stream()):
        batches = iter(DataLoader(data, batch_size=1))
        for _ in range(4):
            with stallscope.stage("load"):
                next(batches)
            with stallscope.stage("step"):
                time.sleep(0.01)
"""
    recorded = record(main(body), tmp_path)
    steps = [(end - start) / 1e6 for start, end in (numbers(stage, "span") for stage in recorded.of("Stage"))]
    # Those in which samples were made are not told.
    assert len(steps) == 8 and all(10 <= step < 500 for step in steps), steps


def test_losses_are_those_of_the_script_alone(tmp_path):
    body = "train(DataLoader(Numbers(40), batch_size=4, shuffle=True, num_workers=2), epochs=2)"
    with_hooks = record(main(body), tmp_path)
    alone = record(main(body), tmp_path, prelude=INSTALLED_NOT)
    assert with_hooks.ran.stdout == alone.ran.stdout and with_hooks.ran.stdout.count("\n") == 20


INSTALLED_NOT = """
import os, sys
import stallscope
from stallscope import _native
open(os.environ["RECORDED"], "w").write("[[], 0]")
"""
