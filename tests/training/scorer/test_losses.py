import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from training.scorer.losses import contrastive, cosine_distance, ranking_divergence

SCALE = torch.tensor(10.0)


def _rows(count: int, seed: int) -> torch.Tensor:
    return normalize(torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_contrastive_by_hand() -> None:
    images = texts = torch.eye(2)
    own = math.log(1 + math.exp(-10))
    loss = contrastive(images, texts, SCALE, torch.eye(2, dtype=torch.bool), 0.0)
    assert float(loss) == pytest.approx(own, abs=1e-6)
    half = contrastive(images, texts, SCALE, torch.eye(2, dtype=torch.bool), 0.5)
    assert float(half) == pytest.approx(0.5 * own + 0.25 * own + 0.25 * (10 + own), abs=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_contrastive_equals_torch_where_no_captions_are_equal(smoothing: float) -> None:
    images, texts = _rows(5, 1), _rows(5, 2)
    logits, labels = SCALE * images @ texts.T, torch.arange(5)
    slow = [cross_entropy(side, labels, label_smoothing=smoothing) for side in (logits, logits.T)]
    fast = contrastive(images, texts, SCALE, torch.eye(5, dtype=torch.bool), smoothing)
    assert float(fast) == pytest.approx(float(sum(slow)) / 2, abs=1e-6)


def test_equal_captions_of_two_pictures_are_no_negatives() -> None:
    """Rows 0 and 1 drew the same caption: leaving either out of the other's softmax is what the loss must equal."""
    images, texts = _rows(3, 1), _rows(3, 2)
    texts[1] = texts[0]
    same = torch.eye(3, dtype=torch.bool)
    same[0, 1] = same[1, 0] = True
    logits = SCALE * images @ texts.T
    rows = [logits[0, [0, 2]], logits[1, [1, 2]], logits[2]]
    columns = [logits[[0, 2], 0], logits[[1, 2], 1], logits[:, 2]]
    at = (0, 0, 2)
    slow = sum(-side.log_softmax(0)[k] for part in (rows, columns) for side, k in zip(part, at, strict=True)) / 6
    assert float(contrastive(images, texts, SCALE, same, 0.0)) == pytest.approx(float(slow), abs=1e-6)
    images.requires_grad_(True)
    contrastive(images, texts, SCALE, same, 0.1).backward()
    assert images.grad is not None and torch.isfinite(images.grad).all()


def test_cosine_distance_by_hand() -> None:
    found = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(cosine_distance(found, torch.tensor([[1.0, 0.0], [0.0, -1.0]]))) == pytest.approx(1.0)


def test_ranking_divergence_is_zero_for_the_teacher_itself_and_blind_to_what_no_picture_sees() -> None:
    bank = torch.eye(3)[:2]
    wanted = torch.tensor([[0.6, 0.0, 0.8]])
    assert float(ranking_divergence(wanted, wanted, bank, 5.0)) == pytest.approx(0, abs=1e-6)
    assert float(ranking_divergence(torch.tensor([[0.6, 0.0, -0.8]]), wanted, bank, 5.0)) == pytest.approx(0, abs=1e-6)
    p = 1 / (1 + math.exp(-3))
    by_hand = p * math.log(p / 0.5) + (1 - p) * math.log((1 - p) / 0.5)
    assert float(ranking_divergence(torch.tensor([[0.0, 0.0, 1.0]]), wanted, bank, 5.0)) == pytest.approx(
        by_hand, abs=1e-5
    )
