"""A scorer and what rewards read, made once."""

from pathlib import Path

import pytest

from models.clip_scorer import ClipScorer
from tests.models.families.tiny_models import images
from tests.training.scorers import kindred_scorer
from training.data import Example
from training.objectives.interface import Resources

CAPTIONS = (("a dog", "the dog runs on grass"), ("a man sits",), ("the child plays",))


@pytest.fixture(scope="session")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> ClipScorer:
    return kindred_scorer(tmp_path_factory.mktemp("scorer"))


@pytest.fixture(scope="session")
def resources(scorer: ClipScorer) -> Resources:
    """Three pictures with captions, and their features, which are not normalised."""
    examples = [Example(str(number), Path(str(number)), captions) for number, captions in enumerate(CAPTIONS)]
    return Resources(examples, scorer=scorer, image_features=scorer.project_images(images(len(examples))))
