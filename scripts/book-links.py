#!/usr/bin/env python3
"""A preprocessor of mdBook (see book.toml) that keeps links to Markdown files outside of docs/.

mdBook turns every relative link to X.md into X.html. Files outside of docs/ are not in the book, so such a link would be
dead. An escaped dot (X%2Emd) leads to the file and is not changed by mdBook.
"""

import json
import re
import sys

OUTSIDE = re.compile(r"(\]\(\.\./[^)\s]*)\.md(?=[)#])")


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    for chapter in chapters(book["items"]):
        chapter["content"] = OUTSIDE.sub(r"\1%2Emd", chapter["content"])
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
