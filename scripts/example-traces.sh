#!/usr/bin/env bash
# Rewrites the example traces under traces/examples: short runs on generated images, checked with Perfetto's engine.
#
# usage: example-traces.sh     (build with `cargo build --release` first)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# NAME, then the changes to the quickstart.
example() {
  local name=$1
  shift
  target/release/stallscope run configs/quickstart.toml --quiet --run-dir "$work/$name" \
    --set "source.path=$work/data" --set generate.images=64 \
    --set steps=8 --set warmup_steps=2 --set trace.compress=true "$@"
  scripts/check-trace.sh "$work/$name/trace.json.gz" "$work/$name/report.json"
  cp "$work/$name/trace.json.gz" "traces/examples/$name.json.gz"
}

mkdir -p traces/examples
example decode-bound
example num-workers-2 --set num_workers=2
example loader-inline --set num_workers=0
ls -l traces/examples
