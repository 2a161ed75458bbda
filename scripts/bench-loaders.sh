#!/usr/bin/env bash
# Our loader and other people's, in turns, as one table; see bench-loaders.py for the options.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/bench-loaders.py" "$@"
