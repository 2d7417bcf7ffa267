import itertools
import math

import pytest

from models.decoding.beam import Beam
from models.decoding.loop import decode
from models.interfaces import Hypothesis
from tests.models.decoding.toy import ToyCaptioner, random_model, slow_diverse_beam, table

GARDEN_PATH = table(
    {
        "": {"a": 0.6, "b": 0.4},
        "a": {"c": 0.4, "d": 0.3, ".": 0.3},  # best first letter, but no good way on
        "b": {"e": 0.9, ".": 0.1},
    }
)


def beam(**options: object) -> Beam:
    return Beam(Beam.Options.model_validate(options))


def texts(captioner: ToyCaptioner, hypotheses: list[Hypothesis]) -> list[str]:
    return [captioner.detokenize(h.tokens) + "." * (h.finish_reason == "stop") for h in hypotheses]


def test_two_beams_find_what_greedy_misses() -> None:
    captioner = ToyCaptioner(GARDEN_PATH)
    (found,) = decode(captioner, captioner.memory, beam(beams=2), batch=1, num_captions=2)
    assert texts(captioner, found) == ["be.", "ac."]
    # P(be.) = .4 * .9 * 1 over 3 tokens; P(ac.) = .6 * .4 * 1.
    assert found[0].score == pytest.approx(math.log(0.36) / 3)
    assert found[1].score == pytest.approx(math.log(0.24) / 3)
    assert found[0].logprob == pytest.approx(found[0].score)


def test_one_beam_is_greedy() -> None:
    captioner = ToyCaptioner(GARDEN_PATH)
    assert texts(captioner, decode(captioner, captioner.memory, beam(beams=1), batch=1)[0]) == ["ac."]


def test_length_penalty_weighs_long_captions() -> None:
    # P(.) = .3 in 1 token, P(aaa.) = .7 * .6 * .6 * 1 = .252 in 4
    once = {"a": 0.6, ".": 0.4}
    captioner = ToyCaptioner(table({"": {".": 0.3, "a": 0.7}, "a": once, "aa": once}))
    for penalty, winner in ((0.0, "."), (2.0, "aaa.")):
        found = decode(captioner, captioner.memory, beam(beams=4, length_penalty=penalty), batch=1)
        assert texts(captioner, found[0]) == [winner]


def test_cut_captions_say_so() -> None:
    captioner = ToyCaptioner(table({}, {"a": 0.9, ".": 0.1}))
    (found,) = decode(captioner, captioner.memory, beam(beams=2, max_tokens=3), batch=1, num_captions=2)
    assert [(h.finish_reason, captioner.detokenize(h.tokens)) for h in found] == [("length", "aaa"), ("stop", "aa")]
    assert found[0].logprob == pytest.approx(math.log(0.9))
    assert found[1].logprob == pytest.approx((2 * math.log(0.9) + math.log(0.1)) / 3)


@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_equals_exhaustive_search(seed: int) -> None:
    captioner = ToyCaptioner(random_model(seed, ".ab"), letters=".ab")
    scores = {}
    for length in range(1, 5):
        for word in itertools.product("ab", repeat=length - 1):
            for last in "." if length < 4 else ".ab":
                text = "".join(word) + last
                logprobs = [captioner.logprobs(0, text[:i])[".ab".index(text[i])] for i in range(length)]
                scores[text] = sum(logprobs) / length
    (found,) = decode(captioner, captioner.memory, beam(beams=32, max_tokens=4), batch=1, num_captions=5)
    assert texts(captioner, found) == sorted(scores, key=lambda text: -scores[text])[:5]
    assert [h.score for h in found] == pytest.approx(sorted(scores.values(), reverse=True)[:5])


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("length_penalty", [-0.5, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("beams", [1, 3, 5])
def test_equals_the_slow_twin(beams: int, length_penalty: float, early_stopping: bool) -> None:
    captioner = ToyCaptioner(*(random_model(seed) for seed in range(6)))
    options = {"beams": beams, "length_penalty": length_penalty, "early_stopping": early_stopping, "max_tokens": 8}
    found = decode(captioner, captioner.memory, beam(**options), batch=6, num_captions=beams)
    for image, hypotheses in enumerate(found):
        ((*expected,),) = slow_diverse_beam(captioner, image, **options)  # type: ignore[arg-type]
        assert texts(captioner, hypotheses) == [text for text, _ in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected], rel=1e-5)


def test_stops_when_every_image_is_done() -> None:
    captioner = ToyCaptioner(table({"": {"a": 1.0}}), table({"": {"a": 1.0}, "a": {"b": 1.0}}))
    decode(captioner, captioner.memory, beam(beams=1, max_tokens=40), batch=2)
    assert captioner.steps == 2


def test_gives_fewer_captions_rather_than_repeats() -> None:
    captioner = ToyCaptioner(table({"": {"a": 0.5, ".": 0.5}}), letters=".a")
    (found,) = decode(captioner, captioner.memory, beam(beams=4, max_tokens=1), batch=1, num_captions=4)
    assert sorted(texts(captioner, found)) == [".", "a"]
