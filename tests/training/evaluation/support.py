"""A data set with a measured split, training pictures and restval, and evaluations made up of numbers."""

import json
from pathlib import Path

from PIL import Image

from tests.training.support import write_dataset
from training.data import Example
from training.data.selection import Selection
from training.metrics.interface import Measurement
from training.report import Estimate, Evaluation

TRAINING = {"black": ("train", (0, 0, 0)), "white": ("restval", (255, 255, 255)), "pink": ("train", (250, 120, 180))}


def write_splits(folder: Path) -> Selection:
    """Four pictures to measure, as ``write_dataset`` makes them, and three for training with two captions each."""
    options = write_dataset(folder)
    path = options["path"]
    content = json.loads(path.read_text(encoding="utf-8"))
    for number, (name, (split, colour)) in enumerate(TRAINING.items(), start=10):
        Image.new("RGB", (40, 32), colour).save(options["images_root"] / f"{name}.png")
        sentences = [{"raw": f"A {name} picture."}, {"raw": f"it is {name}"}]
        content["images"].append({"imgid": number, "filename": f"{name}.png", "split": split, "sentences": sentences})
    path.write_text(json.dumps(content), encoding="utf-8")
    return Selection(options)


def example(image_id: str, name: str) -> Example:
    """An example that only its name is asked of."""
    return Example(image_id, Path(name), ("a caption",))


def measurement(name: str, value: float, scale: float = 1, scorer: str | None = None) -> Measurement:
    """A number with a definition and a note."""
    return Measurement("m", name, value, "what it | means", scale, None, scorer, ("a note",))


def evaluation(label: str, *, words: float, r_at_1: float, clip_score: float) -> Evaluation:
    """What a trade-off needs, under the scorer ``s``, with an interval for the words."""
    numbers = (
        measurement("mean_words", words),
        measurement("r_at_1", r_at_1, 100, "s"),
        measurement("clip_score", clip_score, 100, "s"),
    )
    context = {"split": "test", "images": 4, "decode": {"name": "beam", "options": {}}}
    estimates = {("mean_words", None): Estimate((words - 1, words + 2), "percentile")}
    return Evaluation(label, context, numbers, estimates=estimates)
