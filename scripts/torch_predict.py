#!/usr/bin/env python3
"""Hold predictions for PyTorch's DataLoader against real runs.

From one run at one setting, recorded with plain timing wrappers, every other setting of the grid is predicted and saved
before any of them is measured.

    python scripts/torch_predict.py --stallscope target/release/stallscope --out DIR [--script waits|jpeg|small] [--seconds 6]
"""

import argparse
import io
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from multiprocessing import queues, reduction

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

NS = time.monotonic_ns
CPU = time.thread_time_ns


def work(seconds):
    """Waits, as for a device."""
    time.sleep(seconds)


class Waits(Dataset):
    """Samples that wait for storage, one in 16 ten times as long, and compute a little."""

    step, batch_size = 0.012, 8

    def __len__(self):
        return 480

    def __getitem__(self, index):
        chance = random.Random(index)
        time.sleep(chance.lognormvariate(-6.2, 0.5) * (10 if chance.random() < 1 / 16 else 1))
        return torch.full((1000,), float(index))


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
    """Small samples in memory: collating and transport are what costs."""

    step, batch_size = 0.004, 64

    def __init__(self):
        self.data = torch.rand(4096, 3000)

    def __len__(self):
        return 6400

    def __getitem__(self, index):
        row = self.data[index % 4096]
        return {"x": row, "y": index, "words": ["w%d" % (index + n) for n in range(8)]}


DATASETS = {"waits": Waits, "jpeg": Jpeg, "small": Small}
EVENTS = os.environ.get("TORCH_PREDICT_EVENTS")


def say(*event):
    """One line of a file for each process."""
    with open(f"{EVENTS}/{os.getpid()}", "a") as file:
        file.write(json.dumps(event) + "\n")


class Timed(Dataset):
    """The samples of `inner`, with what each took."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        wall, cpu = NS(), CPU()
        sample = self.inner[index]
        return sample, NS() - wall, CPU() - cpu


def timed_collate(samples):
    """Collates, and notes what the batch took."""
    wall, cpu = NS(), CPU()
    batch = default_collate([sample for sample, _, _ in samples])
    return batch, [[w, c] for _, w, c in samples], [NS() - wall, CPU() - cpu], worker_id()


def worker_id():
    """Of this process, 0 in the main one."""
    info = torch.utils.data.get_worker_info()
    return info.id if info else 0


def wrap_pickling():
    """Times pickling in feeder threads."""
    dumps = reduction.ForkingPickler.dumps

    def timed_dumps(obj, protocol=None):
        wall, cpu = NS(), CPU()
        data = dumps(obj, protocol)
        if isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[1], tuple):
            say("pickle", worker_id_of_process, obj[0], NS() - wall, CPU() - cpu, len(data), wall)
        return data

    queues._ForkingPickler.dumps = timed_dumps


worker_id_of_process = 0


def init_worker(number):
    """Notes when a worker is ready."""
    global worker_id_of_process
    worker_id_of_process = number
    say("ready", number, NS(), CPU())


def cpu_seconds():
    """Of all programs, and of this one and its children."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    own = sum(os.times()[:4])
    for child in multiprocessing.active_children():
        with open(f"/proc/{child.pid}/stat") as file:
            own += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK"), own


def training(name, epochs, settings, record):
    """Trains; returns samples/s over all epochs, and with `record` the costs."""
    dataset = DATASETS[name]()
    settings = {"batch_size": dataset.batch_size, **settings}
    if settings["num_workers"] == 0:
        settings.pop("prefetch_factor", None)
        settings.pop("persistent_workers", None)
    torch.manual_seed(5)
    recorder = Recorder(settings, len(dataset)) if record else None
    options = {"collate_fn": timed_collate, "worker_init_fn": init_worker} if record else {}
    loader = DataLoader(Timed(dataset) if record else dataset, shuffle=True, **settings, **options)
    samples, begun, cpu = 0, NS(), cpu_seconds()
    for epoch in range(epochs):
        if record:
            samples += recorder.epoch(loader, epoch, dataset.step)
            continue
        for batch in loader:
            samples += len(batch[0] if isinstance(batch, (list, tuple)) else batch["y"] if isinstance(batch, dict) else batch)
            work(dataset.step)
    seconds = (NS() - begun) / 1e9
    everything, own = (now - before for now, before in zip(cpu_seconds(), cpu))
    others = max(0, everything - own) / seconds
    return samples / seconds, {**recorder.costs(), "others": others} if record else {"others": others}


class Recorder:
    """One run, as the report of the profiler would have it."""

    def __init__(self, settings, samples):
        self.settings, self.samples = settings, samples
        self.batches, self.passes = [], []
        self.samplers = []
        wrap_pickling()
        from torch.utils.data import dataloader as d

        iterator = d._MultiProcessingDataLoaderIter
        put, get, stop = iterator._try_put_index, iterator._try_get_data, iterator._shutdown_workers
        recorder = self

        def timed_put(self):
            wall, cpu = NS(), CPU()
            put(self)
            recorder.samplers.append([NS() - wall, CPU() - cpu])

        def timed_get(self, timeout=5.0):
            while not self._data_queue._poll(timeout):
                if not all(w.is_alive() for w in self._workers):
                    break
            wall = NS()
            found = get(self, timeout)
            if found[0]:
                # While it waits, the worker's thread that hands tensors over computes.
                recorder.received[found[1][0]] = [NS() - wall, NS() - wall]
            return found

        def timed_stop(self):
            wall = NS()
            if not self._shutdown:
                stop(self)
                recorder.stop = [NS() - wall, 0]

        for name, function in (("_try_put_index", timed_put), ("_try_get_data", timed_get), ("_shutdown_workers", timed_stop)):
            setattr(iterator, name, function)

        process = torch.multiprocessing.get_context("fork").Process
        start = process.start

        def timed_start(self):
            wall, cpu = NS(), CPU()
            start(self)
            recorder.started.append([wall, NS() - wall, CPU() - cpu])

        process.start = torch.multiprocessing.Process.start = timed_start

    def epoch(self, loader, number, step):
        self.received, self.started, self.samplers, self.stop = {}, [], [], [0, 0]
        begun, count, steps = NS(), 0, []
        iterator = iter(loader)
        made = NS() - begun
        priming = len(self.samplers)
        prime = sum(wall for wall, _ in self.samplers)
        samples = 0
        while True:
            called = NS()
            batch = next(iterator, None)
            returned, cpu = NS(), CPU()
            if batch is None:
                break
            _, own, collate, worker = batch
            samples += len(own)
            work(step)
            self.batches.append({"pass": number, "worker": worker, "own": own, "collate": collate, "next": returned - called,
                                 "step": [NS() - returned, CPU() - cpu], "number": count})
            count += 1
        ended = NS()
        for batch in self.batches[-count:]:
            batch["receive"] = self.received.get(batch["number"], [0, 0])
            batch["sampler"] = self.samplers[batch["number"]] if batch["number"] < len(self.samplers) else [0, 0]
        starts = sum(wall for _, wall, _ in self.started)
        self.passes.append({"number": number, "batches": count, "whole": True, "started": len(self.started),
                            "process": cost([starts, sum(c for _, _, c in self.started)]),
                            "began": [wall + length for wall, length, _ in self.started],
                            "iter": cost([max(0, made - starts - prime), 0]), "stop": cost(self.stop),
                            "between": cost([0, 0]), "wall": ended - begun})
        return samples

    def costs(self):
        """The costs, as the report has them."""
        pickled, ready = {}, []
        for file in os.listdir(EVENTS):
            seen = []
            for line in open(f"{EVENTS}/{file}"):
                kind, worker, *rest = json.loads(line)
                (ready if kind == "ready" else seen).append([worker, *rest])
            for worker, number, *rest in seen:
                pickled.setdefault(number, []).append(rest)
        ready.sort(key=lambda one: one[1])
        for own in pickled.values():
            own.sort(key=lambda one: one[3])
        seen, columns = {}, {name: [] for name in COLUMNS}
        samples = {"wall": [], "cpu": []}
        for batch in self.batches:
            own = pickled.get(batch["number"], [])
            own = own[batch["pass"]] if batch["pass"] < len(own) else (own or [[0, 0, 0, 0]])[-1]
            row = [batch["pass"], batch["worker"], len(batch["own"]), own[2], *units(*batch["collate"]), *units(*own[:2]),
                   *units(*batch["receive"]), *units(*batch["sampler"]), *units(batch["next"], *batch["step"], batch["step"][0])]
            for name, value in zip(COLUMNS, row):
                columns[name].append(value)
            for wall, cpu in batch["own"]:
                samples["wall"] += units(wall)
                samples["cpu"] += units(cpu)
            first = seen.setdefault(batch["pass"], {})
            first.setdefault(batch["worker"], batch["own"][0])
        place = 0
        for one in self.passes:
            began = one.pop("began")
            own = ready[place:place + len(began)]
            place += len(own)
            own_starts = sum(max(0, at - begin) for (_, at, _), begin in zip(sorted(own, key=lambda r: r[0]), began))
            one["own"] = cost([own_starts, min(own_starts, sum(cpu for _, _, cpu in own))])
            one["firsts"] = [cost(first) for first in seen.get(one["number"], {}).values()] if one["started"] else []
        loader = {"batches": self.passes[0]["batches"], "samples": self.samples, **self.settings}
        return {"loader": loader, "cores": len(os.sched_getaffinity(0)), "passes": self.passes,
                "batches": {name: " ".join(map(str, values)) for name, values in columns.items()},
                "samples": {name: " ".join(map(str, values)) for name, values in samples.items()}}


COLUMNS = ("pass worker samples bytes collate collate_cpu pickle pickle_cpu receive receive_cpu sampler sampler_cpu next step"
           " step_cpu busy").split()


def cost(pair):
    """In nanoseconds."""
    return {"wall": int(pair[0]), "cpu": int(min(pair))}


def units(*lengths):
    """Tenths of a microsecond."""
    return [int((length + 50) // 100) for length in lengths]


# Workers, prefetch factor, persistent or not.
GRID = [(0, 2, False), (1, 2, False), (1, 2, True), (2, 1, True), (2, 2, True), (2, 4, False), (4, 2, False), (4, 2, True),
        (8, 1, False), (8, 2, True), (16, 2, True)]


def grid():
    """The settings that are measured."""
    return [dict(zip(("num_workers", "prefetch_factor", "persistent_workers"), one)) for one in GRID]


def child(*arguments, events=""):
    """What a training in a process of its own prints."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", *map(str, arguments)]
    environment = {**os.environ, "TORCH_PREDICT_EVENTS": str(events)}
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    return json.loads(out.splitlines()[-1])


def sets(setting):
    """For the command line."""
    for key, value in setting.items():
        if setting["num_workers"] > 0 or key == "num_workers":
            yield from ("--set", f"{key}={str(value).lower()}")


def predicted(stallscope, report, setting):
    """Samples/s, lowest and highest."""
    out = subprocess.run([stallscope, "predict", report, "--json", *sets(setting)], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return json.loads(out.stdout)["prediction"]["samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stallscope", default="target/release/stallscope")
    parser.add_argument("--template", help="a report of the same version, to put the costs into")
    parser.add_argument("--out", default="/tmp/torch-predict")
    parser.add_argument("--script", choices=DATASETS, action="append")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="of the one run that is predicted from")
    parser.add_argument("--child", nargs=4)
    options = parser.parse_args()
    if options.child:
        name, epochs, settings, record = options.child
        torch.set_num_threads(1)
        print(json.dumps(training(name, int(epochs), json.loads(settings), record == "1")))
        return
    errors, inside = [], []
    for name in options.script or DATASETS:
        folder = f"{options.out}/{name}"
        os.makedirs(f"{folder}/events", exist_ok=True)
        for file in os.listdir(f"{folder}/events"):
            os.remove(f"{folder}/events/{file}")
        own = {"num_workers": options.workers, "prefetch_factor": 2, "persistent_workers": False}
        rate, costs = child(name, options.epochs, json.dumps(own), 1, events=f"{folder}/events")
        report = json.load(open(options.template)) if options.template else {}
        report["torch"] = {**(report.get("torch") or {}), "costs": costs}
        with open(f"{folder}/report.json", "w") as file:
            json.dump(report, file)
        settings = grid()
        forecasts = [predicted(options.stallscope, f"{folder}/report.json", setting) for setting in settings]
        with open(f"{folder}/predictions.json", "w") as file:
            json.dump(list(zip(settings, forecasts)), file, indent=1)
        print(f"{name}: recorded at {rate:.1f} samples/s, {len(settings)} predictions saved", flush=True)
        rates = []
        for setting, forecast in zip(settings, forecasts):
            measured, beside = child(name, options.epochs, json.dumps(setting), 0)
            error = forecast["value"] / measured - 1
            errors.append(abs(error))
            inside.append(forecast["low"] <= measured <= forecast["high"])
            rates.append(measured)
            print(f"{name:6} {setting['num_workers']:3} {setting['prefetch_factor']:2} {setting['persistent_workers']!s:5} "
                  f"predicted {forecast['value']:8.1f} measured {measured:8.1f} {100 * error:+6.1f} %"
                  f"{'' if inside[-1] else '  outside'}  (other programs used {beside['others']:.2f} cores)", flush=True)
        best = max(range(len(settings)), key=lambda place: forecasts[place]["value"])
        print(f"{name}: of the grid the one predicted best has {100 * rates[best] / max(rates):.1f} % of the best measured",
              flush=True)
    errors.sort()
    print(f"{len(errors)} settings: median {100 * statistics.median(errors):.1f} %, 90th percentile "
          f"{100 * errors[int(0.9 * (len(errors) - 1))]:.1f} %, {sum(inside)} inside the interval")


if __name__ == "__main__":
    main()
