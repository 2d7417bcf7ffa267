"""What objectives use besides the batch, built from what they declare."""

import hashlib
import logging
import os
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.clip_scorer import ClipScorer, load_scorer
from models.errors import DataError
from models.families.base import TorchCaptioner
from training.data import Example
from training.data.selection import image_batches
from training.features import example_digest
from training.objectives import ChosenObjective
from training.objectives.interface import Resources
from training.starting_point import load_trainable

logger = logging.getLogger(__name__)

_IMAGES_PER_PASS = 32
_ROUNDING = 1e-2
"""Of weights that went through a checkpoint in half precision."""


def build_resources(
    chosen: ChosenObjective, captioner: TorchCaptioner, examples: Sequence[Example], seed: int, cache: Path
) -> Resources:
    """The resources that the objective needs; features are kept in the folder ``cache``.

    Raises:
        DataError: ``bad_recipe``, the teacher's architecture, vocabulary or frozen encoder is not the captioner's.
        LimnerError: the teacher or the scorer cannot be loaded, or a picture cannot be read.
    """
    options: Any = chosen.options
    needs = chosen.needs
    scorer = load_scorer(options.scorer) if "scorer" in needs else None
    return Resources(
        examples=examples,
        seed=seed,
        reference=frozen(deepcopy(captioner)) if "reference" in needs else None,
        teacher=_teacher(options.teacher, captioner) if "teacher" in needs else None,
        scorer=scorer,
        image_features=None if scorer is None else scorer_features(cache, scorer, examples),
    )


def frozen(captioner: TorchCaptioner) -> TorchCaptioner:
    """The captioner itself, in eval mode, nothing of it to be trained."""
    captioner.requires_grad_(False)
    return captioner.eval()


def scorer_features(folder: Path, scorer: ClipScorer, examples: Sequence[Example]) -> Tensor:
    """Features (N, D) of the pictures under the scorer, not normalised, computed now unless the folder has them.

    Raises:
        ImageError: a picture cannot be read.
    """
    digest = hashlib.sha256(b"scorer")
    for name, tensor in scorer.model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    digest.update(repr(getattr(scorer.model.visual, "preprocess_cfg", None)).encode())
    example_digest(digest, examples)
    path = folder / f"{digest.hexdigest()[:24]}.npy"
    if not path.exists():
        logger.info("features: %d pictures under the scorer %s", len(examples), scorer.scorer_id)
        parts = [scorer.project_images(images) for _, images in image_batches(examples, _IMAGES_PER_PASS)]
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.partial.npy")
        try:
            np.save(draft, torch.cat(parts).numpy())
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
    return torch.from_numpy(np.load(path))


def _teacher(ref: str, captioner: TorchCaptioner) -> TorchCaptioner:
    teacher = load_trainable(ref)
    own, other = ({name: tensor.shape for name, tensor in m.state_dict().items()} for m in (captioner, teacher))
    if own != other:
        differs = sorted(name for name in own.keys() | other.keys() if own.get(name) != other.get(name))
        raise DataError("bad_recipe", f"the teacher {ref!r} is of another architecture: {differs[0]} differs")
    if teacher.vocabulary() != captioner.vocabulary():
        raise DataError("bad_recipe", f"the teacher {ref!r} has another vocabulary")
    teacher.train_encoder(captioner.encoder_is_trained)  # so that it reads the same cached features
    if not all(
        torch.allclose(one, another, rtol=_ROUNDING, atol=_ROUNDING)
        for one, another in zip(captioner.frozen_encoder(), teacher.frozen_encoder(), strict=True)
    ):
        raise DataError(
            "bad_recipe",
            f"the teacher {ref!r} has another frozen encoder: train it from what the captioner starts from",
        )
    return frozen(teacher)
