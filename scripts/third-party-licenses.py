#!/usr/bin/env python3
"""Prints the licenses of everything that is compiled into the program, for its archive.

    python3 scripts/third-party-licenses.py [--features turbojpeg] [--target x86_64-unknown-linux-gnu]

Each distinct text appears once, after the names of the packages that carry it. A package without a license file appears
with its license identifier and its address.
"""

import argparse
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = re.compile(r"(licen[sc]e|copying|copyright|notice|unlicense|ofl)", re.IGNORECASE)
# Licenses of what a package has inside, below its own folder.
INSIDE = {"turbojpeg-sys": ["libjpeg-turbo/LICENSE.md", "libjpeg-turbo/README.ijg"]}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True, cwd=str(ROOT)).stdout


def packages(features, target):
    """Everything that is compiled in, of other people."""
    chosen = ["--locked", "--features", features]
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", *chosen))
    only = ["--target", target] if target else []
    tree = output("cargo", "tree", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", *chosen, *only)
    used = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    found = (package for package in metadata["packages"] if package["source"])
    found = (package for package in found if (package["name"], "v" + package["version"]) in used)
    return sorted(found, key=lambda package: package["name"])


def texts(package):
    folder = Path(package["manifest_path"]).parent
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and NAMES.match(path.name)]
    return files + [folder / name for name in INSIDE.get(package["name"], [])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", default="")
    parser.add_argument("--target")
    args = parser.parse_args()
    carriers, without = {}, []

    def carry(name, path):
        # Where lines end does not make another text.
        text = "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
        carriers.setdefault(text.strip(), []).append(name)

    for package in packages(args.features, args.target):
        name = "{} {}".format(package["name"], package["version"])
        files = texts(package)
        for path in files:
            carry(name, path)
        if not files:
            license = package["license"] or package["license_file"]
            without.append("{} ({}) {}".format(name, license, package["repository"] or ""))
    carry("uPlot", ROOT / "src/core/report/page/uplot/LICENSE")

    line = "=" * 100
    print("The program contains the following software of others.")
    if without:
        print("\n{}\nWithout a license file in the package:\n\n{}".format(line, "\n".join(without)))
    for text, names in carriers.items():
        print("\n{}\n{}\n\n{}".format(line, "\n".join(dict.fromkeys(names)), text))


if __name__ == "__main__":
    main()
