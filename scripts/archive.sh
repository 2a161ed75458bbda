#!/usr/bin/env bash
# Packs the program for a release: stallscope-VERSION-TARGET.tar.gz with the binary, manual pages, completions and
# licenses, and SHA256SUMS beside it. Prints the path of the archive.
#
# usage: archive.sh [--binary PATH] [--out DIR]
#
#   --binary PATH   packs this binary instead of building one
#   --out DIR       the folder for the archive [default: target/archive]
#
# The binary has burn's CPU and CUDA backends and libjpeg-turbo. It loads CUDA's libraries only when a run asks for a GPU.
# Needs cargo and python3; building also needs cmake, nasm, make and a C compiler.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
binary=
out=$target/archive
while [ $# -gt 0 ]; do
    case $1 in
        --binary) binary=$(realpath "$2") ;;
        --out) out=$2 ;;
        *) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
    shift 2
done
mkdir -p "$out"
out=$(realpath "$out")
cd "$repository"

if [ -z "$binary" ]; then
    cargo build --profile dist --locked --package stallscope
    binary=$target/dist/stallscope
fi
version=$("$binary" --version)
version=${version#stallscope }
platform=$(rustc -vV | sed -n 's/^host: //p')
name=stallscope-$version-$platform
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/$name

mkdir -p "$folder/completions" "$folder/licenses"
cp "$binary" "$folder/stallscope"
cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$folder"
"$binary" man "$folder/man/man1"
"$binary" completions bash > "$folder/completions/stallscope.bash"
"$binary" completions zsh > "$folder/completions/_stallscope"
"$binary" completions fish > "$folder/completions/stallscope.fish"
scripts/third-party-licenses.py --target "$platform" > "$folder/licenses/third-party.txt"
# Where the toolchain was installed without it, the licenses of the standard library are left out.
library=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
if [ -f "$library" ]; then
    cp "$library" "$folder/licenses/rust-standard-library.html"
else
    echo "archive: no $library" >&2
fi

# The same files make the same archive.
made=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
tar --create --directory "$work" --sort=name --mtime="@$made" --owner=0 --group=0 --numeric-owner --mode=u+w,go-w,a+rX "$name" |
    gzip -9 --no-name > "$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" > SHA256SUMS)

if command -v objdump > /dev/null; then
    glibc=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
    echo "archive: needs glibc ${glibc#GLIBC_} or later" >&2
fi
echo "archive: binary $(du -h "$folder/stallscope" | cut -f1), archive $(du -h "$out/$name.tar.gz" | cut -f1)" >&2
echo "$out/$name.tar.gz"
