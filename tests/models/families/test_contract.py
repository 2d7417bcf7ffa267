"""What every family owes the rest of the project. A new family adds a builder of a tiny captioner to ``BUILDERS``."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import RequestError
from models.families import FAMILIES
from models.interfaces import Captioner, DecodeState
from models.lookup import resolve
from tests.models.families.compact.tiny import save_compact
from tests.models.families.tiny_models import images

METHODS = "load preprocess encode null_memory start step reorder merge keep forward_teacher tokenize detokenize".split()
Builder = Callable[[pytest.FixtureRequest], Path | None]
"""A folder with a tiny checkpoint of the family; None where the family has no weights."""

BUILDERS: dict[str, Builder] = {
    "blip": lambda request: request.getfixturevalue("blip_folder"),
    "compact": lambda request: save_compact(request.getfixturevalue("tmp_path") / "compact"),
    "fake": lambda request: None,
    "vision_encoder_decoder": lambda request: request.getfixturevalue("vit_gpt2_folder"),
    "vlm": lambda request: request.getfixturevalue("llava_folder"),
}
UNTRAINED = {"vlm"}
"""Families that caption and score captions, and are not trained: no gradients to memory, no attention maps."""


with_weights = pytest.mark.parametrize("family", sorted(set(BUILDERS) - {"fake"}), indirect=True)
trained_here = pytest.mark.parametrize("family", sorted(set(BUILDERS) - {"fake"} - UNTRAINED), indirect=True)


def test_every_family_has_a_builder() -> None:
    assert sorted(BUILDERS) == sorted(FAMILIES)


@pytest.fixture(params=sorted(BUILDERS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def captioner(family: str, request: pytest.FixtureRequest) -> Any:
    folder = BUILDERS[family](request)
    kind = resolve("captioner family", FAMILIES, family)
    return kind.load(str(folder or ""), device="cpu", dtype=torch.float32)


def pixels_of(captioner: Captioner, count: int) -> Tensor:
    return torch.stack([captioner.preprocess(image) for image in images(count)])


def some_tokens(captioner: Captioner, rows: int, length: int) -> Tensor:
    """Ids (R, T) that the captioner itself finds likely, so that they are words."""
    memory = captioner.encode(pixels_of(captioner, 1))
    strategy = parse_decode({"name": "sample", "options": {"seed": 1, "min_tokens": length, "max_tokens": length}})
    (found,) = decode(captioner, memory, strategy, batch=1, num_captions=rows)
    return torch.tensor([hypothesis.tokens for hypothesis in found])


def teacher_rows(captioner: Any, tokens: Tensor) -> Tensor:
    """``tokens`` (R, T) with the start token in front."""
    return torch.cat((torch.full((len(tokens), 1), captioner.start_id), tokens), dim=1)


def test_is_a_captioner(captioner: Any, family: str) -> None:
    assert captioner.family == family
    assert captioner.capabilities <= {"prompt", "null_memory", "packing", "joining", "shared_steps"}
    assert 0 <= captioner.end_id < captioner.vocab_size
    assert 0 <= captioner.start_id < captioner.vocab_size
    assert captioner.max_positions >= 16
    assert all(callable(getattr(captioner, method)) for method in METHODS)
    pixels = captioner.preprocess(images(1)[0])
    assert pixels.ndim == 3
    assert pixels.dtype == torch.float32


def test_pictures_are_seen_at_the_size_that_is_told(captioner: Any, family: str) -> None:
    for size in ((30, 20), (20, 70), (300, 200)):
        shape = captioner.preprocess(images(1)[0].resize(size)).shape
        assert captioner.input_side_px == (None if family == "fake" else max(shape[1:]))


@torch.no_grad()
def test_steps_equal_the_teacher_forced_pass(captioner: Any) -> None:
    memory = captioner.encode(pixels_of(captioner, 2))
    tokens = some_tokens(captioner, 2, 6)
    state, logits = captioner.start(memory)
    steps = [logits] + [captioner.step(state, column) for column in tokens.unbind(1)]
    inputs = teacher_rows(captioner, tokens)
    forced = captioner.forward_teacher(memory, inputs, torch.ones_like(inputs))
    assert forced.hidden_states is None
    assert forced.self_attentions is None
    assert forced.cross_attentions is None
    assert forced.logits.shape == (2, 7, captioner.vocab_size)
    torch.testing.assert_close(torch.stack(steps, dim=1), forced.logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_batched_equals_single(captioner: Any) -> None:
    pixels = pixels_of(captioner, 3)
    memory = captioner.encode(pixels)
    tokens = some_tokens(captioner, 3, 5)
    state, batched = captioner.start(memory)
    for column in tokens.unbind(1):
        batched = captioner.step(state, column)
    for image in range(3):
        state, single = captioner.start(captioner.encode(pixels[image : image + 1]))
        for token in tokens[image]:
            single = captioner.step(state, token.view(1))
        torch.testing.assert_close(single[0], batched[image], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_widened_and_reordered_rows_equal_single_rows(captioner: Any) -> None:
    """Two images with three rows each; after two tokens the rows of an image change places."""
    pixels = pixels_of(captioner, 2)
    tokens = some_tokens(captioner, 6, 4)  # (R, T)
    state, _ = captioner.start(captioner.encode(pixels))
    captioner.reorder(state, torch.tensor([0, 0, 0, 1, 1, 1]))
    captioner.step(state, tokens[:, 0])
    captioner.step(state, tokens[:, 1])
    order = torch.tensor([2, 0, 0, 4, 5, 3])
    captioner.reorder(state, order)
    captioner.step(state, tokens[:, 2])
    wide = captioner.step(state, tokens[:, 3])
    for row in range(6):
        path = [*tokens[order[row], :2], *tokens[row, 2:]]
        image = row // 3
        alone: DecodeState
        alone, single = captioner.start(captioner.encode(pixels[image : image + 1]))
        for token in path:
            single = captioner.step(alone, token.view(1))
        torch.testing.assert_close(single[0], wide[row], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_teacher_takes_several_captions_per_image_and_padding(captioner: Any) -> None:
    pixels = pixels_of(captioner, 2)
    inputs = teacher_rows(captioner, some_tokens(captioner, 4, 5))  # (R, T), two rows per image
    mask = torch.ones_like(inputs)
    mask[1, 4:] = mask[2, 2:] = 0
    memory = captioner.encode(pixels)
    maps = captioner.family not in UNTRAINED
    forced = captioner.forward_teacher(memory, inputs, mask, output_hidden_states=True, output_attentions=maps)
    for row in range(4):
        length = int(mask[row].sum())
        own = captioner.encode(pixels[row // 2 : row // 2 + 1])
        part = inputs[row : row + 1, :length]
        single = captioner.forward_teacher(
            own, part, torch.ones_like(part), output_hidden_states=True, output_attentions=maps
        )
        torch.testing.assert_close(single.logits[0], forced.logits[row, :length], rtol=1e-4, atol=1e-4)
        for one, many in zip(single.cross_attentions or (), forced.cross_attentions or (), strict=True):
            torch.testing.assert_close(one[0], many[row, :, :length], rtol=1e-4, atol=1e-4)
        for one, many in zip(single.self_attentions or (), forced.self_attentions or (), strict=True):
            torch.testing.assert_close(one[0], many[row, :, :length, :length], rtol=1e-4, atol=1e-4)
        for one, many in zip(single.hidden_states, forced.hidden_states, strict=True):
            torch.testing.assert_close(one[0], many[row, :length], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_teacher_gives_chosen_positions_alone(captioner: Any) -> None:
    inputs = teacher_rows(captioner, some_tokens(captioner, 2, 4))
    mask, at = torch.ones_like(inputs), torch.zeros_like(inputs, dtype=torch.bool)
    at[0, 1] = at[1, 3] = at[0, 4] = True
    memory = captioner.encode(pixels_of(captioner, 2))
    everywhere = captioner.forward_teacher(memory, inputs, mask)
    chosen = captioner.forward_teacher(memory, inputs, mask, at=at)
    torch.testing.assert_close(chosen.logits, everywhere.logits[at])
    torch.testing.assert_close(chosen.states, everywhere.states[at])
    assert captioner.forward_teacher(memory, inputs, mask, at=at, output_logits=False).logits is None


@trained_here
@torch.no_grad()
def test_states_project_to_the_logits_of_all_words_or_some(captioner: Any) -> None:
    inputs = teacher_rows(captioner, some_tokens(captioner, 2, 4))
    at = torch.ones_like(inputs, dtype=torch.bool)
    forced = captioner.forward_teacher(
        captioner.encode(pixels_of(captioner, 2)), inputs, torch.ones_like(inputs), at=at
    )
    torch.testing.assert_close(captioner.project(forced.states), forced.logits)
    words = torch.stack([torch.tensor([captioner.end_id, 3, row % 5]) for row in range(len(forced.states))])
    torch.testing.assert_close(captioner.project(forced.states, words), forced.logits.gather(1, words))


@trained_here
@torch.no_grad()
def test_a_packed_row_gives_the_logits_of_separate_captions(captioner: Any) -> None:
    if "packing" not in captioner.capabilities:
        pytest.skip("this family takes one caption per row")
    memory = captioner.encode(pixels_of(captioner, 1))
    tokens = teacher_rows(captioner, some_tokens(captioner, 2, 4))
    apart = captioner.forward_teacher(memory, tokens, torch.ones_like(tokens)).logits
    packed = torch.cat([*tokens, torch.zeros(2, dtype=torch.long)])[None]
    segments = torch.tensor([[0] * 5 + [1] * 5 + [-1] * 2])
    together = captioner.forward_teacher(memory, packed, (segments >= 0).long(), segments=segments).logits
    torch.testing.assert_close(together[0, :10], apart.flatten(0, 1), rtol=1e-4, atol=1e-4)


@trained_here
@pytest.mark.parametrize("trained", [False, True])
def test_stem_and_rest_make_the_encoder(captioner: Any, trained: bool) -> None:
    """Training caches what the frozen half gives; what it may change is what it says it changes."""
    pixels = pixels_of(captioner, 2)
    changed = {id(parameter) for parameter in captioner.train_encoder(trained)}
    assert bool(changed) == trained
    with torch.no_grad():
        features = captioner.encode_stem(pixels)
        torch.testing.assert_close(captioner.encode_from_stem(features), captioner.encode(pixels))
    memory = captioner.encode_from_stem(features)
    if memory.requires_grad:  # a compact captioner's projection to memory learns with the decoder
        memory.sum().backward()
    reached = {id(parameter) for parameter in captioner.parameters() if parameter.grad is not None}
    assert all(parameter.requires_grad for parameter in captioner.parameters() if id(parameter) in reached)
    assert bool(changed & reached) == trained
    captioner.train_encoder(False)


@pytest.mark.parametrize("name", ["greedy", "beam", "diverse_beam", "sample"])
def test_captions_do_not_depend_on_the_batch(captioner: Any, name: str) -> None:
    pixels = pixels_of(captioner, 3)
    strategy = parse_decode({"name": name, "options": {"max_tokens": 8}})
    with torch.no_grad():
        found = decode(captioner, captioner.encode(pixels), strategy, batch=3, seeds=[1, 2, 3])
        for image in range(3):
            memory = captioner.encode(pixels[image : image + 1])
            (alone,) = decode(captioner, memory, strategy, batch=1, seeds=[image + 1])
            assert [h.tokens for h in alone] == [h.tokens for h in found[image]]
            assert [h.logprob for h in alone] == pytest.approx([h.logprob for h in found[image]], abs=1e-4)


@torch.no_grad()
def test_logprob_is_the_teachers(captioner: Any) -> None:
    memory = captioner.encode(pixels_of(captioner, 1))
    options = {"max_tokens": 8, "repetition_penalty": 1.5, "no_repeat_ngram": 2}
    for name in ("greedy", "beam", "diverse_beam", "sample"):
        ((found,),) = decode(captioner, memory, parse_decode({"name": name, "options": options}), batch=1)
        ended = [captioner.end_id] * (found.finish_reason == "stop")
        targets = torch.tensor([*found.tokens, *ended])
        inputs = teacher_rows(captioner, targets[None, :-1])
        logits = captioner.forward_teacher(memory, inputs, torch.ones_like(inputs)).logits
        logprobs = logits[0].log_softmax(dim=-1).gather(1, targets.unsqueeze(1))
        assert found.logprob == pytest.approx(float(logprobs.mean()), abs=1e-4)


@trained_here
def test_gradients_reach_memory_and_weights(captioner: Any) -> None:
    inputs = teacher_rows(captioner, some_tokens(captioner, 2, 4))
    memory = captioner.encode(pixels_of(captioner, 1))
    memory.retain_grad()
    captioner.forward_teacher(memory, inputs, torch.ones_like(inputs)).logits.sum().backward()
    assert float(memory.grad.abs().sum()) > 0
    assert sum(parameter.grad is not None for parameter in captioner.parameters()) > 5


@with_weights
def test_save_and_load_round_trip(captioner: Any, tmp_path: Path) -> None:
    captioner.save(tmp_path / "saved")
    again = type(captioner).load(str(tmp_path / "saved"), device="cpu", dtype=torch.float32)
    first, second = captioner.state_dict(), again.state_dict()
    assert first.keys() == second.keys()
    for name, tensor in first.items():  # families may store fp16
        torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=1e-3)
    assert torch.equal(pixels_of(again, 1), pixels_of(captioner, 1))
    assert again.detokenize([5, 6, 7]) == captioner.detokenize([5, 6, 7])


@with_weights
@torch.no_grad()
def test_copies_are_independent(captioner: Any) -> None:
    """Training keeps copies of a captioner as reference or teacher."""
    pixels = pixels_of(captioner, 1)
    other = copy.deepcopy(captioner)
    for parameter in other.parameters():
        parameter.zero_()
    _, logits = other.start(other.encode(pixels))
    assert float(logits.std()) == pytest.approx(0.0, abs=1e-6)
    _, logits = captioner.start(captioner.encode(pixels))
    assert float(logits.std()) > 0.1


def test_null_memory_as_declared(captioner: Any) -> None:
    if "null_memory" in captioner.capabilities:
        _, logits = captioner.start(captioner.null_memory(2))
        assert logits.shape == (2, captioner.vocab_size)
    else:
        with pytest.raises(RequestError) as caught:
            captioner.null_memory(2)
        assert caught.value.code == "unsupported_option"


def test_prompts_as_declared(captioner: Any) -> None:
    memory = captioner.encode(pixels_of(captioner, 2)).detach()
    if "prompt" in captioner.capabilities:
        found = decode(captioner, memory, parse_decode(None), batch=2, prompts=["a dog", ""])
        plain = decode(captioner, memory, parse_decode(None), batch=2)
        assert found[1][0].tokens == plain[1][0].tokens
    else:
        with pytest.raises(RequestError) as refused:
            decode(captioner, memory, parse_decode(None), batch=2, prompts=["a dog", ""])
        assert refused.value.code == "unsupported_option"
