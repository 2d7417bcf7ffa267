"""Validation while training."""

import math

import pytest
import torch

from models.decoding import parse_decode
from models.families.compact import CompactCaptioner
from tests.training.conftest import SEED, TinyData
from training.augment import ViewOptions
from training.batches import CaptionItems
from training.features import build_cache
from training.validation import Validation


@pytest.fixture(scope="module")
def validation(captioner: CompactCaptioner, data: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Validation:
    cache = build_cache(tmp_path_factory.mktemp("val"), captioner, data.examples, ViewOptions(count=1), SEED)
    items = CaptionItems(captioner, data.examples, cache, max_tokens=14, seed=SEED)
    return Validation(items, cache, data.examples, parse_decode({"name": "greedy", "options": {"max_tokens": 6}}))


def test_every_value_is_there_and_finite(validation: Validation, captioner: CompactCaptioner) -> None:
    values = validation.run(captioner)
    assert set(values) == {
        "nll",
        "bleu1",
        "bleu2",
        "bleu3",
        "bleu4",
        "cider",
        "mean_words",
        "lexical_diversity",
        "repetition",
        "cut",
    }
    assert all(math.isfinite(value) for value in values.values())


def test_the_likelihood_is_the_mean_over_all_tokens(
    validation: Validation, captioner: CompactCaptioner, data: TinyData
) -> None:
    """Against a slow twin: caption by caption, token by token."""
    losses = []
    with torch.no_grad():
        for index, example in enumerate(data.examples):
            memory = captioner.encode_from_stem(data.cache.get(index, 0)[None])
            for ids in captioner.tokenize(list(example.captions), 14):
                row = torch.tensor([[captioner.start_id, *ids]])
                logs = captioner.forward_teacher(memory, row, torch.ones_like(row)).logits[0].log_softmax(-1)
                losses += [-float(logs[at, token]) for at, token in enumerate([*ids, captioner.end_id])]
    assert validation.run(captioner)["nll"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_dropout_is_off_meanwhile_and_the_mode_is_kept(
    validation: Validation, captioner: CompactCaptioner, trainee: CompactCaptioner
) -> None:
    trainee.model.feature_dropout.p = 0.5
    assert validation.run(trainee) == validation.run(captioner)
    assert trainee.training
    assert not captioner.training


def test_the_mode_is_kept_after_an_error(
    validation: Validation, trainee: CompactCaptioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainee, "encode_from_stem", None)
    with pytest.raises(TypeError):
        validation.run(trainee)
    assert trainee.training
