"""The fused path against its slow twin, the modules of transformers."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.device import cpu_has_int8
from models.families.blip import BlipCaptioner
from models.families.fused.decoder import FusedDecoder
from models.families.transformers_captioner import TransformersCaptioner
from models.families.vision_encoder_decoder import VisionEncoderDecoderCaptioner
from models.interfaces import DecodeState
from tests.models.families.generate import pixels_of
from tests.models.families.tiny_models import PROMPTS

KINDS: dict[str, type[TransformersCaptioner]] = {
    "blip_folder": BlipCaptioner,
    "vit_gpt2_folder": VisionEncoderDecoderCaptioner,
    "vit_bert_folder": VisionEncoderDecoderCaptioner,
}
STRATEGIES: list[dict[str, Any]] = [
    {"name": "greedy"},
    {"name": "beam", "options": {"beams": 4}},
    {"name": "diverse_beam", "options": {"beams": 4, "groups": 2, "diversity_penalty": 1.0}},
    {"name": "sample", "options": {"seed": 3, "temperature": 1.3}},
]


@pytest.fixture(params=sorted(KINDS))
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A captioner and its slow twin."""
    folder: Path = request.getfixturevalue(request.param)
    kind = KINDS[request.param]
    fast, slow = kind.load(str(folder)), kind.load(str(folder))
    slow.fused = False
    return fast, slow


@pytest.mark.parametrize("raw", STRATEGIES)
@pytest.mark.parametrize("prompts", [None, [*PROMPTS, ""]])
@torch.no_grad()
def test_captions_equal_those_of_the_modules(
    pair: tuple[Any, Any], raw: dict[str, Any], prompts: list[str] | None
) -> None:
    pixels = pixels_of(pair[0], 4)
    strategy = parse_decode({**raw, "options": {"max_tokens": 12} | raw.get("options", {})})
    count = 2 if raw["name"] in ("beam", "sample", "diverse_beam") else 1
    fast, slow = (
        decode(one, one.encode(pixels), strategy, batch=4, prompts=prompts, num_captions=count) for one in pair
    )
    assert [[h.tokens for h in image] for image in fast] == [[h.tokens for h in image] for image in slow]
    for quick, exact in zip(fast, slow, strict=True):
        assert [h.logprob for h in quick] == pytest.approx([h.logprob for h in exact], abs=1e-4)


@torch.no_grad()
def test_modules_do_not_run(pair: tuple[Any, Any]) -> None:
    fast, _ = pair
    state, _ = fast.start(fast.encode(pixels_of(fast, 1)))
    assert isinstance(state.extra["decoder"], FusedDecoder)
    handles = [
        module.register_forward_pre_hook(lambda *_: pytest.fail("a module ran"))
        for module in fast.decoder.base_model.modules()
        if list(module.parameters())
    ]
    fast.step(state, torch.tensor([5]))
    for handle in handles:
        handle.remove()


@torch.no_grad()
def test_memory_is_held_once_per_image_and_rows_grow_by_blocks(pair: tuple[Any, Any]) -> None:
    fast, slow = pair
    memory = fast.encode(pixels_of(fast, 2))
    states = [one.start(memory)[0] for one in (fast, slow)]
    widened = torch.tensor([0, 0, 0, 1, 1, 1])
    for one, state in zip(pair, states, strict=True):
        one.reorder(state, widened)
    assert {keys_values.shape[1] for keys_values in states[0].memory} == {2}
    before = [keys_values.data_ptr() for keys_values in states[0].memory]
    for step in range(20):
        tokens = torch.arange(6) + step % 7 + 5
        logits = [one.step(state, tokens) for one, state in zip(pair, states, strict=True)]
        torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-4)
        rows = torch.tensor([2, 0, 1, 3, 5, 3] if step % 3 else [0, 1, 2, 3, 4, 5])
        for one, state in zip(pair, states, strict=True):
            one.reorder(state, rows)
    assert [keys_values.data_ptr() for keys_values in states[0].memory] == before
    assert states[0].cache.keys_values.shape[1:3] == (6, 32)


@torch.no_grad()
def test_changed_weights_are_noticed(pair: tuple[Any, Any]) -> None:
    fast, slow = pair
    memory = fast.encode(pixels_of(fast, 1))
    before = fast.start(memory)[1]
    assert torch.equal(fast.start(memory)[1], before)
    for one in pair:
        next(one.decoder.parameters()).mul_(0.5)
    torch.testing.assert_close(fast.start(memory)[1], slow.start(memory)[1], rtol=1e-4, atol=1e-4)

    name, weight = next(
        (name, tensor)
        for name, tensor in fast.model.state_dict().items()
        if "decoder" in name and name.endswith(("attn.c_proj.weight", "output.dense.weight"))
    )
    twins = [one.with_weights({name: weight * 3}) for one in pair]
    torch.testing.assert_close(twins[0].start(memory)[1], twins[1].start(memory)[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast.start(memory)[1], slow.start(memory)[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(twins[0].start(memory)[1], fast.start(memory)[1], atol=1e-4)


@torch.no_grad()
def test_a_state_goes_on_with_the_weights_that_began_it(pair: tuple[Any, Any]) -> None:
    fast, _ = pair
    memory = fast.encode(pixels_of(fast, 1))
    state, _ = fast.start(memory)
    other = copy.deepcopy(fast)
    expected = other.step(other.start(memory)[0], torch.tensor([5]))
    for parameter in other.parameters():
        parameter.zero_()
    other.start(memory)
    torch.testing.assert_close(fast.step(state, torch.tensor([5])), expected)


def test_gradients_and_training_take_the_modules(pair: tuple[Any, Any]) -> None:
    fast, _ = pair
    pixels = pixels_of(fast, 1)
    memory = fast.encode(pixels)
    assert memory.requires_grad
    state, logits = fast.start(memory)
    assert logits.requires_grad
    assert "decoder" not in state.extra
    with torch.no_grad():
        before = fast.start(memory)[1]
    fast.train()
    with torch.no_grad():
        assert "decoder" not in fast.start(memory)[0].extra
    for parameter in fast.decoder.parameters():
        parameter.data.mul_(0.5)  # in a way that torch does not count
    with torch.no_grad():
        assert not torch.allclose(fast.eval().start(memory)[1], before, atol=1e-3)


def drive(captioner: Any, state: DecodeState, tokens: Tensor) -> list[Tensor]:
    """Logits after each column of ``tokens`` (R, T)."""
    return [captioner.step(state, column) for column in tokens.unbind(1)]


@torch.no_grad()
def test_images_join_and_leave(pair: tuple[Any, Any]) -> None:
    """Three images, K = 2: the second and third join after four steps with prompts of their own, then two leave."""
    fast, slow = pair
    memory = fast.encode(pixels_of(fast, 3))
    tokens = torch.randint(5, 20, (6, 8), generator=torch.Generator().manual_seed(1))
    alone = []
    for image, prompt in enumerate(["", "a big dog", "the old"]):
        state, _ = slow.start(memory[image : image + 1], [prompt])
        slow.reorder(state, torch.tensor([0, 0]))
        alone.append(drive(slow, state, tokens[2 * image : 2 * image + 2]))

    early, _ = fast.start(memory[:1])
    late, _ = fast.start(memory[1:], ["a big dog", "the old"])
    fast.reorder(early, torch.tensor([0, 0]))
    fast.reorder(late, torch.tensor([0, 0, 1, 1]))
    drive(fast, early, tokens[:2, :4])
    state = fast.merge([early, late])
    joint = torch.cat((tokens[:2, 4:6], tokens[2:, :2]))
    for step, logits in enumerate(drive(fast, state, joint)):
        for image, offset in enumerate((4, 0, 0)):
            torch.testing.assert_close(
                logits[2 * image : 2 * image + 2], alone[image][step + offset], rtol=1e-4, atol=1e-4
            )

    assert min(state.cache.padding) == 0
    fast.keep(state, torch.tensor([2, 1]))
    assert min(state.cache.padding) == 0  # what lined them up with the first is gone
    assert {keys_values.shape[1] for keys_values in state.memory} == {2}
    rest = torch.cat((tokens[4:, 2:6], tokens[2:4, 2:6]))
    for step, logits in enumerate(drive(fast, state, rest)):
        for place, image in enumerate((2, 1)):
            torch.testing.assert_close(logits[2 * place : 2 * place + 2], alone[image][step + 2], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not cpu_has_int8(), reason="needs a processor with AVX-512 VNNI")
@torch.no_grad()
def test_int8_drifts_little_and_rows_do_not_change_each_other(pair: tuple[Any, Any], tmp_path: Path) -> None:
    _, slow = pair
    slow.save(tmp_path / "saved")
    quantised = type(slow).load(str(tmp_path / "saved"), dtype=torch.int8)
    assert quantised.dtype in (torch.float32, torch.bfloat16)
    words = slice(5, 30)
    pixels = pixels_of(slow, 4)
    memory = quantised.encode(pixels)
    exact = slow.start(slow.encode(pixels))[1][:, words]
    logits = quantised.start(memory)[1][:, words]
    assert float((logits - exact).std() / exact.std()) < 0.1
    alone = torch.cat([quantised.start(memory[image : image + 1])[1][:, words] for image in range(4)])
    torch.testing.assert_close(alone, logits, rtol=1e-3, atol=1e-3 if quantised.dtype == torch.float32 else 0.05)


@torch.no_grad()
def test_bf16_drifts_little(pair: tuple[Any, Any]) -> None:
    fast, slow = pair
    pixels = pixels_of(fast, 4)
    words = slice(5, 30)  # not the special tokens, which a bias keeps away
    exact = slow.start(slow.encode(pixels))[1][:, words]
    rounded = fast.to(torch.bfloat16)
    logits = rounded.start(rounded.encode(pixels))[1][:, words]
    assert float((logits - exact).std() / exact.std()) < 0.05
