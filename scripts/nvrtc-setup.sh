#!/usr/bin/env bash
# Fetches NVIDIA's compiler for kernels (NVRTC) and the headers that CubeCL's kernels include, from PyPI, for the tests
# that compile kernels without a GPU, and prints the folder to name in CUDA_PATH as the last line. All of it is NVIDIA's,
# under NVIDIA's licence, which the wheels hold; nothing of it becomes part of this repository.
#
# usage: nvrtc-setup.sh [VERSION [FOLDER]]     VERSION is 12.4, 12.9 (the default) or 13.0; FOLDER defaults to
#                                              target/cuda/VERSION. A second run fetches nothing.
set -euo pipefail

die() { echo "nvrtc-setup: $*" >&2; exit 1; }
version=${1:-12.9}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(realpath -m "${2:-$repository/target/cuda/$version}")
if [ -f "$folder/include/cuda_runtime.h" ]; then echo "$folder"; exit 0; fi
[ "$(uname -m)" = x86_64 ] || die "this fetches libraries for x86-64 only"
case $version in
12.*) packages=(nvidia-cuda-{nvrtc,runtime,nvcc,cccl}-cu12) ;;
13.*) packages=(nvidia-cuda-{nvrtc,runtime,crt,cccl}) ;;
*) die "there is no list of packages for CUDA $version; try 12.4, 12.9 or 13.0" ;;
esac
python3 -m pip --version > /dev/null 2>&1 || die "python3 with pip is missing; it fetches ${packages[*]}"

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$(dirname "$folder")/fetching.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "nvrtc-setup: fetching ${packages[*]} $version (about 130 MB) into $folder" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux2010_x86_64 --dest "$work" "${packages[@]/%/==$version.*}" >&2 \
    || die "pip could not fetch them; check the network or pip's index"
python3 - "$work" <<'PYTHON'
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
for wheel in work.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            parts = name.split("/")
            for kind in ("include", "lib"):
                if kind in parts[1:-1] and not name.endswith(".a"):
                    to = work / "cuda" / "/".join(parts[parts.index(kind):])
                    to.parent.mkdir(parents=True, exist_ok=True)
                    to.write_bytes(archive.read(name))
PYTHON
# The name that burn's CUDA backend asks the system's loader for first.
library=$(cd "$work/cuda/lib" && ls libnvrtc.so.1?)
ln -s "$library" "$work/cuda/lib/libnvrtc.so"
# In one go: a second setup at the same time, or a killed one, leaves no half of it.
mv -T "$work/cuda" "$folder" 2> /dev/null || [ -f "$folder/include/cuda_runtime.h" ] || die "$folder cannot be made"
echo "$folder"
