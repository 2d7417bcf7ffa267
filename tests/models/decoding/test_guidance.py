import math
from typing import Any

import pytest
import torch
from torch import Tensor

from models.decoding import STRATEGIES, parse_decode
from models.decoding.guidance import guide
from models.decoding.loop import decode
from models.errors import RequestError
from models.interfaces import DecodeState, Hypothesis
from tests.models.decoding.test_beam import texts
from tests.models.decoding.test_loop import OPTION_SETS
from tests.models.decoding.toy import Model, ToyCaptioner, random_model, table

PICTURES = [random_model(seed + 40) for seed in range(4)]
NULL = random_model(99)
SAME = {"max_tokens": 8}


def strategy_of(raw: dict[str, Any], guidance: float = 1.0) -> Any:
    return parse_decode({"name": raw["name"], "options": SAME | raw.get("options", {}), "guidance": guidance})


def slow(model: Model, guidance: float) -> Model:
    """The guided distribution letter by letter, up to a factor: p_picture ** g * p_null ** (1 - g)."""

    def guided(text: str) -> dict[str, float]:
        given, null = model(text), NULL(text)
        return {letter: given[letter] ** guidance * null[letter] ** (1 - guidance) for letter in given}

    return guided


def rounded(found: list[list[Hypothesis]]) -> list[list[tuple[object, ...]]]:
    return [[(h.tokens, h.finish_reason, round(h.logprob, 4), round(h.score, 4)) for h in image] for image in found]


def test_two_words_worked_out_by_hand() -> None:
    # With the picture the caption ends at once; without it even more so, which is what guidance 2 takes away:
    # a: .4 ** 2 / .1 = 1.6, the end: .6 ** 2 / .9 = .4, so P(a) = .8. Then both say the end, and the rest cancels out.
    then = {".": 0.9, "a": 0.1}
    picture = table({"": {"a": 0.4, ".": 0.6}}, then)
    captioner = ToyCaptioner(picture, letters=".a", null=table({"": {"a": 0.1, ".": 0.9}}, then))
    found = {}
    for guidance in (1, 2):
        strategy = parse_decode({"name": "greedy", "guidance": guidance})
        ((found[guidance],),) = decode(captioner, captioner.memory, strategy, batch=1)
    assert [texts(captioner, [found[guidance]]) for guidance in (1, 2)] == [["."], ["a."]]
    assert found[1].logprob == pytest.approx(math.log(0.6))
    assert found[2].logprob == pytest.approx((math.log(0.8) + math.log(0.9)) / 2)  # under the guided distribution


def test_logits_move_along_the_difference() -> None:
    logits, null = torch.tensor([[1.0, 3.0]]), torch.tensor([[2.0, 1.0]])
    assert guide(logits, null, 1.5).tolist() == [[0.5, 4.0]]
    assert torch.equal(guide(logits, null, 0.0), null)


@pytest.mark.parametrize("raw", [*OPTION_SETS, {"name": "diverse_beam"}, {"name": "sample", "options": {"seed": 3}}])
@pytest.mark.parametrize("guidance", [0.0, 0.5, 2.5])
@pytest.mark.parametrize("prompts", [None, ["ab", "", "c", "abc"]])
def test_captions_are_those_of_the_guided_distribution(
    raw: dict[str, Any], guidance: float, prompts: list[str] | None
) -> None:
    captioner = ToyCaptioner(*PICTURES, null=NULL)
    twin = ToyCaptioner(*(slow(model, guidance) for model in PICTURES))
    most = 1 if raw["name"] == "greedy" else 2
    asked: dict[str, Any] = {"batch": 4, "prompts": prompts, "num_captions": most}
    found = decode(captioner, captioner.memory[:4], strategy_of(raw, guidance), **asked)
    expected = decode(twin, twin.memory, strategy_of(raw), **asked)
    assert rounded(found) == rounded(expected)


@pytest.mark.parametrize("raw", OPTION_SETS)
def test_captions_do_not_depend_on_the_batch(raw: dict[str, Any]) -> None:
    captioner, strategy = ToyCaptioner(*PICTURES, null=NULL), strategy_of(raw, 2.0)
    together = decode(captioner, captioner.memory[:4], strategy, batch=4, prompts=["a", "", "bc", ""])
    for image, prompt in enumerate(["a", "", "bc", ""]):
        memory = captioner.memory[image : image + 1]
        assert decode(captioner, memory, strategy, batch=1, prompts=[prompt]) == [together[image]]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_guidance_1_runs_nothing_twice(name: str) -> None:
    class NoNull(ToyCaptioner):
        def null_memory(self, batch: int) -> Tensor:
            raise AssertionError("nobody needs it")

    found, steps = [], []
    for raw in ({"name": name}, {"name": name, "guidance": 1}):
        captioner = NoNull(*PICTURES, null=NULL)
        found.append(decode(captioner, captioner.memory[:4], parse_decode(raw), batch=4, seeds=[1, 2, 3, 4]))
        steps.append(captioner.steps)
    assert found[0] == found[1]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_guidance_0_forgets_the_picture(name: str) -> None:
    captioner = ToyCaptioner(*PICTURES, null=NULL)
    found = decode(captioner, captioner.memory[:4], strategy_of({"name": name}, 0.0), batch=4, seeds=[5] * 4)
    alone = ToyCaptioner(NULL)
    assert found == decode(alone, alone.memory, strategy_of({"name": name}), batch=1, seeds=[5]) * 4


@pytest.mark.parametrize("guidance", [0.0, 1.5])
def test_guidance_needs_a_null_memory(guidance: float) -> None:
    captioner = ToyCaptioner(*PICTURES)
    with pytest.raises(RequestError, match=f"decode.guidance {guidance:g}: models of the family 'toy'") as caught:
        decode(captioner, captioner.memory, strategy_of({"name": "beam"}, guidance), batch=4)
    assert caught.value.code == "unsupported_option"
    assert captioner.steps == 0
    assert decode(captioner, captioner.memory, strategy_of({"name": "beam"}, 1.0), batch=4)


def test_half_precision_logits_are_guided_in_fp32() -> None:
    class HalfToy(ToyCaptioner):
        def _logits(self, state: DecodeState) -> Tensor:
            return super()._logits(state).bfloat16()

    captioner = HalfToy(PICTURES[0], null=NULL)
    ((found,),) = decode(captioner, captioner.memory[:1], strategy_of({"name": "greedy"}, 3.0), batch=1)
    both = [torch.tensor(captioner.logprobs(image, "")).bfloat16().float() for image in (0, 1)]
    first = (both[1] + 3 * (both[0] - both[1])).log_softmax(dim=0)
    assert found.tokens[0] == int(first.argmax())
    ((cut,),) = decode(
        captioner,
        captioner.memory[:1],
        parse_decode({"name": "greedy", "options": {"max_tokens": 1}, "guidance": 3}),
        batch=1,
    )
    assert cut.logprob == pytest.approx(float(first.max()), abs=1e-6)
