"""Div-1 and Div-2: how many different n-grams the captions of an image have."""

from __future__ import annotations

from training.metrics.candidates import SetOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric

_ORDERS = (1, 2)


class Div(ImageMetric):
    """Distinct n-grams of an image's captions by their words, as in COS-CVAE and UNKT; more is more diverse."""

    needs = frozenset({"candidates"})

    class Options(SetOptions):
        """Those of every metric of caption sets."""

    def definitions(self) -> dict[str, Definition]:
        text = f"of {self.options.words} of an image / number of their words, mean over images; 0..1"
        return {f"div{n}": Definition(f"distinct {n}-grams {text}", 1.0, "mean") for n in _ORDERS}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        sets = [[caption.split() for caption in captions] for captions in self.options.sets(inputs)]
        return {f"div{n}": [_div(captions, n) for captions in sets] for n in _ORDERS}


def _div(captions: list[list[str]], n: int) -> float:
    """Distinct n-grams, none across two captions, by all words, of which there are as many whatever n is."""
    words = sum(map(len, captions))
    ngrams = {tuple(caption[at : at + n]) for caption in captions for at in range(len(caption) - n + 1)}
    return len(ngrams) / words if words else 0.0
