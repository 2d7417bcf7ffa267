"""The scorer's text encoder as a function of probabilities: its value, its gradient, tokenizers that differ."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from models.clip_scorer import ClipScorer
from models.families.base import TorchCaptioner
from models.families.blip import BlipCaptioner
from models.families.compact import CompactCaptioner
from models.families.vision_encoder_decoder import VisionEncoderDecoderCaptioner
from tests.models.families.tiny_models import save_blip, save_vit_gpt2
from tests.training.scorers import foreign_scorer, kindred_scorer
from training.soft_text import SoftTextEncoder

CAPTIONS = ["a dog runs on grass", "the man in red t-shirt", "dog", "the man's dog"]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> ClipScorer:
    return kindred_scorer(tmp_path_factory.mktemp("scorer"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> ClipScorer:
    return foreign_scorer(tmp_path_factory.mktemp("scorer"))


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> TorchCaptioner:
    """A captioner with word pieces of its own."""
    return BlipCaptioner.load(str(save_blip(tmp_path_factory.mktemp("hub") / "blip")))


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> TorchCaptioner:
    """A captioner whose tokens are no word pieces."""
    return VisionEncoderDecoderCaptioner.load(str(save_vit_gpt2(tmp_path_factory.mktemp("hub") / "vit_gpt2")))


def tokens_of(captioner: TorchCaptioner, *texts: str) -> list[list[int]]:
    return captioner.tokenize(list(texts), 200)


def distributions(captioner: TorchCaptioner, tokens: list[list[int]]) -> list[Tensor]:
    return [torch.randn(len(row), captioner.vocab_size).softmax(-1).requires_grad_() for row in tokens]


def gradients(encoder: SoftTextEncoder, tokens: list[list[int]], p: list[Tensor]) -> list[Tensor]:
    """d/dp of the first of the features, summed over the captions."""
    found = torch.autograd.grad(encoder.encode(tokens, p)[:, 0].sum(), p)
    return list(found)


def reached(gradient: Tensor) -> list[bool]:
    """Which places of a caption get any gradient."""
    return (gradient.abs().sum(-1) > 0).tolist()


# --- value ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["scorer", "foreign"])
def test_the_value_is_that_of_the_text(captioner: CompactCaptioner, request: pytest.FixtureRequest, which: str) -> None:
    scorer: ClipScorer = request.getfixturevalue(which)
    tokens = tokens_of(captioner, *CAPTIONS)
    with torch.no_grad():
        features = SoftTextEncoder(scorer, captioner).encode(tokens, distributions(captioner, tokens))
    expected = scorer.encode_texts([captioner.detokenize(row) for row in tokens], prefix=False)
    torch.testing.assert_close(normalize(features, dim=-1), expected.clone(), rtol=0, atol=1e-6)
    assert not torch.allclose(features.norm(dim=-1), torch.ones(len(tokens)), atol=1e-2)  # not normalised


def test_the_scorer_is_left_as_it_was(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    before = scorer.encode_texts(CAPTIONS)
    tokens = tokens_of(captioner, *CAPTIONS)
    gradients(SoftTextEncoder(scorer, captioner), tokens, distributions(captioner, tokens))
    assert torch.equal(scorer.encode_texts(CAPTIONS), before)
    assert all(parameter.grad is None for parameter in scorer.model.parameters())


# --- gradient, one vocabulary ---------------------------------------------------------------------------------------


def test_slow_twin_of_the_gradient(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    """d/d(one-hot) of the encoder on one-hot vectors times its word vectors is used as d/dp."""
    (tokens,) = tokens_of(captioner, "a dog runs on grass")
    p = distributions(captioner, [tokens])
    (found,) = gradients(SoftTextEncoder(scorer, captioner), [tokens], p)
    vectors = scorer.model.token_embedding.weight
    one_hot = torch.nn.functional.one_hot(torch.tensor(tokens), captioner.vocab_size).float().requires_grad_()
    ids = scorer.tokens([captioner.detokenize(tokens)], prefix=False)
    words = vectors[ids].clone()
    words[0, 1 : 1 + len(tokens)] = one_hot @ vectors
    handle = scorer.model.token_embedding.register_forward_hook(lambda *_: words)
    (expected,) = torch.autograd.grad(scorer.model.encode_text(ids)[:, 0].sum(), one_hot)
    handle.remove()
    special = torch.tensor([number for piece, number in captioner.vocabulary().items() if piece.startswith("[")])
    assert expected[:, special].any()
    assert not found[:, special].any()  # start, end and padding are no words
    expected[:, special] = 0
    torch.testing.assert_close(found, expected)
    assert reached(found) == [True] * len(tokens)


def test_every_token_of_a_joined_word_gets_a_gradient(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    """Hyphens and apostrophes are tokens of their own, with spaces in the text until the next token joins them."""
    tokens = tokens_of(captioner, "the man in red t-shirt", "the man's dog")
    assert [len(row) for row in tokens] == [7, 5]
    found = gradients(SoftTextEncoder(scorer, captioner), tokens, distributions(captioner, tokens))
    assert all(all(reached(each)) for each in found)


def test_special_tokens_within_a_caption_get_none(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    unknown = captioner.vocabulary()["[UNK]"]
    words = captioner.vocabulary()
    tokens = [unknown, words["a"], words["dog"], unknown]
    (found,) = gradients(SoftTextEncoder(scorer, captioner), [tokens], distributions(captioner, [tokens]))
    assert reached(found) == [False, True, True, False]


def test_what_the_scorer_cuts_gets_none(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    """77 places hold 75 tokens between start and end."""
    tokens = tokens_of(captioner, " ".join(["dog"] * 90))
    (found,) = gradients(SoftTextEncoder(scorer, captioner), tokens, distributions(captioner, tokens))
    assert reached(found) == [True] * 75 + [False] * 15


def test_captions_do_not_reach_each_others_tokens(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    tokens = tokens_of(captioner, *CAPTIONS)
    p = distributions(captioner, tokens)
    encoder = SoftTextEncoder(scorer, captioner)
    together = gradients(encoder, tokens, p)
    for row, own in enumerate(together):
        torch.testing.assert_close(gradients(encoder, [tokens[row]], [p[row]])[0], own, rtol=1e-4, atol=1e-6)


# --- gradient, tokenizers that differ -------------------------------------------------------------------------------


def test_tokens_that_the_scorer_does_not_know_get_none(captioner: CompactCaptioner, foreign: ClipScorer) -> None:
    encoder = SoftTextEncoder(foreign, captioner)
    words = captioner.vocabulary()
    tokens = tokens_of(captioner, "a dog sits")
    (found,) = gradients(encoder, tokens, distributions(captioner, tokens))
    assert set(found.abs().sum(0).nonzero().flatten().tolist()) == {words["a"], words["dog"]}
    assert encoder.unmapped_share == pytest.approx(1 - 2 / captioner.vocab_size)
    # The place of "sits" could be better taken by "dog", which the scorer knows.
    assert reached(found) == [True, True, True]


def test_a_shared_vocabulary_maps_all_but_special_tokens(captioner: CompactCaptioner, scorer: ClipScorer) -> None:
    assert SoftTextEncoder(scorer, captioner).unmapped_share == pytest.approx(4 / captioner.vocab_size)


def slopes(scorer: ClipScorer, text: str) -> Tensor:
    """d/d(word vectors) (L, D) of the first feature of a text."""
    ids = scorer.tokens([text], prefix=False)
    words = scorer.model.token_embedding.weight[ids].clone().requires_grad_()
    handle = scorer.model.token_embedding.register_forward_hook(lambda *_: words)
    (slope,) = torch.autograd.grad(scorer.model.encode_text(ids)[:, 0].sum(), words)
    handle.remove()
    return slope[0]


def test_a_token_stands_for_the_mean_of_its_pieces(blip: TorchCaptioner, scorer: ClipScorer) -> None:
    """ "runs" is one token of the captioner, and "run" and "##s" of the scorer: each piece is linked to it."""
    tokens = tokens_of(blip, "the dog runs")
    words, pieces, vectors = blip.vocabulary(), scorer.vocabulary(), scorer.model.token_embedding.weight
    assert tokens == [[words["the"], words["dog"], words["runs"]]]
    ids = scorer.tokens(["the dog runs"], prefix=False)[0].tolist()
    assert ids[3:5] == [pieces["run"], pieces["##s"]]
    (found,) = gradients(SoftTextEncoder(scorer, blip), tokens, distributions(blip, tokens))
    both = slopes(scorer, "the dog runs")[3:5].sum(0)
    expected = {"dog": vectors[pieces["dog"]], "runs": (vectors[pieces["run"]] + vectors[pieces["##s"]]) / 2}
    for name, vector in expected.items():
        assert float(found[2, words[name]]) == pytest.approx(float(both @ vector), rel=1e-4)


def test_tokens_of_one_piece_share_its_gradient(captioner: CompactCaptioner, foreign: ClipScorer) -> None:
    """ "dogs" is two tokens of the captioner and one word, which it does not know, of this scorer."""
    words = captioner.vocabulary()
    tokens = [[words["dog"], words["##s"]]]
    (found,) = gradients(SoftTextEncoder(foreign, captioner), tokens, distributions(captioner, tokens))
    at_word = float(slopes(foreign, "dogs")[1] @ foreign.model.token_embedding.weight[foreign.vocabulary()["dog"]])
    assert found[:, words["dog"]].tolist() == pytest.approx([at_word / 2] * 2, rel=1e-4)


def test_continuation_pieces_are_looked_up_by_name_or_without_their_mark(
    blip: TorchCaptioner, scorer: ClipScorer, foreign: ClipScorer
) -> None:
    """Never as the text "##s", which would be two signs and a letter."""
    words = blip.vocabulary()
    tokens = [[words["dog"]]]
    (found,) = gradients(SoftTextEncoder(scorer, blip), tokens, distributions(blip, tokens))
    slope, vectors = slopes(scorer, "dog")[1], scorer.model.token_embedding.weight
    assert float(found[0, words["##s"]]) == pytest.approx(float(slope @ vectors[scorer.vocabulary()["##s"]]), rel=1e-4)
    assert float(found[0, words["##ing"]]) == 0  # the scorer knows neither ##ing nor ing
    assert (
        float(gradients(SoftTextEncoder(foreign, blip), tokens, distributions(blip, tokens))[0][0, words["##s"]]) == 0
    )


def test_tokens_that_are_no_word_pieces(byte_level: TorchCaptioner, scorer: ClipScorer) -> None:
    """Words of several tokens meet words of one piece; a leading space belongs to the token."""
    tokens = tokens_of(byte_level, "the dog in red")
    words = byte_level.vocabulary()
    assert len(tokens[0]) > 4
    (found,) = gradients(SoftTextEncoder(scorer, byte_level), tokens, distributions(byte_level, tokens))
    assert all(reached(found))
    slope, vectors = slopes(scorer, "the dog in red")[1], scorer.model.token_embedding.weight
    assert float(found[0, words["Ġin"]]) == pytest.approx(float(slope @ vectors[scorer.vocabulary()["in"]]), rel=1e-4)
