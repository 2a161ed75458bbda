#!/usr/bin/env python3
"""What torchvision makes of two pictures, as a table of checksums: the reference for src/data/stages/augment/tests.rs.

    python3 scripts/augment-reference.py        (needs torchvision and Pillow)

Each change is the one that torchvision's RandAugment or ColorJitter makes of a PIL image with these numbers.
"""
import math
import zlib

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision.transforms import functional as F

SIDES = (61, 64)


def picture(side):
    """Noise on the odd side, slopes with a little noise on the even one."""
    state, pixels = side, []
    for i in range(side * side * 3):
        state = (state * 1103515245 + 12345) % (1 << 31)
        noise = (state >> 16) % 256
        y, x, channel = i // (side * 3), i // 3 % side, i % 3
        slope = (x * 2 + y * (channel + 1)) % 256
        pixels.append(noise if side % 2 else (slope * 3 + noise % 32) // 4 % 256)
    return Image.fromarray(np.array(pixels, np.uint8).reshape(side, side, 3))


def shear(x, y):
    return lambda p: F.affine(p, angle=0.0, translate=[0, 0], scale=1.0, center=[0, 0],
                              shear=[math.degrees(math.atan(x)), math.degrees(math.atan(y))])


def move(x, y):
    return lambda p: F.affine(p, angle=0.0, translate=[x, y], scale=1.0, shear=[0.0, 0.0])


CASES = {}
for slope in (0.09, -0.3, 0.17):
    CASES[f"ShearX({slope})"] = shear(slope, 0.0)
    CASES[f"ShearY({slope})"] = shear(0.0, slope)
for by in (13, -27):
    CASES[f"TranslateX({by})"] = move(by, 0)
    CASES[f"TranslateY({by})"] = move(0, by)
for degrees in (9.0, -30.0, 4.5):
    CASES[f"Rotate({degrees})"] = lambda p, d=degrees: F.rotate(p, d)
for factor in (0.1, 0.73, 1.27, 1.9):
    CASES[f"Brightness({factor})"] = lambda p, f=factor: F.adjust_brightness(p, f)
    CASES[f"Color({factor})"] = lambda p, f=factor: F.adjust_saturation(p, f)
    CASES[f"Contrast({factor})"] = lambda p, f=factor: F.adjust_contrast(p, f)
    CASES[f"Sharpness({factor})"] = lambda p, f=factor: F.adjust_sharpness(p, f)
for bits in (4, 7, 8):
    CASES[f"Posterize({bits})"] = lambda p, b=bits: F.posterize(p, b)
for value in (178.5, 0.0, 255.0):
    CASES[f"Solarize({value})"] = lambda p, v=value: F.solarize(p, v)
CASES["AutoContrast"] = F.autocontrast
CASES["Equalize"] = F.equalize
for turn in (0.1, -0.25, 0.5):
    CASES[f"Hue({turn})"] = lambda p, t=turn: F.adjust_hue(p, t)

print(f"// torchvision {torchvision.__version__}, Pillow {PIL.__version__}")
for name, change in CASES.items():
    sums = ", ".join(f"{zlib.crc32(np.asarray(change(picture(side))).tobytes()):#010x}" for side in SIDES)
    print(f"(Change::{name}, [{sums}]),")
