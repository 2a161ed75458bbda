"""What nvidia-smi says of the GPUs while something else runs, for gpu-check.py.

It is asked for all of them: which is the one of a run, that run's report knows by the PCI bus id. CUDA numbers its
devices in an order of its own, so `cuda:0` need not be nvidia-smi's GPU 0.
"""
import contextlib
import subprocess
import threading
import time
from collections import namedtuple

QUERY = "pci.bus_id,utilization.gpu,memory.used"
# GPU as bus_id() gives it, seconds since 1970, GPU-Util from 0 to 1.
Reading = namedtuple("Reading", "gpu at util used_bytes")


@contextlib.contextmanager
def watched():
    """Readings of every GPU, ten a second until the end of the block. None where nvidia-smi cannot be run or has no
    such numbers."""
    readings = []
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-lms", "100"]
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield readings
        return

    def read():
        for line in child.stdout:
            reading = parse(line, time.time())
            if reading:
                readings.append(reading)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield readings
    finally:
        child.terminate()
        child.wait()
        reader.join(timeout=2)


def parse(line, at):
    """A line of nvidia-smi's, such as "00000000:3B:00.0, 98, 20480"; None where it has no numbers."""
    try:
        place, util, mebibytes = line.split(",")
        return Reading(bus_id(place), at, float(util) / 100, float(mebibytes) * (1 << 20))
    except ValueError:
        return None


def bus_id(text):
    """Domain, bus, device and function as numbers: CUDA writes the domain with four digits, nvidia-smi with eight. In
    no such form, ValueError."""
    domain, bus, place = text.strip().split(":")
    device, function = place.split(".")
    return tuple(int(part, 16) for part in (domain, bus, device, function))
