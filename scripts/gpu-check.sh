#!/usr/bin/env bash
# What a release binary does on an NVIDIA GPU, check by check, as one table; see gpu-check.py for the options.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu-check.py" "$@"
