"""Evaluation of a scorer: how well human captions find their own pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import torch

from models.catalog import find_model
from models.clip_scorer import load_scorer
from training.data.selection import Progress, Selection, image_batches
from training.git_revision import git_revision
from training.metrics.interface import Measurement
from training.metrics.retrieval import define, own_ranks, summarize
from training.report import Evaluation


def evaluate_scorer(
    scorer: str,
    data: Selection,
    *,
    batch_size: int = 32,
    models_dir: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Evaluation:
    """Text-to-image retrieval of all human captions of a split, without prefix, over the images of the split.

    Raises:
        LimnerError: whatever is wrong with the scorer, the data or an image.
    """
    examples, report = data.read()
    loaded = load_scorer(scorer, models_dir=models_dir, device=device)
    images = torch.cat([loaded.encode_images(part) for _, part in image_batches(examples, batch_size, progress)])
    texts = [caption for example in examples for caption in example.captions]
    own = torch.tensor([index for index, example in enumerate(examples) for _ in example.captions])
    ranks = own_ranks(loaded.encode_texts(texts, prefix=False), images, own)
    context: dict[str, Any] = {
        "task": "text-to-image retrieval",
        "split": data.split,
        "images": len(examples),
        "captions": len(texts),
        "captions_truncated": loaded.count_truncated(texts, prefix=False),
        "data": data.describe(),
        "data_report": report.summary(),
        "scorer": loaded.scorer_id,
        "dtype": "float32",
        "device": str(loaded.device),
        "threads": torch.get_num_threads(),
        "git_revision": git_revision(),
    }
    return Evaluation(scorer, context, _measurements(ranks, loaded.scorer_id, len(examples)))


def is_scorer(ref: str, models_dir: Path | None = None) -> bool:
    """Whether ``ref`` names a scorer: by open_clip's prefixes and architectures, else by its card.

    Raises:
        LimnerError: there is no such model.
    """
    architecture, _, _ = ref.rpartition("/")
    if ref.startswith(("local-dir:", "hf-hub:")) or architecture in open_clip.list_models():
        return True
    return find_model(ref, models_dir).card.kind == "scorer"


def _measurements(ranks: torch.Tensor, scorer: str, pool: int) -> tuple[Measurement, ...]:
    definitions = define("human captions (all of each image, no prefix)")
    return tuple(
        Measurement(
            metric="text_to_image",
            name=name,
            value=value,
            definition=definitions[name].text,
            table_scale=definitions[name].table_scale,
            tokenizer=None,
            scorer=scorer,
            notes=(f"pool of {pool} images",),
        )
        for name, value in summarize(ranks).items()
    )
