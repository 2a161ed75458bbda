"""What the documentation shows of `stallscope torch` and of comparing its runs is what they print."""

import pathlib
import re
import shutil

import pytest

pytest.importorskip("torchvision")

from profiling import STALLSCOPE, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Their lines depend on what was measured.
VARY = ("device idle by cause", "stage", "samples/s")


def shown(doc):
    """The commands of console blocks in `doc`, each with the lines below it."""
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / doc).read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip().split("\n")
            yield command, lines


def labels(lines):
    """The first word of each line that has a label, without what varies."""
    found, skipping = [], False
    for line in lines:
        if not line:
            skipping = False
        elif line.startswith(VARY):
            skipping = True
            found.append(line.split("  ")[0])
        elif not skipping and re.match(r"[a-z]", line):
            found.append(line.split()[0])
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(ROOT / "python" / "examples", folder / "python" / "examples")
    run([STALLSCOPE, "data", "generate", "data/photos", "--images", "200"], folder)
    return folder


def test_outputs_have_the_lines_that_are_shown(place):
    commands = [*shown("pytorch.md"), *shown("compare.md")]
    assert [command.split()[1] for command, _ in commands] == ["torch", "predict", "compare"]
    for command, lines in commands:
        words = command.split()[1:]
        if words[0] == "compare":
            run([STALLSCOPE, *commands[0][0].split()[1:], "--num-workers", "2"], place)
            words[1:] = sorted(str(path) for path in place.glob("traces/train-*"))
        printed = labels(run([STALLSCOPE, *words], place).stdout.split("\n"))
        rest = iter(printed)
        wanted = labels([line for line in lines if line != "..."])
        assert all(label in rest for label in wanted), (command, wanted, printed)
