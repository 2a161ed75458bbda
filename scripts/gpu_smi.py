"""What nvidia-smi says of a GPU while something else runs, for gpu-check.py."""
import contextlib
import subprocess
import threading
import time

QUERY = "utilization.gpu,memory.used"


@contextlib.contextmanager
def watched(device):
    """Readings of `device` (cuda:N), ten a second until the end of the block: (seconds since 1970, GPU-Util from 0
    to 1, bytes used). None where nvidia-smi cannot be run or has no such numbers."""
    readings = []
    command = ["nvidia-smi", "-i", device.split(":")[1], f"--query-gpu={QUERY}", "--format=csv,noheader,nounits",
               "-lms", "100"]
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
    """A line of nvidia-smi's, such as "98, 20480"; None where it has no numbers."""
    try:
        util, mebibytes = (float(part) for part in line.split(","))
    except ValueError:
        return None
    return at, util / 100, mebibytes * (1 << 20)
