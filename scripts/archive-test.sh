#!/usr/bin/env bash
# Unpacks a release archive into an empty folder and tries it there as a new user would.
#
# usage: archive-test.sh stallscope-VERSION-TARGET.tar.gz     (SHA256SUMS lies beside it)
#
# The program runs with an empty environment, in which PATH is the unpacked folder alone.
set -euo pipefail
export LC_ALL=C
archive=$(realpath "$1")
name=$(basename "$archive" .tar.gz)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

(cd "$(dirname "$archive")" && sha256sum --check --ignore-missing SHA256SUMS)
tar -xzf "$archive"
[ "$(ls)" = "$name" ] || { echo "archive-test: the archive has more than the folder $name" >&2; exit 1; }
for file in stallscope README.md LICENSE-MIT LICENSE-APACHE licenses/third-party.txt man/man1/stallscope-run.1 \
    completions/stallscope.bash completions/_stallscope completions/stallscope.fish; do
    [ -s "$name/$file" ] || { echo "archive-test: no $file in the archive" >&2; exit 1; }
done
for part in "libjpeg-turbo Licenses" uPlot; do
    grep -q "$part" "$name/licenses/third-party.txt" || { echo "archive-test: no license of $part" >&2; exit 1; }
done

# check WHAT COMMAND WORDS...: the command must succeed and print nothing. Skipped if there is no such command.
check() {
    local what=$1 said
    shift
    if ! command -v "$1" > /dev/null; then
        echo "archive-test: $what not checked: there is no $1"
    elif said=$("$@" 2>&1) && [ -z "$said" ]; then
        echo "archive-test: $what checked with $1"
    else
        printf '%s\narchive-test: %s failed the check with %s\n' "$said" "$what" "$1" >&2
        exit 1
    fi
}
if command -v mandoc > /dev/null; then
    check "manual pages" mandoc -Tlint -Wwarning "$name"/man/man1/*.1
else
    check "manual pages" groff -man -Tutf8 -ww -z "$name"/man/man1/*.1
fi
check "completions for bash" bash -n "$name/completions/stallscope.bash"
check "completions for zsh" zsh -n "$name/completions/_stallscope"
check "completions for fish" fish --no-execute "$name/completions/stallscope.fish"

# try WORDS...: runs the program alone and prints how long it took.
mkdir home
try() {
    local from=${EPOCHREALTIME/./}
    env -i PATH="$work/$name" HOME="$work/home" stallscope "$@" > said 2> errors || { cat said errors; exit 1; }
    printf 'archive-test: %5.1f s   stallscope %s\n' "$((${EPOCHREALTIME/./} - from))e-6" "$*"
}
verdict() {
    grep '^verdict ' said || { echo "archive-test: no verdict in:" >&2; cat said >&2; exit 1; }
}
try --version
cat said
try doctor
try demo
verdict
try data generate photos --images 64 --classes 4
try init photos
try run photos
verdict
try run stallscope.toml
verdict
