import math

import pytest

from models.decoding.greedy import Greedy
from models.decoding.loop import decode
from tests.models.decoding.test_beam import GARDEN_PATH, texts
from tests.models.decoding.toy import ToyCaptioner, random_model, table


def greedy(**options: object) -> Greedy:
    return Greedy(Greedy.Options.model_validate(options))


def test_takes_the_most_probable_letters() -> None:
    captioner = ToyCaptioner(GARDEN_PATH)
    ((found,),) = decode(captioner, captioner.memory, greedy(), batch=1)
    assert texts(captioner, [found]) == ["ac."]
    assert found.logprob == pytest.approx(math.log(0.6 * 0.4) / 3)
    assert found.finish_reason == "stop"


def test_cut_at_max_tokens() -> None:
    captioner = ToyCaptioner(table({}, {"a": 0.9, ".": 0.1}))
    ((found,),) = decode(captioner, captioner.memory, greedy(max_tokens=5), batch=1)
    assert (texts(captioner, [found]), found.finish_reason) == (["aaaaa"], "length")
    assert found.logprob == pytest.approx(math.log(0.9))


def test_an_image_may_have_an_empty_caption() -> None:
    captioner = ToyCaptioner(table({}))
    ((found,),) = decode(captioner, captioner.memory, greedy(), batch=1)
    assert (found.tokens, found.finish_reason) == ((), "stop")
    assert found.logprob == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_equals_a_plain_loop(seed: int) -> None:
    captioner = ToyCaptioner(random_model(seed))
    text, total = "", 0.0
    while len(text) < 9 and not text.endswith("."):
        logprobs = captioner.logprobs(0, text)
        total += max(logprobs)
        text += captioner.letters[logprobs.index(max(logprobs))]
    ((found,),) = decode(captioner, captioner.memory, greedy(max_tokens=9), batch=1)
    assert texts(captioner, [found]) == [text]
    assert found.logprob == pytest.approx(total / len(text), rel=1e-5)
