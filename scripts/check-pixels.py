"""Compares stallscope's decoded and resized pixels with Pillow's. Called by tests/pixels.rs.

usage: check-pixels.py CASES.json MAX_MEAN_DIFFERENCE

Each case names an image file, stallscope's decode of all of it, and one crop of it as the loader makes it (raw RGB).
The crop is done here the way torchvision does it with Pillow: an isolated box is cropped and then resized
(RandomResizedCrop); any other is Resize(resize) of the whole image followed by CenterCrop(side). Two differences are
reported, in 8-bit steps: end to end (Pillow also decodes), and the resize alone (Pillow resizes stallscope's whole
decode).
"""

import json
import sys

from PIL import Image, ImageChops, ImageStat


def torchvision_resize(image, case):
    side = case["side"]
    if case["isolated"]:
        left, top, width, height = (int(value) for value in case["box"])
        part = image.crop((left, top, left + width, top + height))
        return part.resize((side, side), Image.Resampling.BILINEAR)
    shorter = min(image.size)
    size = [int(case["resize"] * length / shorter) for length in image.size]
    resized = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (int(round((length - side) / 2.0)) for length in size)
    return resized.crop((left, top, left + side, top + side))


def difference(a, b):
    """Mean absolute difference over all pixels and channels, and the largest."""
    delta = ImageChops.difference(a, b)
    return sum(ImageStat.Stat(delta).mean) / 3, max(high for _, high in delta.getextrema())


def main():
    cases = json.load(open(sys.argv[1]))
    limit = float(sys.argv[2])
    worst = {}
    for case in cases:
        raw = lambda path, size: Image.frombytes("RGB", size, open(path, "rb").read())
        ours = raw(case["resized"], (case["side"], case["side"]))
        decoded = raw(case["decoded"], (case["width"], case["height"]))
        pillow = Image.open(case["image"]).convert("RGB")
        found = {
            "decode": difference(decoded, pillow),
            "resize": difference(ours, torchvision_resize(decoded, case)),
            "end to end": difference(ours, torchvision_resize(pillow, case)),
        }
        kind = case["set"] + (" random crop" if case["isolated"] else " centre crop")
        for name, (mean, peak) in found.items():
            rows = worst.setdefault((kind, name), [])
            rows.append((mean, peak, case["image"]))
    failed = False
    for (kind, name), rows in sorted(worst.items()):
        mean = sum(row[0] for row in rows) / len(rows)
        top = max(rows)
        print(f"{kind:28} {name:11} {len(rows)} images: mean {mean:.4f}, worst image {top[0]:.4f}, "
              f"worst value {max(row[1] for row in rows)} (of 255)")
        if top[0] > limit:
            failed = True
            print(f"{kind}, {name}: {top[2]} differs by {top[0]:.3f} on average, limit {limit}", file=sys.stderr)
    sys.exit(1 if failed else 0)


main()
