"""Made once for the tests of objectives, which leave them as they are."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from models.clip_scorer import ClipScorer
from models.families.base import TorchCaptioner
from models.families.blip import BlipCaptioner
from models.families.compact import CompactCaptioner
from models.families.vision_encoder_decoder import VisionEncoderDecoderCaptioner
from tests.models.families.compact.tiny import tiny_captioner
from tests.models.families.tiny_models import save_blip, save_vit_gpt2
from tests.training.conftest import SEED, TinyData
from tests.training.scorers import kindred_scorer
from training.objectives.interface import Resources
from training.resources import frozen


@pytest.fixture(scope="session")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> ClipScorer:
    return kindred_scorer(tmp_path_factory.mktemp("scorer"))


@pytest.fixture(scope="session")
def resources(captioner: CompactCaptioner, data: TinyData, scorer: ClipScorer) -> Resources:
    """All that an objective could ask for; the teacher has weights of its own."""
    teacher = tiny_captioner(seed=1)
    teacher.train_encoder(True)
    return Resources(
        examples=data.examples,
        seed=SEED,
        reference=frozen(deepcopy(captioner)),
        teacher=frozen(teacher),
        scorer=scorer,
        image_features=scorer.project_images([example.load().image for example in data.examples]),
    )


@pytest.fixture(scope="session")
def load(captioner: CompactCaptioner, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TorchCaptioner]:
    """A fresh captioner of a family, its encoder frozen, by the name of the family."""
    folders: dict[str, Path] = {}

    def build(family: str) -> TorchCaptioner:
        own: TorchCaptioner
        if family == "compact":
            own = deepcopy(captioner)
        elif family == "blip":
            folders.setdefault(family, save_blip(tmp_path_factory.mktemp("hub") / family))
            own = BlipCaptioner.load(str(folders[family]))
        else:
            folders.setdefault(family, save_vit_gpt2(tmp_path_factory.mktemp("hub") / family))
            own = VisionEncoderDecoderCaptioner.load(str(folders[family]))
        own.train_encoder(False)
        return own

    return build
