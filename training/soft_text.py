"""A scorer's text encoder as a differentiable function of what a captioner predicts."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.clip_scorer import ClipScorer
from models.errors import CheckpointError
from models.families.base import TorchCaptioner

_WORD_VECTORS = ("token_embedding", "word_embeddings", "wte")
"""What open_clip and transformers call them."""

_CONTINUES = "##"
"""Before a word piece that goes on with a word."""


class SoftTextEncoder:
    """Text features whose gradient reaches the captioner's token probabilities (Lindh et al. 2018, section 3).

    Forward, the scorer reads the caption's text, cut by its own tokenizer. Backward, each of its word vectors stands
    for sum_v p(v) E(v), v over the captioner's tokens and E(v) the mean vector of v's pieces under the scorer: the
    straight-through estimator. Captioner tokens and scorer pieces meet word by word. Tokens that the scorer has no
    pieces for, and the end of the caption, get no gradient.
    """

    def __init__(self, scorer: ClipScorer, captioner: TorchCaptioner) -> None:
        self._scorer = scorer
        self._captioner = captioner
        self._embedding = _token_embedding(scorer.model)
        pieces = _pieces_of_tokens(scorer, captioner)
        self._vectors = self._mean_vectors(pieces)  # (V, D)
        self._start = scorer.tokens(["a"], prefix=False)[0].tolist().index(scorer.pieces("a")[0])
        self.unmapped_share = sum(not row for row in pieces) / len(pieces)
        """Share of the captioner's vocabulary that gets no gradient."""

    def encode(self, captions: Sequence[list[int]], probabilities: Sequence[Tensor]) -> Tensor:
        """Features (C, D), fp32, not normalised, of captions given as token ids (without start and end token).

        The scorer computes in its own precision, whatever the training around it is autocast to.

        Args:
            probabilities: for each caption the distributions (T, V) that its T tokens were chosen from.
        """
        with torch.autocast(self._vectors.device.type, enabled=False):
            return self._encode(captions, probabilities)

    def _encode(self, captions: Sequence[list[int]], probabilities: Sequence[Tensor]) -> Tensor:
        texts = [self._captioner.detokenize(tokens) for tokens in captions]
        ids = self._scorer.tokens(texts, prefix=False).to(self._vectors.device)  # (C, L)
        hard = self._embedding.weight.detach()[ids]  # (C, L, D)
        sources, places, shares = self._links(texts, captions, ids.tolist())
        expected = torch.cat(list(probabilities)).to(self._vectors) @ self._vectors  # one row for each token of each
        linked = expected[sources] * torch.tensor(shares).to(expected)[:, None]
        soft = torch.zeros_like(hard).flatten(0, 1)
        soft = soft.index_add(0, torch.tensor(places, dtype=torch.long, device=soft.device), linked).view_as(hard)
        return self._run(ids, hard + (soft - soft.detach()))

    def _links(
        self, texts: Sequence[str], captions: Sequence[list[int]], ids: Sequence[list[int]]
    ) -> tuple[list[int], list[int], list[float]]:
        """Which tokens of all captions, counted on, are linked to which scorer pieces of all rows, and how much."""
        sources: list[int] = []
        places: list[int] = []
        shares: list[float] = []
        first = 0
        for row, (text, tokens) in enumerate(zip(texts, captions, strict=True)):
            for place, own in self._alignment(text, tokens, ids[row]):
                sources += [first + source for source in own]
                places += [row * len(ids[row]) + place] * len(own)
                shares += [1 / len(own)] * len(own)
            first += len(tokens)
        return sources, places, shares

    def _alignment(self, text: str, tokens: list[int], ids: list[int]) -> Iterator[tuple[int, list[int]]]:
        """(place in the scorer's row, places in the caption) of its pieces, as far as both agree on the text."""
        own = self._by_word(tokens)
        theirs = [self._scorer.pieces(word) for word in text.split()]
        if len(own) != len(theirs):
            return
        place = self._start
        for sources, pieces in zip(own, theirs, strict=True):
            one_to_one = len(sources) == len(pieces)
            for number, piece in enumerate(pieces):
                if place == len(ids) or ids[place] != piece:  # the scorer cut the text here
                    return
                yield place, [sources[number]] if one_to_one else sources
                place += 1

    def _by_word(self, tokens: list[int]) -> list[list[int]]:
        """The places of the tokens of each word of the detokenised text."""
        words: list[list[int]] = []
        before = ""
        for place in range(len(tokens)):
            text = self._captioner.detokenize(tokens[: place + 1])
            if text == before:  # a special token, which leaves no trace
                continue
            before = text
            count = len(text.split())
            if count > len(words):
                words.append([])
            while count < len(words):  # "t" and "-" were words until "shirt" made them "t-shirt"
                last = words.pop()
                words[-1] += last
            words[-1].append(place)
        return words

    def _mean_vectors(self, pieces: Sequence[Sequence[int]]) -> Tensor:
        weight = self._embedding.weight.detach()
        rows = [weight[list(row)].mean(0) if row else weight.new_zeros(weight.shape[1]) for row in pieces]
        return torch.stack(rows)

    def _run(self, ids: Tensor, words: Tensor) -> Tensor:
        """The scorer's text encoder with ``words`` (C, L, D) in place of the vectors of ``ids`` (C, L)."""
        handle = self._embedding.register_forward_hook(lambda *_: words)
        try:
            features: Tensor = self._scorer.model.encode_text(ids)
        finally:
            handle.remove()
        return features.float()


def _token_embedding(model: Any) -> nn.Embedding:
    """The word vectors of an open_clip model, whichever kind of text tower it has."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in _WORD_VECTORS:
            return module
    raise CheckpointError("bad_config", "the scorer's text encoder has no word vectors that can be replaced")


def _pieces_of_tokens(scorer: ClipScorer, captioner: TorchCaptioner) -> list[list[int]]:
    """The scorer's pieces for every token of the captioner; none for special tokens and for what it does not know."""
    own, theirs = captioner.vocabulary(), scorer.vocabulary()
    names = {number: piece for piece, number in own.items()}
    shared, unknown = own == theirs, scorer.unknown_piece
    found: list[list[int]] = []
    for token in range(captioner.vocab_size):
        text, name = captioner.detokenize([token]), names.get(token, "")
        if not text or token in (captioner.start_id, captioner.end_id):
            pieces = []
        elif shared or (name.startswith(_CONTINUES) and name in theirs):
            pieces = [theirs[name]]
        else:
            pieces = scorer.pieces(text.removeprefix(_CONTINUES) if name.startswith(_CONTINUES) else text)
        found.append([piece for piece in pieces if piece != unknown])
    return found
