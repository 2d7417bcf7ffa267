"""What every family owes to sessions: images that join and leave between steps get the captions that they get alone."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from models.decoding import STRATEGIES, parse_decode
from models.decoding.strategy import Strategy
from models.errors import RequestError
from models.families import FAMILIES
from models.interfaces import Hypothesis
from models.lookup import resolve
from models.pipeline import load_pipeline
from tests.models.decoding.joining import decode_alone, decode_at_random, decode_side_by_side
from tests.models.families.test_contract import BUILDERS, pixels_of
from tests.models.families.tiny_models import images

IMAGES = 7
PROMPTS = ["a", "", "a big dog", "the", "", "the old red cat sits", "a dog"]
BATCH_BY_BATCH = {"vlm"}
"""Families whose images leave one by one but cannot join."""
ONE_BY_ONE = {"vlm", "fake"}
"""Families without products that states could share."""


@pytest.fixture(params=sorted(BUILDERS))
def captioner(request: pytest.FixtureRequest) -> Any:
    folder = BUILDERS[request.param](request)
    return resolve("captioner family", FAMILIES, request.param).load(str(folder or ""), device="cpu")


def same(found: dict[int, list[Hypothesis]], alone: dict[int, list[Hypothesis]]) -> bool:
    """Whether all captions are equal, and their log-probabilities as far as fp32 goes."""
    for image, hypotheses in found.items():
        assert [each.tokens for each in hypotheses] == [each.tokens for each in alone[image]], image
        expected = pytest.approx([each.logprob for each in alone[image]], abs=1e-4)
        assert [each.logprob for each in hypotheses] == expected
    return True


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_captions_do_not_depend_on_who_joins_when(captioner: Any, name: str) -> None:
    if captioner.family in BATCH_BY_BATCH:
        pytest.skip("this family decodes batch by batch")
    memory = captioner.encode(pixels_of(captioner, IMAGES))

    def memories(chosen: Sequence[int]) -> Any:
        return memory[list(chosen)]

    prompts = PROMPTS if "prompt" in captioner.capabilities else None
    guidance = 2.0 if "null_memory" in captioner.capabilities else 1.0
    for options in ({"max_tokens": 10}, {"max_tokens": 10, "no_repeat_ngram": 2, "min_tokens": 3}):
        strategy = parse_decode({"name": name, "options": options, "guidance": guidance})
        case: dict[str, Any] = {"images": IMAGES, "prompts": prompts, "num_captions": 1 if name == "greedy" else 3}
        alone = decode_alone(captioner, memories, strategy, **case)
        for seed in range(3):
            found = decode_at_random(random.Random(seed), captioner, memories, strategy, drops=0.1, **case)
            assert same(found, alone)
            assert len(found) >= IMAGES // 2


def kinds(guidance: float) -> list[tuple[Strategy, int]]:
    """Strategies of 1, 3, 4, 12 and 2 rows, and how many captions are asked of each."""
    raw: list[tuple[dict[str, Any], int]] = [
        ({"name": "greedy"}, 1),
        ({"name": "beam", "options": {"no_repeat_ngram": 2}}, 2),
        ({"name": "diverse_beam", "options": {"beams": 4, "groups": 2}}, 4),
        ({"name": "beam", "options": {"beams": 12}}, 1),
        ({"name": "sample", "guidance": guidance}, 2),
    ]
    return [(parse_decode({**one, "options": {"max_tokens": 9, **one.get("options", {})}}), n) for one, n in raw]


@torch.no_grad()
def test_captions_do_not_depend_on_the_strategies_that_share_their_steps(captioner: Any) -> None:
    memory = captioner.encode(pixels_of(captioner, IMAGES))

    def memories(chosen: Sequence[int]) -> Any:
        return memory[list(chosen)]

    cases = kinds(2.0 if "null_memory" in captioner.capabilities else 1.0)
    strategies, counts = zip(*cases, strict=True)
    alone = [
        decode_alone(captioner, memories, strategy, images=IMAGES, num_captions=count) for strategy, count in cases
    ]
    for seed in range(3):
        found = decode_side_by_side(
            random.Random(seed), captioner, memories, strategies, images=IMAGES, num_captions=counts
        )
        for own, expected in zip(found, alone, strict=True):
            assert same(own, expected) and sorted(own) == list(range(IMAGES))


@torch.no_grad()
def test_states_of_any_age_and_width_take_a_step_together_as_each_by_itself(
    captioner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "shared_steps" not in captioner.capabilities:
        pytest.skip("this family steps one state at a time")
    pixels = pixels_of(captioner, 6)

    def states() -> list[Any]:
        made = []
        for images_of, rows, age in (((0, 1), 1, 0), ((2,), 5, 3), ((3, 4, 5), 2, 1)):
            state, _ = captioner.start(captioner.encode(pixels[list(images_of)]))
            count = len(images_of) * rows
            captioner.reorder(state, torch.arange(len(images_of)).repeat_interleave(rows))
            for step in range(age):
                captioner.step(state, torch.arange(count) + 5 + step)
            made.append(state)
        return made

    apart, together = states(), states()
    for step in range(3):
        tokens = [torch.arange(count) % 7 + 5 + step for count in (2, 5, 6)]
        expected = [captioner.step(state, own) for state, own in zip(apart, tokens, strict=True)]
        with monkeypatch.context() as patched:
            patched.setattr(captioner, "step", None)  # not one by one
            found = captioner.step_together(together, tokens)
        for own, alone in zip(found, expected, strict=True):
            torch.testing.assert_close(own, alone, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_images_leave_a_state(captioner: Any) -> None:
    pixels = pixels_of(captioner, 4)
    state, _ = captioner.start(captioner.encode(pixels))
    captioner.reorder(state, torch.arange(4).repeat_interleave(2))
    captioner.step(state, torch.arange(8) + 5)
    captioner.keep(state, torch.tensor([0, 3, 2]))
    left = captioner.step(state, torch.tensor([5, 6, 7, 8, 9, 10]))
    alone, _ = captioner.start(captioner.encode(pixels[[0, 3, 2]]))
    captioner.reorder(alone, torch.arange(3).repeat_interleave(2))
    captioner.step(alone, torch.tensor([5, 6, 11, 12, 9, 10]))
    torch.testing.assert_close(left, captioner.step(alone, torch.tensor([5, 6, 7, 8, 9, 10])), rtol=1e-4, atol=1e-4)


def test_shared_steps_as_declared(captioner: Any) -> None:
    assert ("shared_steps" in captioner.capabilities) == (captioner.family not in ONE_BY_ONE)


def test_merging_as_declared(captioner: Any) -> None:
    assert ("joining" in captioner.capabilities) == (captioner.family not in BATCH_BY_BATCH)
    if captioner.family in BATCH_BY_BATCH:
        with pytest.raises(RequestError) as refused:
            captioner.merge([])
        assert refused.value.code == "unsupported_option"


@torch.inference_mode()
@pytest.mark.parametrize(
    "raw",
    [
        None,
        {"name": "greedy"},
        {"name": "diverse_beam", "options": {"beams": 12, "groups": 3}},
        {"name": "sample", "guidance": 1.5},  # without top_p: drift of 1e-6 may change who is the last of a thousand
    ],
)
def test_the_bundled_model_captions_alike_whoever_joins(raw: dict[str, Any] | None) -> None:
    pipeline = load_pipeline("concise", scorer=None, device="cpu")
    captioner = pipeline.captioner
    memory: Tensor = captioner.encode(torch.stack([captioner.preprocess(image) for image in images(6, seed=3)]))
    strategy = parse_decode(raw, pipeline.card.decoding)

    def memories(chosen: Sequence[int]) -> Tensor:
        return memory[list(chosen)]

    alone = decode_alone(captioner, memories, strategy, images=6)
    assert same(decode_at_random(random.Random(1), captioner, memories, strategy, images=6), alone)


@torch.inference_mode()
def test_the_bundled_model_captions_alike_whatever_the_others_want() -> None:
    pipeline = load_pipeline("concise", scorer=None, device="cpu")
    captioner = pipeline.captioner
    memory: Tensor = captioner.encode(torch.stack([captioner.preprocess(image) for image in images(4, seed=4)]))

    def memories(chosen: Sequence[int]) -> Tensor:
        return memory[list(chosen)]

    cases = [*kinds(1.5), (parse_decode(None, pipeline.card.decoding), 1)]
    strategies, counts = zip(*cases, strict=True)
    found = decode_side_by_side(random.Random(2), captioner, memories, strategies, images=4, num_captions=counts)
    for (strategy, count), own in zip(cases, found, strict=True):
        assert same(own, decode_alone(captioner, memories, strategy, images=4, num_captions=count))
