"""Greedy decoding: the most probable token at every step."""

from models.decoding.options import SharedOptions
from models.decoding.strategy import Plan, Search, Strategy


class Greedy(Strategy):
    """Token for token what ``transformers`` gives for ``num_beams=1, do_sample=False``."""

    name = "greedy"

    class Options(SharedOptions):
        pass

    options: Options

    @property
    def most_captions(self) -> int:
        return 1

    def begin(self, plan: Plan) -> Search:
        from models.decoding.row_search import RowSearch  # deferred: loads torch

        return RowSearch(plan, self.options, lambda scores, _numbers: scores.argmax(dim=-1))
