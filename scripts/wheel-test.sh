#!/usr/bin/env bash
# Builds the wheel, installs it into a clean virtual environment and tests it there, outside of the checkout.
#
# usage: wheel-test.sh [PYTEST_ARGUMENT...]
#        wheel-test.sh --environment     (only installs what the tests need)
#
# What the tests need (torch, torchvision, pytest; some 5 GB) comes from PyPI into $STALLSCOPE_TORCH, by default
# target/torch, and stays there for the next time. Where torch cannot be installed its tests are skipped, with the
# reason, or with STALLSCOPE_REQUIRE_TORCH=1 the run fails. Needs python3 with venv, cargo, cmake, nasm and make (for
# libjpeg-turbo).
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
torch=${STALLSCOPE_TORCH:-$target/torch}
wheels=$target/wheels
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -x "$torch/bin/python" ] || "$python" -m venv "$torch"
pip="$torch/bin/python -m pip --disable-pip-version-check --quiet"
$pip install "maturin>=1.9,<2" pytest mypy
if ! "$torch/bin/python" -c "import torch, torchvision" 2> /dev/null; then
    if ! $pip install torch torchvision numpy; then
        echo "skipped: what needs torch, which pip could not install for $("$torch/bin/python" --version)"
        [ -z "${STALLSCOPE_REQUIRE_TORCH:-}" ]
    fi
fi
[ "${1:-}" != --environment ] || exit 0

rm -rf "$wheels"
(cd "$repository/python" && "$torch/bin/maturin" build --release --locked --out "$wheels")
wheel=$(ls "$wheels"/*.whl)
echo "wheel-test: $wheel, $(du -h "$wheel" | cut -f1)"

# Alone, with nothing else installed.
"$python" -m venv "$work/alone"
"$work/alone/bin/python" -m pip --disable-pip-version-check --quiet install "$wheel"
cd "$work"
alone/bin/stallscope --version
alone/bin/stallscope doctor > /dev/null
alone/bin/python -c "import stallscope; assert stallscope.__file__.startswith('$work'), stallscope.__file__"

# Beside torch.
$pip install --force-reinstall --no-deps "$wheel"
"$torch/bin/python" -m pytest -q -p no:cacheprovider "$repository/python/tests" "$@"
