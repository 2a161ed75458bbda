#!/usr/bin/env bash
# Checks a trace of ours with Perfetto's own engine; see check-trace.mjs for what is checked.
#
# usage: check-trace.sh TRACE(.json|.json.gz) [REPORT.json]
#
# Exit status: 0 all checks hold; 1 one does not; 2 the trace is refused or the engine is missing. The engine is
# fetched on the first use (perfetto-setup.sh); STALLSCOPE_PERFETTO names another cache folder than target/perfetto.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: check-trace.sh TRACE(.json|.json.gz) [REPORT.json]" >&2
  exit 2
fi
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
setup=$("$scripts/perfetto-setup.sh") || exit 2
exec node "$scripts/check-trace.mjs" "$(tail -n 1 <<<"$setup")" "$@"
