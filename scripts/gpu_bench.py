"""What gpu-check.py runs its checks with: the binary, the data, the time there is, and the reports of runs.

Everything lies in one folder, so that a second check goes on with the data, the tuned choices and the compiled
kernels of the first. Python's standard library is all it needs.
"""
import json
import os
import signal
import subprocess
import time

BATCH = 64
# Keys that only a GPU has; a rehearsal on another device does without.
GPU_KEYS = ("gpu.", "copy.pinned", "copy.overlap")
# A model whose samples need much memory and little computing: wide layers with narrow ones between. No tensor of a
# batch of 250,000 has as many numbers as 32 bits count, and all of them together fit no GPU of today.
WIDE = ["model.kind=dense", f"model.hidden=[{', '.join(['16384, 16'] * 12)}]"]
TOO_LARGE = 250_000


class Failed(Exception):
    """A check that could not be judged, and why."""


class OutOfTime(Failed):
    """Another try may have more of it."""


class Bench:
    """Data is made when a check first asks; runs are kept."""

    def __init__(self, binary, out, seconds, device="cuda:0", sets=(), any_speed=False):
        self.binary, self.out, self.device, self.sets = binary, out, device, sets
        self.any_speed = any_speed
        self.runs = os.path.join(out, time.strftime("runs-%Y%m%d-%H%M%S"))
        self.end = time.monotonic() + seconds
        self.deadline = self.end
        self.reports = {}
        self.configs = {}
        self.decoder = None
        os.makedirs(self.runs, exist_ok=True)
        # CubeCL looks for this from the current folder upwards. By default it keeps what it has tuned and no compiled
        # kernel, so that each process would compile all of them again.
        kernels = json.dumps(self.path("kernels"))
        with open(self.path("cubecl.toml"), "w") as f:
            f.write(f"[autotune]\ncache = {{ file = {kernels} }}\n[compilation]\ncache = {{ file = {kernels} }}\n")

    def on_gpu(self):
        return self.device.startswith("cuda")

    def left(self):
        return max(self.deadline - time.monotonic(), 0.0)

    def start(self, *arguments):
        """A `stallscope ARGUMENTS` in a group of its own."""
        return subprocess.Popen([self.binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                errors="replace", stdin=subprocess.DEVNULL, cwd=self.out, start_new_session=True)

    def call(self, *arguments, seconds=None):
        """Exit status (None: killed, out of time), output and errors of `stallscope ARGUMENTS`."""
        seconds = min(seconds or self.left(), self.left())
        child = self.start(*arguments)
        try:
            said, errors = child.communicate(timeout=seconds)
            return child.returncode, said, errors
        except subprocess.TimeoutExpired:
            said, errors = stop(child)
            return None, said, errors
        except KeyboardInterrupt:
            stop(child)
            raise

    def must(self, *arguments):
        """The output of a command that has to succeed."""
        status, said, errors = self.call(*arguments)
        if status is None:
            raise OutOfTime(f"out of time: {' '.join(arguments[:2])}")
        if status:
            raise Failed(f"exit {status}: {' '.join(arguments[:2])}: {message(errors)}")
        return said

    def run_arguments(self, name, config, sets, device=None):
        device = device or self.device
        known = [one for one in sets if device.startswith("cuda") or not one.startswith(GPU_KEYS)]
        sets = [part for one in [*known, *(self.sets if device == self.device else [])] for part in ("--set", one)]
        return ["run", self.config(config), "--device", device, "--run-dir", os.path.join(self.runs, name),
                "--trace", "none", "--quiet", *sets]

    def report(self, name, config, sets, device=None):
        """The report of a run, which has to succeed; of one made before, the same, or the same failure."""
        if name not in self.reports:
            try:
                self.must(*self.run_arguments(name, config, sets, device))
                with open(os.path.join(self.runs, name, "report.json")) as f:
                    self.reports[name] = json.load(f)
            except OutOfTime:
                raise
            except Failed as failure:
                self.reports[name] = failure
        if isinstance(self.reports[name], Failed):
            raise self.reports[name]
        return self.reports[name]

    def path(self, *names):
        return os.path.join(self.out, *names)

    def config(self, kind):
        """The configuration file of this kind, and its data; made once, since runs beside each other read it."""
        if kind in self.configs:
            return self.configs[kind]
        source, folder = {"jpeg": ("image-folder", self.jpeg), "raw": ("shard", self.raw),
                          "digits": ("mnist", self.digits), "specks": ("mnist", self.specks)}[kind]
        lines = [f'source.kind = "{source}"', f"source.path = {json.dumps(folder())}", "seed = 7",
                 f"batch.size = {BATCH}", "warmup_steps = 10", "steps = 100"]
        path = self.path(f"{kind}.toml")
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        if kind == "jpeg":
            self.decoder = self.decoder or self.best_decoder(path)
            with open(path, "a") as f:
                f.write(f'decode.decoder = "{self.decoder}"\n')
        self.configs[kind] = path
        return path

    def best_decoder(self, config):
        """libjpeg-turbo where the binary has it, which only running tells."""
        tried = ["run", config, "--mode", "loader-only", "--trace", "none", "--quiet", "--run-dir",
                 os.path.join(self.runs, "turbojpeg")]
        sets = ["decode.decoder=turbojpeg", "batch.size=4", "warmup_steps=0", "steps=1"]
        status, _, _ = self.call(*tried, *(part for one in sets for part in ("--set", one)), seconds=20)
        return "turbojpeg" if status == 0 else "image"

    def jpeg(self):
        folder = self.path("jpeg")
        if not os.path.exists(folder):
            self.must("data", "generate", folder, "--images", "2048", "--classes", "16", "--format", "jpeg")
        return folder

    def raw(self):
        # The same command again goes on where it was interrupted.
        self.must("data", "pack", self.jpeg(), self.path("raw"), "--raw", "224")
        return self.path("raw")

    def digits(self):
        return write_idx(self.path("digits"), 4096, 28)

    def specks(self):
        """Of 16 pixels, since only their number counts."""
        return write_idx(self.path("specks"), TOO_LARGE, 4)


def stop(child):
    """Stops `child` and its own children, such as the trials of a search, as Ctrl-C does, then by force."""
    for signal_number, patience in ((signal.SIGINT, 3), (signal.SIGKILL, 10)):
        try:
            os.killpg(child.pid, signal_number)
            return child.communicate(timeout=patience)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            continue
    return "", ""


def write_idx(folder, images, side):
    """`images` images of side x side pixels in MNIST's format, bright in a row of their class; made once."""
    if os.path.exists(folder):
        return folder
    os.makedirs(folder + ".part", exist_ok=True)
    block = 1000
    pixels = bytearray()
    for image in range(block):
        for place in range(side * side):
            bright = place // side // 2 == image * 7 % 10
            pixels.append(255 if bright else (place * 31 + image) % 64)
    labels = bytes(image * 7 % 10 for image in range(block))
    counts = [min(block, images - first) for first in range(0, images, block)]
    number, length = images.to_bytes(4, "big"), side.to_bytes(4, "big")
    with open(os.path.join(folder + ".part", "train-images-idx3-ubyte"), "wb") as f:
        f.write(b"\0\0\x08\x03" + number + length + length)
        for count in counts:
            f.write(pixels[:side * side * count])
    with open(os.path.join(folder + ".part", "train-labels-idx1-ubyte"), "wb") as f:
        f.write(b"\0\0\x08\x01" + number)
        for count in counts:
            f.write(labels[:count])
    os.rename(folder + ".part", folder)
    return folder


def message(text):
    """A program's errors in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = " ".join(lines) or "no message"
    return said if len(said) <= 300 else said[:297] + "..."


def parsed(text):
    """The JSON object in an output that may begin with other lines."""
    try:
        return json.loads(text[text.index("{"):])
    except ValueError as error:
        raise Failed(f"no JSON in the output: {error}")
