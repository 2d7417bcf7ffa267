import math

import pytest

from models.decoding.beam import Beam
from models.decoding.beam_search import merge_groups
from models.decoding.diverse_beam import DiverseBeam
from models.decoding.loop import decode
from models.interfaces import Hypothesis
from tests.models.decoding.test_beam import texts
from tests.models.decoding.toy import ToyCaptioner, random_model, slow_diverse_beam, table

TWO_WORDS = table(
    {
        "": {"a": 0.6, "b": 0.3, ".": 0.1},
        "a": {"c": 0.5, "d": 0.4, ".": 0.1},
        "b": {"c": 0.8, "e": 0.15, ".": 0.05},
    }
)


def diverse(**options: object) -> DiverseBeam:
    return DiverseBeam(DiverseBeam.Options.model_validate(options))


def test_second_group_takes_another_word_when_the_penalty_outweighs_the_gap() -> None:
    """Group 1 takes a, then c. Group 2 sees log .6 - p for a and log .3 for b: it turns to b when p > log 2 = .693.

    After b, group 1 takes c at the same step: log .8 - p = -.92 is still above log .15 = -1.90 for p = .7, and below it
    for p = 1.8.
    """
    captioner = ToyCaptioner(TWO_WORDS)
    for penalty, second in ((0.6, "ad."), (0.7, "bc."), (1.8, "be.")):
        strategy = diverse(beams=2, groups=2, diversity_penalty=penalty)
        (found,) = decode(captioner, captioner.memory, strategy, batch=1, num_captions=2)
        assert texts(captioner, found) == ["ac.", second]
        probabilities = {"ac.": 0.3, "ad.": 0.24, "bc.": 0.24, "be.": 0.045}
        # The reported score holds no penalties.
        assert [h.score for h in found] == pytest.approx([math.log(probabilities[t]) / 3 for t in ("ac.", second)])
        assert [h.logprob for h in found] == pytest.approx([h.score for h in found])


def test_ending_does_not_push_later_groups() -> None:
    captioner = ToyCaptioner(table({"": {"a": 1.0}, "a": {".": 0.9, "b": 0.1}}))
    strategy = diverse(beams=2, groups=2, diversity_penalty=10.0)
    (found,) = decode(captioner, captioner.memory, strategy, batch=1, num_captions=2)
    # Had group 2 paid for ending (log .9 - 10), it would have gone on to b (log .1).
    assert texts(captioner, found) == ["a.", "a."]


def test_groups_finish_independently() -> None:
    """Group 1 ends at once; group 2, pushed off a at the first step, goes on alone and is not pushed off its a's."""
    model = table({"": {"a": 0.6, "b": 0.4}, "b": {"a": 1.0}, "ba": {"a": 1.0}, "baa": {"a": 0.9, ".": 0.1}})
    captioner = ToyCaptioner(model)
    (found,) = decode(
        captioner, captioner.memory, diverse(beams=2, groups=2, diversity_penalty=5.0), batch=1, num_captions=2
    )
    assert sorted(texts(captioner, found)) == ["a.", "baaa."]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"length_penalty": 0.3}, {"early_stopping": True}])
def test_one_group_is_beam_search(seed: int, options: dict[str, object]) -> None:
    captioner = ToyCaptioner(random_model(seed), random_model(seed + 50))
    arguments = {"batch": 2, "num_captions": 3}
    plain = decode(captioner, captioner.memory, Beam(Beam.Options(beams=3, **options)), **arguments)
    grouped = decode(
        captioner, captioner.memory, diverse(beams=3, groups=1, diversity_penalty=0.0, **options), **arguments
    )
    assert grouped == plain


@pytest.mark.parametrize("penalty", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("beams", "groups"), [(2, 2), (4, 2), (6, 3), (6, 2)])
def test_equals_the_slow_twin(beams: int, groups: int, penalty: float) -> None:
    captioner = ToyCaptioner(*(random_model(seed + 100) for seed in range(6)))
    options = {"beams": beams, "groups": groups, "diversity_penalty": penalty, "max_tokens": 7}
    found = decode(captioner, captioner.memory, diverse(**options), batch=6, num_captions=beams)
    for image, hypotheses in enumerate(found):
        expected = slow_diverse_beam(captioner, image, **options)  # type: ignore[arg-type]
        assert sorted(texts(captioner, hypotheses)) == sorted(text for group in expected for text, _ in group)
        scores = {text: score for group in expected for text, score in group}
        assert [h.score for h in hypotheses] == pytest.approx(
            [scores[text] for text in texts(captioner, hypotheses)], rel=1e-5
        )
        leaders = []
        for group in expected:
            leaders += [text for text, _ in group if text not in leaders][:1]
        assert texts(captioner, hypotheses)[: len(leaders)] == sorted(leaders, key=lambda text: -scores[text])


def test_each_groups_best_comes_first_and_repeats_last() -> None:
    def hypothesis(token: int, score: float) -> Hypothesis:
        return Hypothesis((token,), score, score, "stop")

    first = [hypothesis(1, -0.1), hypothesis(2, -0.2)]
    second = [hypothesis(1, -0.1), hypothesis(3, -0.9)]  # its best is the first group's: its next one stands for it
    third = [hypothesis(2, -0.2), hypothesis(4, -0.3)]  # the first group's second stands for this one
    merged = merge_groups([first, second, third])
    assert [(h.tokens[0], h.score) for h in merged] == [
        (1, -0.1),
        (2, -0.2),
        (3, -0.9),
        (4, -0.3),
        (1, -0.1),
        (2, -0.2),
    ]
