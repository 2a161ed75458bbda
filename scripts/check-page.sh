#!/usr/bin/env bash
# Opens pages in headless Chromium and says what is wrong with them: errors, requests, contrast and labels (axe-core),
# text that does not fit.
#
#   scripts/check-page.sh [--pictures FOLDER] PAGE.html...
#   scripts/check-page.sh --modules                          the folder with the npm packages
#
# Needs node and Chromium; installs puppeteer-core and axe-core from npm once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PAGE_MODULES=${XDG_CACHE_HOME:-$HOME/.cache}/stallscope-page-check
if [ ! -d "$PAGE_MODULES/node_modules/axe-core" ]; then
    mkdir -p "$PAGE_MODULES"
    npm install --prefix "$PAGE_MODULES" --no-fund --no-audit puppeteer-core@24 axe-core@4 >&2
fi
if [ "${1:-}" = --modules ]; then
    echo "$PAGE_MODULES"
    exit
fi
exec node "$here/check-page.mjs" "$@"
