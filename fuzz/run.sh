#!/usr/bin/env bash
# Runs every fuzz target, one after the other, on top of its seeds and of what earlier runs found.
#
# usage: run.sh [SECONDS for each target, 600]
#
# Exit status: 0 nothing was found; otherwise the input that shows it is under artifacts/TARGET. Needs cargo-fuzz
# (`cargo install cargo-fuzz`) and python3; RUSTC_BOOTSTRAP=1 lets stable Rust build with the address sanitizer.
set -euo pipefail

seconds=${1:-600}
cd "$(dirname "${BASH_SOURCE[0]}")"
export RUSTC_BOOTSTRAP=1
# Names of functions in the stack of a crash.
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none
# Freed memory is kept from use for a while; the default of 256 MiB would count as the target's.
export ASAN_OPTIONS=quarantine_size_mb=16
# Reading the symbols for a stack takes more than -malloc_limit_mb, which would hide the panic.
export RUST_BACKTRACE=0

python3 seeds.py corpus
fuzz() {
  local target=$1 max_len=$2 malloc_mb=$3
  echo "== $target"
  cargo fuzz run --fuzz-dir . --features targets "$target" -- -max_total_time="$seconds" -print_final_stats=1 \
    -rss_limit_mb=512 -malloc_limit_mb="$malloc_mb" -timeout=5 -max_len="$max_len"
}
# README.md says why these.
fuzz idx 512 2
fuzz tar 10240 1
fuzz tfrecord 2048 1
fuzz mds 2048 1
fuzz parquet 8192 64
fuzz shard_sealed 2048 1
fuzz shard_raw 2048 1
fuzz cifar 6148 1
fuzz kineto 8192 40
