"""A training run that takes seconds: pictures and captions made up on the spot, a very small captioner."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 70, 210), "yellow": (235, 210, 50)}
SHAPES = ("ball", "box")


def write_data(folder: Path, train: int = 12, val: int = 4) -> Path:
    """A Karpathy file with its pictures: a coloured shape on grey, two captions each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    images = []
    for number in range(train + val):
        colour, shape = list(COLOURS)[number % len(COLOURS)], SHAPES[number // 2 % 2]
        pixels = rng.integers(90, 130, (48, 48, 3), dtype=np.uint8)
        pixels[12:36, 12:36] = COLOURS[colour]
        name = f"{number}.png"
        Image.fromarray(pixels).save(folder / name)
        captions = [f"a {colour} {shape}", f"one {shape} that is {colour} stands on the grey ground"]
        images.append(
            {
                "filename": name,
                "imgid": number,
                "split": "train" if number < train else "val",
                "sentences": [{"raw": text} for text in captions],
            }
        )
    path = folder / "dataset.json"
    path.write_text(json.dumps({"images": images, "dataset": "shapes"}), encoding="utf-8")
    return path


def overrides(data: Path) -> list[str]:
    """Settings that make ``concise_start.yaml`` a run of 12 steps over ``data``."""
    model = "image_size_px=64 width=32 heads=2 decoder_layers=1 feed_forward=64 min_piece_count=1".split()
    train = (
        "epochs=4 images_per_step=4 warmup_steps=2 save_every_steps=2 log_every_steps=1 bf16=false threads=1".split()
    )
    return [
        f"data.options.path={data}",
        f"data.options.images_root={data.parent}",
        "views.count=2",
        *(f"model.{word}" for word in model),
        *(f"train.{word}" for word in train),
    ]
