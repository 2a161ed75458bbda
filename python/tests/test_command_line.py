"""The whole command line, without burn's backends, which the package leaves out."""

import json
import sys

import pytest
from profiling import report, run

STALLSCOPE = [sys.executable, "-m", "stallscope"]
NO_CPU = (
    'error: device cpu is not usable here: this build has no CPU backend (feature "cpu")\n'
    "  try: cargo build --release --features cpu, or --set device=emulated:resnet50-a100\n"
)
NO_CUDA = (
    'error: device cuda:0 is not usable here: this build has no CUDA (feature "cuda")\n'
    "  try: cargo build --release --features cuda\n"
)


def test_doctor_says_which_backends_were_left_out(tmp_path):
    said = json.loads(run([*STALLSCOPE, "doctor", "--json", "--data", tmp_path], tmp_path).stdout)
    rows = [row for section in said["sections"] if section["title"] == "Build" for row in section["rows"]]
    found = [(row["subject"], row["status"]) for row in rows]
    assert found == [("cpu", "missing"), ("cuda", "missing"), ("JPEG decoder", "ok")]


@pytest.mark.parametrize(
    "device, options, lines",
    [
        ("cuda:0", [], NO_CUDA),
        ("cpu", [], NO_CPU),
        ("emulated:resnet50-a100", ["--set", "train=true"], NO_CPU),
    ],
)
def test_a_device_that_needs_them_is_refused_before_data_is_made(device, options, lines, tmp_path):
    config, data = tmp_path / "run.toml", tmp_path / "data"
    source = f"source.path = {json.dumps(str(data))}"
    config.write_text(f"device = {json.dumps(device)}\n{source}\n[generate]\nimages = 40\nclasses = 2\n")
    ran = run([*STALLSCOPE, "run", config, *options], tmp_path, status=1)
    assert ran.stderr == lines
    assert not data.exists()


@pytest.mark.parametrize("decoder, asked", [("image", "image"), ("turbojpeg", "turbojpeg"), ("turbojpeg", None)])
def test_the_package_has_both_jpeg_decoders(decoder, asked, tmp_path):
    run([*STALLSCOPE, "data", "generate", "photos", "--images", "40", "--classes", "2"], tmp_path)
    (tmp_path / "run.toml").write_text('epochs = 1\nbatch.size = 4\npreprocess.size = 32\nsource.path = "photos"\n')
    options = [] if asked is None else ["--set", f"decode.decoder={asked}"]
    run([*STALLSCOPE, "run", "run.toml", *options, "--mode", "loader-only", "--run-dir", "run"], tmp_path)
    assert report(tmp_path / "run")["config"]["pipeline"]["decode"]["decoder"] == decoder
