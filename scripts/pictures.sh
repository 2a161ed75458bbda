#!/usr/bin/env bash
# Makes docs/report.png anew, the page of the demo, and checks that the page hands its trace to Perfetto's viewer.
#
#   scripts/pictures.sh [STALLSCOPE]
#
# STALLSCOPE is the program, by default the one on the PATH. Needs node, Chromium and openssl; fetches Perfetto's viewer,
# puppeteer-core and axe-core.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
program=$(command -v "${1:-stallscope}")
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
viewer=$(dirname "$("$scripts/perfetto-setup.sh" | tail -n 1)")
export PAGE_MODULES
PAGE_MODULES=$("$scripts/check-page.sh" --modules)
(cd "$run" && "$program" demo -q --run-dir demo)
"${CHROMIUM:-chromium}" --headless --no-sandbox --disable-gpu --hide-scrollbars --blink-settings=preferredColorScheme=1 \
    --window-size=1200,1520 --screenshot="$scripts/../docs/report.png" "file://$run/demo/report.html"
node "$scripts/check-handover.mjs" "$viewer" "$run/demo/report.html" "$run/demo/trace.json"
