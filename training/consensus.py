"""Captions by their agreement with the others of their picture (after Phan et al. 2017, consensus-based training)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.data import Example
from training.metrics.ngram_vectors import Idf, cider_d
from training.metrics.tokenizer import PythonPtbTokenizer


def keep_agreeing(examples: Sequence[Example], most: int) -> tuple[Example, ...]:
    """The examples with the ``most`` captions of each that agree best with its others, in their order.

    The paper weights each caption by its agreement; leaving out those that nobody else would write is the hard form.
    """
    kept = []
    for example, scores in zip(examples, agreement(examples), strict=True):
        chosen = sorted(np.argsort([-score for score in scores], kind="stable")[:most])
        kept.append(replace(example, captions=tuple(example.captions[number] for number in chosen)))
    return tuple(kept)


def agreement(examples: Sequence[Example]) -> list[list[float]]:
    """CIDEr-D (0..10) of every caption against the others of its picture; 0 where there is no other.

    The idf is that of all captions of the examples. Tokens are cut in Python, so that Java is not needed.
    """
    tokens = iter(PythonPtbTokenizer().tokenize([text for example in examples for text in example.captions]))
    texts = [[next(tokens) for _ in example.captions] for example in examples]
    idf = Idf(texts)
    return [_leave_one_out(cider_d(vectors, vectors)) for vectors in ([idf.vector(t) for t in of] for of in texts)]


def _leave_one_out(pairs: np.ndarray) -> list[float]:
    """Mean of each row (C, C) without the diagonal."""
    others = len(pairs) - 1
    if not others:
        return [0.0]
    means: list[float] = ((pairs.sum(axis=1) - pairs.diagonal()) / others).tolist()
    return means
