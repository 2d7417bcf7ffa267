"""A data set of generated pictures in Karpathy's format."""

import json
from pathlib import Path

from PIL import Image

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (30, 60, 220), "grey": (120, 120, 120)}


def write_dataset(folder: Path, split: str = "test") -> dict[str, Path]:
    """Options of the ``karpathy`` format for one flat picture per colour, two captions each, all in one split."""
    root = folder / "images"
    root.mkdir()
    images = []
    for number, (name, colour) in enumerate(COLOURS.items()):
        Image.new("RGB", (40, 32), colour).save(root / f"{name}.png")
        sentences = [{"raw": f"A {name} picture."}, {"raw": f"all of it is {name}"}]
        images.append({"imgid": number, "filename": f"{name}.png", "split": split, "sentences": sentences})
    path = folder / "dataset.json"
    path.write_text(json.dumps({"images": images}), encoding="utf-8")
    return {"path": path, "images_root": root}
