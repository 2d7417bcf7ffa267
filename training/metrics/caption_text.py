"""The option that the metrics of the caption text alone share."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from models.text_stats import without_repeats
from training.metrics.interface import MetricInputs


class TextOptions(BaseModel):
    """Options of the metrics that Lindh et al. (2018) compute after removing repeated words."""

    model_config = ConfigDict(extra="forbid")

    remove_repeats: bool = False
    """Remove words that equal the one before them."""

    def captions(self, inputs: MetricInputs) -> Sequence[str]:
        """The captions that the metric looks at."""
        return [without_repeats(caption) for caption in inputs.captions] if self.remove_repeats else inputs.captions

    @property
    def words(self) -> str:
        """What definitions say of it."""
        return ", immediate repeats of a word removed" if self.remove_repeats else ""
