"""Beam search: the captions with the best total score among those that ``beams`` parallel rows reach."""

from pydantic import Field

from models.decoding.options import SharedOptions
from models.decoding.strategy import Plan, Search, Strategy


class Beam(Strategy):
    """Token for token what ``transformers`` 5.24 gives for ``num_beams=beams``.

    A caption's score is the sum of its processed log-probabilities / tokens ** length_penalty, the end token counted.
    """

    name = "beam"

    class Options(SharedOptions):
        beams: int = Field(default=3, ge=1, le=64)
        length_penalty: float = Field(default=1.0, ge=-10.0, le=10.0)
        """Above 0 favours long captions, below 0 short ones."""
        early_stopping: bool = False
        """Stop as soon as ``beams`` captions are finished, even if an open one could still win."""

    options: Options

    @property
    def most_captions(self) -> int:
        return self.options.beams

    def begin(self, plan: Plan) -> Search:
        from models.decoding.beam_group import BeamGroup  # deferred: loads torch
        from models.decoding.beam_search import BeamSearch

        options = self.options
        group = BeamGroup(plan, options.beams, options.length_penalty, options.early_stopping)
        return BeamSearch(plan, options, [group])
