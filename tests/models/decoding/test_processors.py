import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from models.decoding.options import SharedOptions
from models.decoding.processors import forbid_ngrams, forbid_stutter, penalise_repetition, process

VOCAB, END = 6, 0


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def history() -> torch.Tensor:
    return torch.randint(1, VOCAB, (8, 12), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("penalty", [0.5, 1.3, 4.0])
def test_repetition_penalty_equals_transformers(scores: torch.Tensor, history: torch.Tensor, penalty: float) -> None:
    expected = RepetitionPenaltyLogitsProcessor(penalty)(history[:, :3], scores.clone())
    assert torch.equal(penalise_repetition(scores, history[:, :3], penalty), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 13])
def test_ngram_ban_equals_transformers(scores: torch.Tensor, history: torch.Tensor, size: int) -> None:
    expected = NoRepeatNGramLogitsProcessor(size)(history, scores.clone())
    assert torch.equal(forbid_ngrams(scores, history, size), expected)


@pytest.mark.parametrize(
    "options", [{"repetition_penalty": 1.7}, {"no_repeat_ngram": 1}, {"no_repeat_ngram": 3}, {"no_stutter": 4}]
)
def test_padding_counts_for_nothing(scores: torch.Tensor, history: torch.Tensor, options: dict[str, float]) -> None:
    parsed = SharedOptions.model_validate(options)
    padded = torch.cat((torch.full((8, 5), VOCAB), history), dim=1)
    assert torch.equal(process(scores, padded, 0, END, parsed), process(scores, history, 0, END, parsed))
    empty = torch.full((8, 5), VOCAB)
    assert torch.equal(process(scores, empty, 0, END, parsed), scores)


@pytest.mark.parametrize(
    ("history", "longest", "forbidden"),
    [
        ([], 4, []),
        ([3], 4, [3]),
        ([3], 0, []),
        ([1, 2, 1], 1, [1]),
        ([1, 2, 1], 2, [1, 2]),
        ([1, 2, 1, 2], 2, [1, 2]),  # after a stutter that was there already
        ([1, 2, 3, 1, 2], 2, [2]),
        ([1, 2, 3, 1, 2], 3, [2, 3]),
        ([VOCAB, VOCAB, VOCAB, 3], 3, [3]),
    ],
)
def test_no_run_follows_itself(scores: torch.Tensor, history: list[int], longest: int, forbidden: list[int]) -> None:
    rows = torch.tensor([history], dtype=torch.long).expand(8, -1)
    found = process(scores, rows, len(history), END, SharedOptions(no_stutter=longest))
    expected = scores.clone()
    expected[:, forbidden] = -torch.inf
    assert torch.equal(found, expected)


@pytest.mark.parametrize("longest", [1, 2, 3, 6])
def test_stutters_are_found_as_by_looking_at_each(scores: torch.Tensor, longest: int) -> None:
    history = torch.randint(1, 3, (8, 9), generator=torch.Generator().manual_seed(2))
    expected = scores.clone()
    for row, tokens in enumerate(history.tolist()):
        for token in range(VOCAB):
            text = [*tokens, token]
            if any(text[-size:] == text[-2 * size : -size] for size in range(1, longest + 1)):
                expected[row, token] = -torch.inf
    assert torch.equal(forbid_stutter(scores, history, longest), expected)


def test_no_end_before_min_tokens(scores: torch.Tensor, history: torch.Tensor) -> None:
    options = SharedOptions(min_tokens=3)
    assert torch.isinf(process(scores, history, 2, END, options)[:, END]).all()
    assert torch.equal(process(scores, history, 3, END, options), scores)


def test_a_row_without_any_way_on_may_end(scores: torch.Tensor) -> None:
    everything = torch.arange(1, VOCAB).expand(8, -1)
    options = SharedOptions(no_repeat_ngram=1, min_tokens=20)
    assert process(scores, everything, 5, END, options).argmax(dim=1).tolist() == [END] * 8
