"""Stands for what the hooks touch of `torch.cuda`, on a machine without a GPU: a device whose times are computed.

Kernels and copies follow each other on a stream; their records are planted in the libcupti that `cupti.c` stands for. A
script that imports this trains on the CPU, and launches what it is told to launch.
"""

import atexit
import ctypes
import json
import os
import threading

import torch
from stallscope import _native

NO_LIBRARY = "/nonexistent"
LAUNCH, COPY = 1, 2
STREAM = 7


class Device:
    """Its streams, and what was launched: the truth that a test holds a report against."""

    def __init__(self):
        path = os.environ.get("PLANTED_CUPTI", NO_LIBRARY)
        self.cupti = ctypes.CDLL(path) if os.path.exists(path) else None
        self.free = {}
        self.correlation = 0
        self.step = 0
        self.kernels, self.copies, self.spans = [], [], []
        #: From event to event, as far as somebody asked.
        self.timed = []

    def _run(self, length, stream, function):
        begun = _native.now()
        returned = _native.now()
        start = max(returned, self.free.get(stream, 0))
        end = self.free[stream] = start + int(length * 1e9)
        self.correlation += 1
        if self.cupti is not None:
            thread = threading.get_native_id()
            times = [ctypes.c_uint64(time) for time in (begun, returned)]
            # A call that launches nothing, and one that does.
            self.cupti.plant_call(0, *times, thread, self.correlation + 1_000_000)
            self.cupti.plant_call(function, *times, thread, self.correlation)
        return start, end

    def launch(self, length, name="kernel", stream=STREAM, device=0):
        """A kernel that takes so many seconds."""
        start, end = self._run(length, stream, LAUNCH)
        if self.cupti is not None:
            times = map(ctypes.c_uint64, (start, end))
            self.cupti.plant_kernel(name.encode(), *times, device, stream, self.correlation)
        if device == 0:
            self.kernels.append((self.step, start, end))

    def copy(self, size, length, pinned=True, stream=STREAM):
        """A copy of a batch to the device."""
        start, end = self._run(length, stream, COPY)
        if self.cupti is not None:
            self.cupti.plant_copy(ctypes.c_uint64(size), pinned, ctypes.c_uint64(start), ctypes.c_uint64(end), stream, self.correlation)
        self.copies.append((self.step, start, end))

    def wait(self):
        """Until all is done."""
        import time

        time.sleep(max(0, max(self.free.values(), default=0) - _native.now()) / 1e9)

    def span(self, name, start, end):
        """The script did something of its own."""
        self.spans.append((name, start, end))

    def write(self):
        with open("truth.json", "w") as file:
            json.dump({"kernels": self.kernels, "copies": self.copies, "spans": self.spans, "timed": self.timed}, file)


GPU = Device()


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0

    def record(self, stream=None):
        self.at = max(_native.now(), GPU.free.get(STREAM, 0))

    def query(self):
        return _native.now() >= self.at

    def elapsed_time(self, other):
        GPU.timed.append((self.at, other.at))
        return (other.at - self.at) / 1e6


def install():
    """Have torch seem to train on it."""
    cuda = torch.cuda
    cuda.is_initialized = lambda: True
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda *_: "Planted GPU"
    cuda.is_current_stream_capturing = lambda: False
    cuda.synchronize = lambda *_: GPU.wait()
    cuda.Event = Event
    torch.Tensor.is_cuda = property(lambda self: True)
    atexit.register(GPU.write)


class Launches(torch.autograd.Function):
    """Launches a kernel forward, and one backward."""

    @staticmethod
    def forward(context, inputs, forward, backward):
        context.backward = backward
        GPU.launch(forward, "forward")
        return inputs

    @staticmethod
    def backward(context, gradients):
        GPU.launch(context.backward, "backward")
        return gradients, None, None


class Model(torch.nn.Module):
    """Its forward pass takes the device 3 ms, its backward pass 4 ms, or as given."""

    def __init__(self, forward=0.003, backward=0.004):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)
        self.times = forward, backward

    def forward(self, inputs):
        return Launches.apply(self.linear(inputs), *self.times).sum()


class SGD(torch.optim.SGD):
    """Its step takes the device 1 ms."""

    def step(self, closure=None):
        GPU.launch(0.001, "optimizer")
        return super().step(closure)
