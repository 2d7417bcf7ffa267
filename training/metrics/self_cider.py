"""SelfCIDEr: how spread the captions of an image are in the space of their n-grams."""

from __future__ import annotations

import math

import numpy as np

from training.metrics.candidates import SetOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric
from training.metrics.ngram_vectors import Idf, cider

# Eigenvalues of a matrix of rank one come out of the solver as small as this share of the greatest.
_ZERO = 1e-12


class SelfCider(ImageMetric):
    """SelfCIDEr (Wang and Chan 2019) on plain CIDEr, as in COS-CVAE and UNKT; more is more diverse."""

    needs = frozenset({"candidates", "references"})

    class Options(SetOptions):
        """Those of every metric of caption sets."""

    def definitions(self) -> dict[str, Definition]:
        text = (
            "mean over images of SelfCIDEr on plain CIDEr between captions, idf from the references of this very split"
        )
        return {"self_cider": Definition(f"{text}, {self.options.words}; 0..1", 1.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.tokenized is not None
        idf = Idf(inputs.tokenized.references)
        sets = self.options.sets(inputs)
        kernels = (cider([idf.vector(caption) for caption in captions]) for captions in sets)
        return {"self_cider": [self_cider_of(kernel) for kernel in kernels]}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        if len(inputs.captions) > 1:
            return ()
        return ("SelfCIDEr of a single image is 0 by definition: the idf of a corpus of one document is 0",)


def self_cider_of(kernel: np.ndarray) -> float:
    """-ln r / ln m of the similarities (m, m) of m captions, where r is the share that the greatest eigenvalue's root
    has of the sum of all roots: 0 where all captions are the same, 1 where none shares anything with another."""
    eigenvalues = np.linalg.eigvalsh(kernel).clip(min=0)
    greatest = eigenvalues[-1]
    if greatest == 0:  # no caption has an n-gram that weighs anything
        return 0.0
    roots = np.sqrt(np.where(eigenvalues > _ZERO * greatest, eigenvalues, 0))
    share = math.sqrt(greatest) / float(roots.sum())
    return abs(math.log(share)) / math.log(len(kernel))
