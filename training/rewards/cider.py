"""CIDEr as a reward."""

from collections.abc import Sequence

import torch
from torch import Tensor

from training.metrics.ngram_vectors import Idf, NgramVector, cider_d
from training.metrics.tokenizer import PythonPtbTokenizer
from training.objectives.interface import Resources


class CiderReward:
    """CIDEr-D (Vedantam et al. 2015), 0 to 10, against the picture's own captions; idf from all training captions.

    Tokens are cut in Python: a Java process for every step would take longer than the step.
    """

    def __init__(self, resources: Resources) -> None:
        self._tokenizer = PythonPtbTokenizer()
        tokens = iter(self._tokenizer.tokenize([text for example in resources.examples for text in example.captions]))
        self._references = [[next(tokens) for _ in example.captions] for example in resources.examples]
        self._idf = Idf(self._references)

    def __call__(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> Tensor:
        tokens = iter(self._tokenizer.tokenize([text for of_image in captions for text in of_image]))
        vectors = [[self._idf.vector(next(tokens)) for _ in of_image] for of_image in captions]
        rows = [self._score(image, of_image) for image, of_image in zip(images, vectors, strict=True)]
        return torch.tensor(rows, dtype=torch.float32)

    def _score(self, image: int, captions: Sequence[NgramVector]) -> list[float]:
        references = [self._idf.vector(text) for text in self._references[image]]
        means: list[float] = cider_d(captions, references).mean(axis=1).tolist()
        return means
