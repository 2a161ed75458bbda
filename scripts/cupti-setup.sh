#!/usr/bin/env bash
# Fetches NVIDIA's libcupti 12.9 and 12.4 and their headers (the PyPI package nvidia-cuda-cupti-cu12) for the tests that let
# the real library walk activity buffers and compare our record layouts with NVIDIA's, and prints the path of 12.9 as the
# last line. It needs no GPU. Both are NVIDIA's, under NVIDIA's licence, which the wheel holds; nothing of them becomes part
# of this repository.
#
# usage: cupti-setup.sh [FOLDER]     FOLDER defaults to target/cupti. A second run fetches nothing.
set -euo pipefail

die() { echo "cupti-setup: $*" >&2; exit 1; }

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=${1:-$repository/target/cupti}

fetch() { # FOLDER VERSION SHA256
    local folder=$1 version=$2 sha256=$3
    local library=$folder/libcupti.so.12
    if [ -f "$library" ] && [ -d "$folder/include" ]; then return; fi
    [ "$(uname -m)" = x86_64 ] || die "this fetches the library for x86-64 only"
    python3 -m pip --version > /dev/null 2>&1 \
        || die "python3 with pip is missing; it fetches nvidia-cuda-cupti-cu12 $version"
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetching.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    echo "cupti-setup: fetching nvidia-cuda-cupti-cu12 $version (10 MB) into $folder" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 --dest "$work" \
        "nvidia-cuda-cupti-cu12==$version" >&2 \
        || die "pip could not fetch nvidia-cuda-cupti-cu12==$version; check the network or pip's index"
    python3 - "$work" "$sha256" <<'PYTHON' || die "the wheel is not the expected one; nothing was installed"
import hashlib, pathlib, sys, zipfile
work, expected = pathlib.Path(sys.argv[1]), sys.argv[2]
wheel, = work.glob("*.whl")
found = hashlib.sha256(wheel.read_bytes()).hexdigest()
if found != expected:
    sys.exit(f"sha256 of {wheel.name}: {found}, expected {expected}")
with zipfile.ZipFile(wheel) as archive:
    name, = (name for name in archive.namelist() if name.endswith("/lib/libcupti.so.12"))
    (work / "libcupti.so.12").write_bytes(archive.read(name))
    prefix = "nvidia/cuda_cupti/include/"
    for name in (name for name in archive.namelist() if name.startswith(prefix)):
        header = work / "include" / name[len(prefix):]
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_bytes(archive.read(name))
PYTHON
    # In one go each: a second setup at the same time, or a killed one, leaves no half of it.
    [ -d "$folder/include" ] || mv -T "$work/include" "$folder/include" || [ -d "$folder/include" ]
    mv "$work/libcupti.so.12" "$library"
    rm -rf "$work"
}

# The last that cannot record launches alone.
fetch "$root/12.4" 12.4.127 9dec60f5ac126f7bb551c055072b69d85392b13311fcc1bcda2202d172df30fb
fetch "$root" 12.9.79 096bcf334f13e1984ba36685ad4c1d6347db214de03dbb6eebb237b41d9d934f
echo "$root/libcupti.so.12"
