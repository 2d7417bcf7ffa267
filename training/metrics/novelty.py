"""Share of captions that no training image has."""

from __future__ import annotations

from models.text_stats import words
from training.metrics.caption_text import TextOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class Novelty(ImageMetric):
    """Captions not found among the training captions, as in Lindh et al. (2018): equal captions all count."""

    needs = frozenset({"training_captions"})

    class Options(TextOptions):
        """Those of every metric of caption texts."""

    def definitions(self) -> dict[str, Definition]:
        text = (
            f"share of captions that are no training caption, compared as lower-cased words{self.options.words}; 0..1"
        )
        return {"novelty": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.training_captions is not None
        known = {_key(caption) for captions in inputs.training_captions for caption in captions}
        return {"novelty": [float(_key(caption) not in known) for caption in self.options.captions(inputs)]}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        assert inputs.training_captions is not None
        return (f"{sum(map(len, inputs.training_captions))} training captions",)


def _key(caption: str) -> tuple[str, ...]:
    return tuple(words(caption.lower()))
