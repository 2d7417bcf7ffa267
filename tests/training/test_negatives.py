"""Mismatched captions: never a match, drawn anew every epoch, the share from similar pictures."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from models.errors import DataError
from training.data import Example
from training.negatives import NegativeOptions, NegativeSampler, nearest_images


def examples(*captions: Sequence[str]) -> list[Example]:
    return [Example(str(number), Path(str(number)), tuple(each)) for number, each in enumerate(captions)]


PICTURES = examples(
    ["a dog", "a dog runs"],
    ["A dog.", "a cat"],  # its first caption is one of picture 0, but for letters and the full stop
    ["a man", "a man sits"],
    ["a red bus"],
)


def sampler(seed: int = 0, nearest: torch.Tensor | None = None, **options: float) -> NegativeSampler:
    return NegativeSampler(PICTURES, NegativeOptions.model_validate({"per_caption": 5, **options}), seed, nearest)


def test_so_many_for_each_caption() -> None:
    assert len(sampler().draw(0, 0, captions=2)) == 10
    assert len(sampler(per_caption=1).draw(0, 3, captions=1)) == 1


def test_never_the_pictures_own_captions_nor_their_text() -> None:
    drawn = [pair for epoch in range(50) for pair in sampler().draw(epoch, 0, captions=2)]
    assert set(drawn) == {(1, 1), (2, 0), (2, 1), (3, 0)}
    drawn = [pair for epoch in range(50) for pair in sampler().draw(epoch, 1, captions=2)]
    assert set(drawn) == {(0, 1), (2, 0), (2, 1), (3, 0)}


def test_drawn_anew_every_epoch_and_for_every_picture_by_the_seed() -> None:
    assert sampler().draw(0, 2, captions=2) == sampler().draw(0, 2, captions=2)
    others = [sampler().draw(1, 2, 2), sampler().draw(0, 3, 2), sampler(seed=1).draw(0, 2, 2)]
    assert sampler().draw(0, 2, captions=2) not in others


def test_pictures_are_drawn_evenly() -> None:
    counts = Counter(other for epoch in range(400) for other, _ in sampler().draw(epoch, 3, captions=1))
    assert sorted(counts) == [0, 1, 2]
    assert all(abs(count / 2000 - 1 / 3) < 0.05 for count in counts.values())


def test_the_share_of_similar_pictures() -> None:
    nearest = torch.tensor([[2], [0], [0], [2]])
    assert {other for other, _ in sampler(nearest=nearest, hard_share=1.0).draw(0, 3, captions=10)} == {2}
    half = sampler(nearest=nearest, hard_share=0.5)
    counts = Counter(other for epoch in range(400) for other, _ in half.draw(epoch, 3, captions=1))
    assert counts[2] / 2000 == pytest.approx(0.5 + 0.5 / 3, abs=0.05)


def test_data_that_hold_no_mismatch_give_none() -> None:
    same = NegativeSampler(examples(["a dog"], ["A dog"]), NegativeOptions(per_caption=5), 0)
    assert same.draw(0, 0, captions=1) == []


def test_one_picture_alone_is_refused() -> None:
    with pytest.raises(DataError, match="no_data.*two or more"):
        NegativeSampler(PICTURES[:1], NegativeOptions(per_caption=5), 0)


@pytest.mark.parametrize("count", [1, 3, 599, 1000])
def test_nearest_images_equal_their_slow_twin(count: int) -> None:
    """More rows than one pass takes."""
    features = torch.nn.functional.normalize(torch.randn(600, 8), dim=-1)
    before = features.clone()
    found = nearest_images(features, count)
    assert found.shape == (600, min(count, 599))
    assert torch.equal(features, before)
    for row in (0, 511, 512, 599):
        similarity = [(float(features[row] @ other), number) for number, other in enumerate(features) if number != row]
        best = [number for _, number in sorted(similarity, reverse=True)]
        if count == 599 or count == 1000:
            assert sorted(found[row].tolist()) == sorted(best)
        assert found[row, :3].tolist() == best[: min(count, 3)]
