"""Retrieval of a scorer with human captions."""

from pathlib import Path

import pytest

from models.clip_scorer import load_scorer
from models.errors import UnknownNameError
from models.images import read_image
from tests.tiny_scorer import write_tiny_scorer
from tests.training.support import write_dataset
from training.data.selection import Selection
from training.evaluate_scorer import evaluate_scorer, is_scorer


def test_all_captions_against_all_images_without_prefix(tmp_path: Path) -> None:
    ref = f"local-dir:{write_tiny_scorer(tmp_path / 'tiny')}"
    selection = Selection(write_dataset(tmp_path))
    evaluation = evaluate_scorer(ref, selection, batch_size=3)
    scorer = load_scorer(ref)
    examples, _ = selection.read()
    images = scorer.encode_images([read_image(example.path).image for example in examples])
    ranks = []
    for index, example in enumerate(examples):
        for caption in example.captions:
            similarity = (scorer.encode_texts([caption], prefix=False) @ images.T)[0].tolist()
            ranks.append(1 + sum(value > similarity[index] + 1e-6 for value in similarity))
    assert evaluation.value("mean_rank") == pytest.approx(sum(ranks) / 8, abs=1e-6)
    assert evaluation.value("r_at_1") == sum(rank == 1 for rank in ranks) / 8
    assert (evaluation.context["captions"], evaluation.context["images"]) == (8, 4)
    assert evaluation.measurements[0].scorer == "tiny"
    assert evaluation.measurements[0].notes == ("pool of 4 images",)


def test_what_counts_as_a_scorer(tmp_path: Path) -> None:
    assert is_scorer("local-dir:anywhere")
    assert is_scorer("ViT-B-32/openai")
    assert not is_scorer("fake")
    with pytest.raises(UnknownNameError):
        is_scorer("no-such-model")
