"""Caption length."""

from __future__ import annotations

from models.text_stats import word_count
from training.metrics.caption_text import TextOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class Length(ImageMetric):
    """Mean number of words, as in SMILE (Yue et al. 2023): white-space tokens, lone punctuation not counted."""

    class Options(TextOptions):
        """Those of every metric of caption texts."""

    def definitions(self) -> dict[str, Definition]:
        text = f"mean number of words of a caption; punctuation is no word{self.options.words}"
        return {"mean_words": Definition(text, over_images="mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        return {"mean_words": [float(word_count(caption)) for caption in self.options.captions(inputs)]}
