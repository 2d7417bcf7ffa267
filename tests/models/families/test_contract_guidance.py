"""What every family owes to guidance: two memories side by side, or a refusal."""

from typing import Any

import pytest
import torch

from models.decoding import STRATEGIES, parse_decode
from models.decoding.loop import decode
from models.decoding.strategy import Strategy
from models.errors import RequestError
from models.families import FAMILIES
from models.interfaces import Hypothesis
from models.lookup import resolve
from tests.models.families.test_contract import BUILDERS, pixels_of, teacher_rows

GUIDED = ["compact"]
"""Families with a null memory."""
MAX_TOKENS = 8


@pytest.fixture(params=sorted(BUILDERS))
def captioner(request: pytest.FixtureRequest) -> Any:
    folder = BUILDERS[request.param](request)
    return resolve("captioner family", FAMILIES, request.param).load(str(folder or ""), device="cpu")


guided_families = pytest.mark.parametrize("captioner", GUIDED, indirect=True)
every_strategy = pytest.mark.parametrize("name", sorted(STRATEGIES))


def strategy_of(name: str, guidance: float) -> Strategy:
    return parse_decode({"name": name, "options": {"max_tokens": MAX_TOKENS}, "guidance": guidance})


def slow_logprobs(captioner: Any, memory: torch.Tensor, tokens: list[int], guidance: float) -> torch.Tensor:
    """(T + 1, V) after the start and each token, from two teacher-forced passes over the whole caption."""
    inputs = teacher_rows(captioner, torch.tensor([tokens], dtype=torch.long))
    both = (memory, captioner.null_memory(1))
    given, null = (captioner.forward_teacher(m, inputs, torch.ones_like(inputs)).logits[0] for m in both)
    return (null + guidance * (given - null)).log_softmax(dim=-1)


@torch.no_grad()
def test_guidance_as_declared(captioner: Any) -> None:
    assert ("null_memory" in captioner.capabilities) == (captioner.family in GUIDED)
    memory = captioner.encode(pixels_of(captioner, 2))
    strategy = strategy_of("beam", 1.5)
    if captioner.family in GUIDED:
        assert len(decode(captioner, memory, strategy, batch=2)) == 2
        return
    with pytest.raises(RequestError, match=f"{captioner.family!r} cannot caption without a picture") as caught:
        decode(captioner, memory, strategy, batch=2)
    assert caught.value.code == "unsupported_option"
    assert decode(captioner, memory, strategy_of("beam", 1.0), batch=2)


@guided_families
@torch.no_grad()
@pytest.mark.parametrize("guidance", [0.5, 2.0])
def test_greedy_takes_the_best_of_two_teacher_forced_passes(captioner: Any, guidance: float) -> None:
    memory = captioner.encode(pixels_of(captioner, 2))
    found = decode(captioner, memory, strategy_of("greedy", guidance), batch=2)
    plain = decode(captioner, memory, strategy_of("greedy", 1.0), batch=2)
    assert [hypotheses[0].tokens for hypotheses in found] != [hypotheses[0].tokens for hypotheses in plain]
    for image, (hypothesis,) in enumerate(found):
        tokens: list[int] = []
        while len(tokens) < MAX_TOKENS and captioner.end_id not in tokens:
            logprobs = slow_logprobs(captioner, memory[image : image + 1], tokens, guidance)
            tokens.append(int(logprobs[-1].argmax()))
        assert hypothesis.tokens == tuple(token for token in tokens if token != captioner.end_id)


@guided_families
@every_strategy
@torch.no_grad()
def test_logprob_is_of_the_guided_distribution(captioner: Any, name: str) -> None:
    memory = captioner.encode(pixels_of(captioner, 1))
    count = 1 if name == "greedy" else 3
    (found,) = decode(captioner, memory, strategy_of(name, 2.0), batch=1, num_captions=count, seeds=[1])
    assert len(found) == count
    for hypothesis in found:
        targets = torch.tensor([*hypothesis.tokens, *[captioner.end_id] * (hypothesis.finish_reason == "stop")])
        logprobs = slow_logprobs(captioner, memory, targets[:-1].tolist(), 2.0)
        expected = logprobs.gather(1, targets.unsqueeze(1)).mean()
        assert hypothesis.logprob == pytest.approx(float(expected), abs=1e-4)


@guided_families
@every_strategy
@torch.no_grad()
def test_captions_do_not_depend_on_the_batch(captioner: Any, name: str) -> None:
    memory, strategy = captioner.encode(pixels_of(captioner, 3)), strategy_of(name, 2.0)
    together = decode(captioner, memory, strategy, batch=3, seeds=[1, 2, 3])
    for image in range(3):
        alone = decode(captioner, memory[image : image + 1], strategy, batch=1, seeds=[image + 1])
        assert _tokens(alone) == _tokens(together[image : image + 1])


@guided_families
@every_strategy
@torch.no_grad()
def test_guidance_0_gives_every_picture_the_same_caption(captioner: Any, name: str) -> None:
    memory = captioner.encode(pixels_of(captioner, 3))
    one, *others = _tokens(decode(captioner, memory, strategy_of(name, 0.0), batch=3, seeds=[1] * 3))
    assert others == [one, one]
    pictures = _tokens(decode(captioner, memory, strategy_of(name, 1.0), batch=3, seeds=[1] * 3))
    assert pictures != [one, one, one]


def _tokens(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]
