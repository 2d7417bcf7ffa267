"""Diverse beam search (Vijayakumar et al. 2016): groups of beams that keep away from each other's words."""

from typing import Self

from pydantic import Field, model_validator

from models.decoding.options import SharedOptions
from models.decoding.strategy import Plan, Search, Strategy


class DiverseBeam(Strategy):
    """``groups`` beam searches of ``beams / groups`` beams each, one after the other at every step.

    Decisions where the paper and its implementations leave room:

    - Before a group chooses, each token's log-probability falls by ``diversity_penalty`` times the number of beams of
      earlier groups of the same image that go on with that token at this step (Hamming diversity). Beams that end at
      this step do not count: the end token is no word, and a penalty on it would only make later groups run on.
    - The penalties stay in a beam's running total, as in the authors' code; all choices within a group (pruning,
      finishing, stopping) use this augmented score.
    - The reported ``score`` and the returned order use the score without penalties: each group's best caption first,
      ordered by score, then the rest by score. A caption that an earlier group already gave does not stand for a later
      group and comes last.
    - Groups finish independently; a finished group no longer pushes the others. One group is ``beam`` exactly.
    """

    name = "diverse_beam"

    class Options(SharedOptions):
        beams: int = Field(default=6, ge=1, le=64)
        groups: int = Field(default=3, ge=1, le=64)
        diversity_penalty: float = Field(default=0.5, ge=0.0, le=100.0)
        length_penalty: float = Field(default=1.0, ge=-10.0, le=10.0)
        early_stopping: bool = False

        @model_validator(mode="after")
        def _groups_divide_beams(self) -> Self:
            if self.beams % self.groups:
                raise ValueError(f"groups {self.groups} does not divide beams {self.beams}")
            return self

    options: Options

    @property
    def most_captions(self) -> int:
        return self.options.beams

    def begin(self, plan: Plan) -> Search:
        from models.decoding.beam_group import BeamGroup  # deferred: loads torch
        from models.decoding.beam_search import BeamSearch

        options = self.options
        beams = options.beams // options.groups
        groups = [BeamGroup(plan, beams, options.length_penalty, options.early_stopping) for _ in range(options.groups)]
        return BeamSearch(plan, options, groups, options.diversity_penalty)
