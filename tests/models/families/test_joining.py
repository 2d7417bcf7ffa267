"""What every family owes to sessions: images that join and leave between steps get the captions that they get alone."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from models.decoding import STRATEGIES, parse_decode
from models.errors import RequestError
from models.families import FAMILIES
from models.interfaces import Hypothesis
from models.lookup import resolve
from models.pipeline import load_pipeline
from tests.models.decoding.joining import decode_alone, decode_at_random
from tests.models.families.test_contract import BUILDERS, pixels_of
from tests.models.families.tiny_models import images

IMAGES = 7
PROMPTS = ["a", "", "a big dog", "the", "", "the old red cat sits", "a dog"]
BATCH_BY_BATCH = {"vlm"}
"""Families whose images leave one by one but cannot join."""


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
