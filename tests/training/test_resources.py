"""What objectives use besides the batch: built where it is needed, frozen, refused where it does not fit."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models.clip_scorer import ClipScorer, load_scorer
from models.errors import DataError
from models.families.compact import CompactCaptioner
from tests.models.families.compact.tiny import tiny_captioner, tiny_tokenizer
from tests.training.conftest import SEED, TinyData
from tests.training.scorers import write_kindred_scorer
from training.objectives import choose_objective
from training.objectives.interface import Resources
from training.resources import build_resources, frozen, scorer_features


@pytest.fixture(scope="module")
def scorer_ref(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{write_kindred_scorer(tmp_path_factory.mktemp('scorer'))}"


@pytest.fixture(scope="module")
def scorer(scorer_ref: str) -> ClipScorer:
    return load_scorer(scorer_ref, device="cpu")


@pytest.fixture
def build(captioner: CompactCaptioner, data: TinyData, tmp_path: Path) -> Callable[..., Resources]:
    def resources(name: str, **options: Any) -> Resources:
        return build_resources(choose_objective(name, options), captioner, data.examples, SEED, tmp_path / "cache")

    return resources


def there(resources: Resources) -> set[str]:
    return {name for name in ("reference", "teacher", "scorer") if getattr(resources, name) is not None}


def test_only_what_is_needed_is_built(build: Callable[..., Resources], data: TinyData, scorer_ref: str) -> None:
    assert there(build("mle")) == set()
    assert there(build("contrastive")) == {"reference"}
    assert there(build("scst", reward="cider", scorer="no such scorer")) == set()
    assert there(build("retrieval", scorer=scorer_ref)) == {"reference", "scorer"}
    resources = build("contrastive", hard_negatives=0.5, scorer=scorer_ref)
    assert there(resources) == {"reference", "scorer"}
    assert resources.image_features is not None
    assert resources.image_features.shape == (len(data.examples), 16)
    assert (list(resources.examples), resources.seed) == (list(data.examples), SEED)


def test_the_reference_is_a_frozen_copy(trainee: CompactCaptioner, data: TinyData, tmp_path: Path) -> None:
    chosen = choose_objective("contrastive", {})
    reference = build_resources(chosen, trainee, data.examples, SEED, tmp_path).reference
    assert isinstance(reference, CompactCaptioner)
    assert not reference.training
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert trainee.training
    assert any(parameter.requires_grad for parameter in trainee.parameters())
    before = reference.model.memory_norm.weight.clone()
    with torch.no_grad():
        trainee.model.memory_norm.weight.add_(1)
    assert torch.equal(reference.model.memory_norm.weight, before)


def test_frozen_keeps_the_captioner_itself(trainee: CompactCaptioner) -> None:
    assert frozen(trainee) is trainee
    assert not trainee.training


# --- the teacher ----------------------------------------------------------------------------------------------------


def teacher(captioner: CompactCaptioner) -> CompactCaptioner:
    """Another decoder over the same encoder."""
    own = deepcopy(captioner)
    with torch.no_grad():
        for parameter in own.model.decoder.parameters():
            parameter.mul_(0.9)
    return own


def test_a_teacher_reads_the_cached_features_of_the_captioner(
    build: Callable[..., Resources], captioner: CompactCaptioner, tmp_path: Path
) -> None:
    """Although its checkpoint is in half precision."""
    own = teacher(captioner)
    own.save(tmp_path / "teacher")
    loaded = build("unkt", teacher=str(tmp_path / "teacher")).teacher
    assert isinstance(loaded, CompactCaptioner)
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    features = captioner.encode_stem(torch.rand(2, 3, 64, 64))
    with torch.no_grad():
        difference = loaded.encode_from_stem(features) - own.encode_from_stem(features)
    assert difference.abs().max() < 0.05


def other_vocabulary(own: CompactCaptioner) -> None:
    vocabulary = tiny_tokenizer().to_str().replace('"grass"', '"straw"')
    own.tokenizer = type(own.tokenizer).from_str(vocabulary)


def other_encoder(own: CompactCaptioner) -> None:
    with torch.no_grad():
        next(own.model.vision.stem.parameters()).mul_(1.5)


@pytest.mark.parametrize(
    ("change", "named"), [(other_vocabulary, "another vocabulary"), (other_encoder, "another frozen encoder")]
)
def test_a_teacher_that_does_not_fit_is_refused(
    build: Callable[..., Resources],
    captioner: CompactCaptioner,
    tmp_path: Path,
    change: Callable[[CompactCaptioner], None],
    named: str,
) -> None:
    own = teacher(captioner)
    change(own)
    own.save(tmp_path / "teacher")
    with pytest.raises(DataError, match=f"bad_recipe.*teacher.*{named}"):
        build("unkt", teacher=str(tmp_path / "teacher"))


def test_a_teacher_of_another_architecture_is_refused(build: Callable[..., Resources], tmp_path: Path) -> None:
    tiny_captioner(decoder_layers=1).save(tmp_path / "teacher")
    with pytest.raises(DataError, match=r"bad_recipe.*architecture: model\.decoder\.1\..* differs"):
        build("unkt", teacher=str(tmp_path / "teacher"))


# --- features of the scorer -----------------------------------------------------------------------------------------


def test_features_are_those_of_the_scorer_and_not_normalised(
    scorer: ClipScorer, data: TinyData, tmp_path: Path
) -> None:
    features = scorer_features(tmp_path / "new", scorer, data.examples)
    pictures = [example.load().image for example in data.examples]
    torch.testing.assert_close(features, scorer.project_images(pictures).clone())
    unit = nn.functional.normalize(features, dim=-1)
    torch.testing.assert_close(unit, scorer.encode_images(pictures).clone())
    assert not torch.allclose(features, unit)


def test_features_are_computed_once(scorer: ClipScorer, data: TinyData, tmp_path: Path) -> None:
    first = scorer_features(tmp_path, scorer, data.examples)
    (path,) = tmp_path.iterdir()  # and no unfinished file
    before = path.stat()
    assert torch.equal(scorer_features(tmp_path, scorer, data.examples), first)
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_other_weights_other_settings_and_other_pictures_get_their_own_file(
    scorer: ClipScorer, data: TinyData, tmp_path: Path
) -> None:
    scorer_features(tmp_path, scorer, data.examples)
    scorer_features(tmp_path, scorer, data.examples[::-1])
    changed = deepcopy(scorer.model)
    with torch.no_grad():
        changed.visual.proj.mul_(2)
    scorer_features(tmp_path, with_model(scorer, changed), data.examples)
    assert len(list(tmp_path.iterdir())) == 3
    darker = deepcopy(scorer.model)
    darker.visual.preprocess_cfg = {**scorer.model.visual.preprocess_cfg, "mean": (0.6, 0.6, 0.6)}
    scorer_features(tmp_path, with_model(scorer, darker), data.examples)
    assert len(list(tmp_path.iterdir())) == 4


def with_model(scorer: ClipScorer, model: Any) -> ClipScorer:
    return ClipScorer(model, scorer._preprocess, scorer._tokenizer, scorer_id=scorer.scorer_id)
