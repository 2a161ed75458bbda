"""Runs a script in a process of its own, and reads what its hooks have recorded."""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections import namedtuple
from pathlib import Path

DEADLINE = 120

#: `said` is the event as Rust prints it, `slot` tells its process.
Event = namedtuple("Event", "slot pid tid kind said")

# A collector that keeps the rings until the end, instead of a process beside.
PRELUDE = """
import json, os, sys
from stallscope import _native
from stallscope.torch import _collector

class Keeps:
    def __init__(self, fd, options):
        self.fd, self.folder = os.dup(fd), options.run_dir

    def wait(self):
        with open(os.environ["RECORDED"], "w") as file:
            json.dump(_native.drain(f"/proc/self/fd/{self.fd}"), file)

_collector.Collector = Keeps
"""

INSTALLED = (
    PRELUDE
    + """
import stallscope.torch
if __name__ == "__main__":
    stallscope.torch.install(run_dir=os.environ["RECORDED"] + ".run")
"""
)


class Recorded:
    """What one script did."""

    def __init__(self, ran, events, dropped):
        self.ran = ran
        self.events = [Event(*event[:3], event[3].split(" ")[0], event[3]) for event in events]
        self.dropped = dropped
        self.parts = {}
        for event in self.of("Text"):
            part = re.search(r'kind: Part, subject: (\d+), .*text: "(.*)"', event.said)
            if part:
                self.parts[event.pid, int(part[1])] = part[2]

    def of(self, kind, *wanted):
        """The events of a kind that say all that is wanted."""
        return [event for event in self.events if event.kind == kind and all(want in event.said for want in wanted)]

    def texts(self, kind):
        return [event.said for event in self.of("Text", f"kind: {kind}")]

    def part_names(self, kind="Sample"):
        """The names of the parts in samples or batches, with how long each took in milliseconds, in all."""
        took = {}
        for event in self.of(kind):
            for part, length in re.findall(r"PartTime \{ part: (\d+), count: \d+, length: (\d+)", event.said):
                name = self.parts[event.pid, int(part)]
                took[name] = took.get(name, 0) + int(length) / 1e6
        return took


def numbers(event, name):
    """The numbers behind `name` in what an event says."""
    found = re.search(rf"\b{name}: (?:Span \{{ start: (\d+), end: (\d+)|(\d+))", event.said)
    assert found, (name, event.said)
    return [int(number) for number in found.groups() if number is not None]


def record(script, tmp_path: Path, *arguments, prelude=INSTALLED, status=0, environment=None):
    """Runs `script` with the hooks in place."""
    path, recorded = tmp_path / "script.py", tmp_path / "recorded.json"
    path.write_text(prelude + textwrap.dedent(script))
    given = {**os.environ, "RECORDED": str(recorded), **(environment or {})}
    ran = subprocess.run(
        [sys.executable, str(path), *arguments], cwd=tmp_path, env=given, capture_output=True, text=True, timeout=DEADLINE
    )
    assert ran.returncode == status, ran.stderr
    events, dropped = json.loads(recorded.read_text())
    return Recorded(ran, events, dropped)
