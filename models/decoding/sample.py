"""Sampling: captions drawn at random from what the model predicts."""

from pydantic import Field, field_validator

from models.decoding.options import SharedOptions
from models.decoding.strategy import Plan, Search, Strategy


class Sample(Strategy):
    """Temperature, then top-k, then top-p, as ``transformers`` orders them.

    Caption i of an image with seed s uses the i-th stream of random numbers of s, one number per token: the same
    whatever batch the image travels in and however many captions are asked for.
    """

    name = "sample"

    class Options(SharedOptions):
        temperature: float = Field(default=1.0, ge=0.01, le=100.0)
        top_k: int = Field(default=0, ge=0)
        """Draw from the k most probable tokens; 0: from all."""
        top_p: float = Field(default=1.0, gt=0.0, le=1.0)
        """Draw from the fewest most probable tokens that hold this share of the probability."""
        seed: int | None = Field(default=None, ge=0, le=2**63 - 1)
        """None: another one at every call."""

        @field_validator("temperature", mode="before")
        @classmethod
        def _zero_is_greedy(cls, value: object) -> object:
            if not isinstance(value, bool) and value == 0:
                raise ValueError("for temperature 0 use the strategy 'greedy'")
            return value

    options: Options

    @property
    def most_captions(self) -> None:
        return None

    @property
    def seed(self) -> int | None:
        return self.options.seed

    def group_key(self) -> tuple[str, SharedOptions, float]:
        return (self.name, self.options.model_copy(update={"seed": None}), self.guidance)

    def begin(self, plan: Plan) -> Search:
        from models.decoding.sampling import sample_search  # deferred: loads torch

        options = self.options
        return sample_search(plan, options, options.temperature, options.top_k, options.top_p)
