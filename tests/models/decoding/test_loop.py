import math
from typing import Any

import pytest
import torch
from torch import Tensor

from models.decoding import STRATEGIES, parse_decode
from models.decoding.loop import decode
from models.errors import RequestError
from models.interfaces import DecodeState
from tests.models.decoding.test_beam import texts
from tests.models.decoding.toy import ToyCaptioner, random_model, table

OPTION_SETS = [
    {"name": "greedy"},
    {"name": "greedy", "options": {"repetition_penalty": 1.5, "min_tokens": 4}},
    {"name": "beam", "options": {"beams": 4, "no_repeat_ngram": 2}},
    {"name": "beam", "options": {"beams": 4, "no_stutter": 3}},
    {"name": "beam", "options": {"beams": 2, "early_stopping": True, "min_tokens": 3, "repetition_penalty": 1.2}},
    {"name": "diverse_beam", "options": {"beams": 4, "groups": 2, "no_repeat_ngram": 1}},
    {"name": "sample", "options": {"seed": 1, "top_k": 4, "temperature": 1.5, "no_repeat_ngram": 1}},
]


@pytest.mark.parametrize("raw", OPTION_SETS)
@pytest.mark.parametrize("prompts", [None, ["ab", "", "c", "abcde", "a"]])
def test_captions_do_not_depend_on_the_batch(raw: dict[str, Any], prompts: list[str] | None) -> None:
    models = [random_model(seed + 20) for seed in range(5)]
    strategy = parse_decode({"name": raw["name"], "options": {"max_tokens": 12} | raw.get("options", {})})
    captioner = ToyCaptioner(*models, max_positions=15)
    together = decode(captioner, captioner.memory, strategy, batch=5, prompts=prompts)
    for image, model in enumerate(models):
        alone = ToyCaptioner(model, max_positions=15)
        prompt = None if prompts is None else [prompts[image]]
        assert decode(alone, alone.memory, strategy, batch=1, prompts=prompt) == [together[image]]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_prompts_are_continued_but_not_returned(name: str) -> None:
    captioner = ToyCaptioner(
        table({"ab": {"c": 1.0}, "d": {"e": 1.0}, "": {"f": 1.0}}), *[table({"d": {"e": 1.0}})] * 2
    )
    found = decode(captioner, captioner.memory, parse_decode({"name": name}), batch=3, prompts=["ab", "d", "a"])
    assert [texts(captioner, hypotheses[:1]) for hypotheses in found] == [["c."], ["e."], ["."]]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_repeats_of_the_prompt_count(name: str) -> None:
    captioner = ToyCaptioner(table({}, {"a": 0.5, "b": 0.3, "c": 0.15, ".": 0.05}))
    strategy = parse_decode({"name": name, "options": {"no_repeat_ngram": 1}})
    found = decode(captioner, captioner.memory, strategy, batch=1, prompts=["ab"])
    assert "a" not in texts(captioner, found[0])[0]
    assert "b" not in texts(captioner, found[0])[0]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_min_tokens_are_new_tokens(name: str) -> None:
    captioner = ToyCaptioner(table({}, {".": 0.7, "a": 0.3}))
    strategy = parse_decode({"name": name, "options": {"min_tokens": 3, "max_tokens": 6}})
    ((found, *_),) = decode(captioner, captioner.memory, strategy, batch=1, prompts=["bb"])
    assert texts(captioner, [found])[0].startswith("aaa")
    if name != "sample":
        # The ban on ending is no part of the model's own distribution.
        assert found.logprob == pytest.approx((3 * math.log(0.3) + math.log(0.7)) / 4)


def test_penalties_do_not_touch_logprob() -> None:
    captioner = ToyCaptioner(table({"": {"a": 0.6, "b": 0.4}, "a": {"a": 0.8, "b": 0.2}}))
    for raw in ({"name": "greedy"}, {"name": "beam", "options": {"beams": 1}}):
        strategy = parse_decode({"name": raw["name"], "options": {**raw.get("options", {}), "no_repeat_ngram": 1}})  # type: ignore[dict-item]
        ((found,),) = decode(captioner, captioner.memory, strategy, batch=1)
        assert texts(captioner, [found]) == ["ab."]
        assert found.logprob == pytest.approx(math.log(0.6 * 0.2) / 3)


@pytest.mark.parametrize(
    ("raw", "most"),
    [
        ({"name": "greedy"}, 1),
        ({"name": "beam", "options": {"beams": 4}}, 4),
        ({"name": "diverse_beam", "options": {"beams": 4, "groups": 2}}, 4),
    ],
)
def test_number_of_captions(raw: dict[str, object], most: int) -> None:
    captioner, strategy = ToyCaptioner(random_model(3)), parse_decode(raw)
    (found,) = decode(captioner, captioner.memory, strategy, batch=1, num_captions=most)
    assert len(found) == most
    assert strategy.rows(1) == most
    with pytest.raises(RequestError, match=f"num_captions {most + 1} is more than the {most}") as caught:
        decode(captioner, captioner.memory, strategy, batch=1, num_captions=most + 1)
    assert caught.value.code == "invalid_request"
    with pytest.raises(RequestError, match="at least 1, not 0"):
        strategy.rows(0)


def test_limit_shrinks_to_what_the_positions_hold() -> None:
    captioner = ToyCaptioner(*[table({}, {"a": 1.0})] * 2, max_positions=8)
    found = decode(captioner, captioner.memory, parse_decode({"name": "greedy"}), batch=2, prompts=["abcdef", ""])
    # 8 positions: the start token, the prompt, and the rest for the caption.
    assert [texts(captioner, hypotheses) for hypotheses in found] == [["a"], ["aaaaaaa"]]
    assert {h.finish_reason for hypotheses in found for h in hypotheses} == {"length"}
    with pytest.raises(RequestError, match="more than the 6 tokens"):
        decode(captioner, captioner.memory, parse_decode(None), batch=2, prompts=["abcdefa", ""])


def test_prompts_need_the_capability() -> None:
    captioner = ToyCaptioner(random_model(1))
    captioner.capabilities = frozenset()
    with pytest.raises(RequestError) as caught:
        decode(captioner, captioner.memory, parse_decode(None), batch=1, prompts=["a"])
    assert caught.value.code == "unsupported_option"
    assert decode(captioner, captioner.memory, parse_decode(None), batch=1, prompts=[""])


def test_half_precision_logits_are_scored_in_fp32() -> None:
    class HalfToy(ToyCaptioner):
        def _logits(self, state: DecodeState) -> Tensor:
            return super()._logits(state).bfloat16()

    captioner = HalfToy(table({"": {"a": 0.6, "b": 0.4}}))
    ((found,),) = decode(captioner, captioner.memory, parse_decode({"name": "greedy"}), batch=1)
    logits = torch.tensor(captioner.logprobs(0, "")).bfloat16().float()
    expected = float(logits.log_softmax(dim=0)[1])
    assert found.logprob * 2 == pytest.approx(expected, abs=1e-6)
