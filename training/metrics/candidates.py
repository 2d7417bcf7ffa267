"""Sets of captions of one image: what their metrics look at."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from models.errors import DataError
from training.metrics.interface import MetricInputs


class SetOptions(BaseModel):
    """Options of the metrics of caption sets."""

    model_config = ConfigDict(extra="forbid")

    best: int | None = Field(default=None, ge=2)
    """How many captions of each image count, from the first on; None: all."""

    def sets(self, inputs: MetricInputs) -> list[tuple[str, ...]]:
        """The tokenised captions of each image, equally many for all.

        Raises:
            DataError: ``no_data``, an image has fewer than two captions or than ``best``; ``wrong_schema``, images have
                different numbers of captions.
        """
        assert inputs.tokenized is not None and inputs.tokenized.candidates is not None
        sets = inputs.tokenized.candidates
        least = self.best or 2
        for image_id, captions in zip(inputs.image_ids, sets, strict=True):
            if len(captions) < least:
                raise DataError("no_data", f"image {image_id!r} has {len(captions)} captions; {least} are needed")
            if self.best is None and len(captions) != len(sets[0]):
                detail = f"image {image_id!r} has {len(captions)} captions and others {len(sets[0])}; give all as many"
                raise DataError("wrong_schema", f"{detail}, or set the option best")
        return [captions[: self.best] for captions in sets]

    @property
    def words(self) -> str:
        """What definitions say of it."""
        return f"the first {self.best} captions" if self.best else "all captions"
