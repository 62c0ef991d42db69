"""Small trees of made images in ImageNet's layout, with split lists in the form of ImageNet-LT's."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 12
COUNTS = (30, 22, 16, 12, 9, 7, 5, 4, 3, 2, 2, 1)
TESTED = 4


def picture(label: int, number: int) -> Image.Image:
    """A noisy square of the class's colour in a frame; sizes and forms differ."""
    rng = np.random.default_rng([label, number])
    width, height = 40 + 4 * (number % 5), 40 + 3 * (label % 4)
    colour = np.array([20 * label % 256, 255 - 20 * label, 60 + 90 * (label % 3)])
    pixels = np.clip(colour + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels)


def jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def write_tree(root: Path, flat: bool = True, counts: tuple[int, ...] = COUNTS, tested: int = TESTED) -> Path:
    """train/<folder>/ and val/ (flat, or a folder for each class) with the two lists beside them."""
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for label, count in enumerate(counts):
        kind = f"n{label:08d}"
        for number in range(count):
            name = f"train/{kind}/{kind}_{number}.JPEG"
            put(root / name, jpeg(picture(label, number)))
            lines["train"].append(f"{name} {label}")
        for number in range(tested):
            name = f"ILSVRC2012_val_{label * tested + number + 1:08d}.JPEG"
            put(root / "val" / ("" if flat else kind) / name, jpeg(picture(label, 1000 + number)))
            lines["test"].append(f"val/{name} {label}")
    for split, listed in lines.items():
        (root / f"ImageNet_LT_{split}.txt").write_text("\n".join(listed) + "\n")
    return root


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def rewrite(path: Path, old: str, new: str) -> None:
    """Change a list."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def die(task: object) -> None:
    """What a process does that the system ends."""
    os._exit(1)


def journal(cache: Path) -> list[dict[str, object]]:
    """The finished blocks of the one folder under construction."""
    (file,) = cache.glob("arrays/*.part/blocks.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]
