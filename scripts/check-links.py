#!/usr/bin/env python3
"""Checks the relative links of the repository's Markdown files: the file exists, and so does the heading after `#`.

    python3 scripts/check-links.py                (every Markdown file; each page of docs/ must be in docs/SUMMARY.md)
    python3 scripts/check-links.py --book book    (the pages that `mdbook build` made, as well)

Nothing is fetched: addresses with a scheme, such as https:, are not checked. Exit status 1 if a link is dead.
"""

import argparse
import html.parser
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def blanked(pattern, text):
    """Keeps lines where they are."""
    return pattern.sub(lambda found: "\n" * found.group().count("\n"), text)


def markdown_links(path):
    """(line, target) of each link outside of code."""
    text = blanked(CODE, blanked(FENCE, path.read_text(encoding="utf-8")))
    return [(text.count("\n", 0, found.start(1)) + 1, found.group(1)) for found in LINK.finditer(text)]


def markdown_anchors(path):
    """Headings as GitHub and mdBook name them."""
    anchors, seen = set(), Counter()
    for heading in HEADING.findall(blanked(FENCE, path.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchors.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return anchors


class Page(html.parser.HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append((self.getpos()[0], value))


def dead(path, links, anchors_of):
    """What is wrong with `links` of `path`."""
    for line, link in links:
        if SCHEME.match(link) or link.startswith("/"):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            yield f"{path.relative_to(ROOT)}:{line}: {link}: no such file"
        elif anchor and target.suffix == path.suffix and anchor not in anchors_of(target):
            yield f"{path.relative_to(ROOT)}:{line}: {link}: no such heading"


def missing_pages():
    """Pages that the book leaves out."""
    docs = ROOT / "docs"
    listed = {target for _, target in markdown_links(docs / "SUMMARY.md")} | {"SUMMARY.md"}
    for page in sorted(docs.glob("*.md")):
        if page.name not in listed:
            yield f"docs/{page.name}: not in docs/SUMMARY.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--book", type=Path, help="the folder that mdBook wrote")
    arguments = parser.parse_args()

    command = ["git", "ls-files", "-co", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [ROOT / name for name in sorted(names) if (ROOT / name).exists()]
    links = [(path, markdown_links(path)) for path in files]
    problems = [problem for path, found in links for problem in dead(path, found, markdown_anchors)]
    problems += missing_pages()
    number = sum(len(found) for _, found in links)
    if arguments.book:
        pages = sorted(arguments.book.resolve().rglob("*.html"))
        parsed = {path: Page(path) for path in pages}
        for path, page in parsed.items():
            number += len(page.links)
            problems += dead(path, page.links, lambda target: parsed[target].anchors)
    print("\n".join(problems + [f"{number} links, {len(problems)} problems"]))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
