"""Steps over static shapes against steps that grow: on a CPU a tape of operators stands for a CUDA graph."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.decoding.session import DecodeSession
from models.families.blip import BlipCaptioner
from models.families.fused.build import DECODER_MAKERS, fuse_decoder
from models.families.fused.decoder import FusedDecoder
from models.families.fused.graphs import COLUMNS, Capture, CudaGraphs, Run, StaticSteps
from tests.models.families.fused.test_decoder import KINDS, STRATEGIES, drive
from tests.models.families.generate import pixels_of
from tests.models.families.tiny_models import PROMPTS
from tests.support import needs_gpu


class Tape(TorchDispatchMode):
    """Writes down each operator with its arguments, as a CUDA graph does: sizes and numbers as they are now."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host waits for a value"
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, (args, kwargs or {}), out))
        return out


def tape(run: Run) -> Run:
    """A ``Capture``."""
    run()
    with Tape() as written:
        logits = run()

    def repeat() -> Tensor:
        now: dict[int, Tensor] = {}
        for func, arguments, out in written.calls:
            args, kwargs = tree_map(lambda x: now.get(id(x), x), arguments)
            for then, again in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                now[id(then)] = again
        return logits.copy_(now[id(logits)])  # a graph, too, always leaves them in the same place

    return repeat


def use_static_steps(monkeypatch: pytest.MonkeyPatch, capture: Capture, worth_steps: int = 0) -> None:
    """Let decoders made from now on have static steps here too."""

    def make(decoder: Any) -> FusedDecoder:
        fused = fuse_decoder(decoder)
        return replace(fused, static_steps=StaticSteps(fused.step_at, capture, worth_steps))

    monkeypatch.setitem(DECODER_MAKERS, "stored", make)


@pytest.fixture(params=sorted(KINDS))
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A captioner with static steps, and one that has switched them off."""
    use_static_steps(monkeypatch, tape)
    folder: Path = request.getfixturevalue(request.param)
    static, eager = (KINDS[request.param].load(str(folder)) for _ in range(2))
    eager.graphs = False
    return static, eager


def static_steps(captioner: Any) -> StaticSteps:
    steps = captioner._prepared["decoder"].made.static_steps
    assert isinstance(steps, StaticSteps)
    return steps


@pytest.mark.parametrize("raw", STRATEGIES)
@pytest.mark.parametrize("prompts", [None, [*PROMPTS, ""]])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_captions_are_equal(
    pair: tuple[Any, Any], raw: dict[str, Any], prompts: list[str] | None, mode: Callable[[], Any]
) -> None:
    strategy = parse_decode({**raw, "options": {"max_tokens": 12} | raw.get("options", {})})
    with mode():
        pixels = pixels_of(pair[0], 4)[: 4 if prompts else 3]
        static, eager = (decode(one, one.encode(pixels), strategy, batch=len(pixels), prompts=prompts) for one in pair)
    assert [[h.tokens for h in image] for image in static] == [[h.tokens for h in image] for image in eager]
    for quick, exact in zip(static, eager, strict=True):
        assert [h.logprob for h in quick] == pytest.approx([h.logprob for h in exact], abs=1e-5)
    assert static_steps(pair[0])._shapes and not static_steps(pair[0]).failed
    assert not static_steps(pair[1])._shapes


@torch.no_grad()
def test_rows_widen_change_places_and_outgrow_their_columns(pair: tuple[Any, Any]) -> None:
    memory = pair[0].encode(pixels_of(pair[0], 3))
    states = [one.start(memory, ["", "a big dog", "a"])[0] for one in pair]
    for one, state in zip(pair, states, strict=True):
        one.reorder(state, torch.tensor([0, 0, 1, 1, 2, 2]))
    for step in range(COLUMNS + 5):
        tokens = torch.arange(6) + step % 7 + 5
        logits = [one.step(state, tokens) for one, state in zip(pair, states, strict=True)]
        torch.testing.assert_close(logits[0], logits[1], rtol=1e-5, atol=1e-5)
        if step % 3:
            for one, state in zip(pair, states, strict=True):
                one.reorder(state, torch.tensor([1, 0, 2, 2, 5, 4]))
    assert {shape.columns for shape in static_steps(pair[0])._shapes} == {COLUMNS, 2 * COLUMNS}
    assert {shape.images for shape in static_steps(pair[0])._shapes} == {4}


@torch.no_grad()
def test_images_join_and_leave(pair: tuple[Any, Any]) -> None:
    strategy = parse_decode({"name": "beam", "options": {"beams": 3, "max_tokens": 14}})
    memory = pair[0].encode(pixels_of(pair[0], 6))
    found: list[dict[int, Any]] = []
    for one in pair:
        session, done = DecodeSession(one, strategy), {}
        session.add(memory[:1], batch=1)
        for joining in (slice(1, 3), slice(3, 6), None, None):
            for _ in range(2):
                done |= session.step()
            if joining is not None:
                count = joining.stop - joining.start
                session.add(memory[joining], batch=count, prompts=PROMPTS[:count])
        session.drop([3])
        while session.images:
            done |= session.step()
        found.append(done)
    assert {n: h[0].tokens for n, h in found[0].items()} == {n: h[0].tokens for n, h in found[1].items()}
    assert len(found[0]) == 5
    assert not static_steps(pair[0]).failed


@torch.no_grad()
def test_states_that_take_turns_do_not_mix(pair: tuple[Any, Any]) -> None:
    """Both fit the same shape, with other memory, columns and padding."""
    memory = pair[0].encode(pixels_of(pair[0], 4))
    tokens = torch.randint(5, 20, (2, 6), generator=torch.Generator().manual_seed(1))
    alone = []
    for part, prompts in ((slice(0, 2), None), (slice(2, 4), ["a big dog", "a"])):
        state, _ = pair[1].start(memory[part], prompts)
        alone.append(drive(pair[1], state, tokens))
    static = pair[0]
    states = [static.start(memory[:2])[0], static.start(memory[2:], ["a big dog", "a"])[0]]
    for step, column in enumerate(tokens.unbind(1)):
        kept = []
        for state, expected in zip(states, alone, strict=True):
            kept.append(static.step(state, column))
            torch.testing.assert_close(kept[-1], expected[step], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(kept[0], alone[0][step], rtol=1e-5, atol=1e-5)  # nobody overwrote it
    assert len([shape for shape in static_steps(static)._shapes if shape.images == 2]) == 1


@torch.no_grad()
def test_a_state_that_stays_is_copied_in_once(pair: tuple[Any, Any]) -> None:
    static, _ = pair
    state, _ = static.start(static.encode(pixels_of(static, 3)))
    static.step(state, torch.tensor([5, 6, 7]))
    (*_, buffers) = static_steps(static)._shapes.values()
    places = [one.data_ptr() for one in (*state.memory, state.cache.keys_values)]
    assert places == [one.data_ptr() for one in (*buffers._memory.whole, buffers._keys_values)]
    static.step(state, torch.tensor([5, 6, 7]))
    assert places == [one.data_ptr() for one in (*state.memory, state.cache.keys_values)]


@torch.no_grad()
def test_a_shape_must_be_worth_it(blip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = []

    def capture(run: Run) -> Run:
        captured.append(run)
        return run

    use_static_steps(monkeypatch, capture, worth_steps=5)
    captioner = BlipCaptioner.load(str(blip_folder))
    state, _ = captioner.start(captioner.encode(pixels_of(captioner, 1)))  # the first step
    for _ in range(4):
        captioner.step(state, torch.tensor([5]))
    assert not captured
    for _ in range(4):
        captioner.step(state, torch.tensor([5]))
    assert len(captured) == 1


@torch.no_grad()
def test_a_shape_without_room_is_left_to_others(blip_folder: Path) -> None:
    captioner = BlipCaptioner.load(str(blip_folder))
    fused, free = fuse_decoder(captioner.decoder), [0.0]
    steps = StaticSteps(fused.step_at, tape, worth_steps=0, free_bytes=lambda: free[0])
    memory = captioner.encode(pixels_of(captioner, 3))
    state, _ = fused.start(memory, torch.full((3, 1), captioner.start_id), [0, 0, 0])
    ids = torch.tensor([[5], [6], [7]])
    assert steps(state, ids) is None and not steps.failed
    state_bytes = sum(one.nbytes for one in state.memory) / 3 * 4
    rows = state.cache.keys_values
    free[0] = 4 * (state_bytes + rows[:, :1, :1].nbytes * 4 * COLUMNS)
    logits = steps(state, ids)
    assert logits is not None
    alone, _ = fused.start(memory, torch.full((3, 1), captioner.start_id), [0, 0, 0])
    torch.testing.assert_close(logits, fused.append(alone, ids), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_what_cannot_be_captured_goes_on_without(
    blip_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def capture(run: Run) -> Run:
        run()
        raise torch.OutOfMemoryError("no memory for it")

    use_static_steps(monkeypatch, capture)
    broken, eager = (BlipCaptioner.load(str(blip_folder)) for _ in range(2))
    eager.graphs = False
    strategy = parse_decode({"name": "beam", "options": {"beams": 3, "max_tokens": 12}})
    memory = broken.encode(pixels_of(broken, 3))
    with caplog.at_level(logging.WARNING):
        captions = [[found[0].tokens for found in decode(one, memory, strategy, batch=3)] for one in (broken, eager)]
    assert captions[0] == captions[1]
    (told,) = caplog.records
    assert "no CUDA graph for Shape(images=4, each=1" in told.message


@needs_gpu
@pytest.mark.parametrize("kind", sorted(KINDS))
@torch.inference_mode()
def test_graphs_change_no_caption_on_a_gpu(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    with_graphs, without = (KINDS[kind].load(str(folder), device="cuda") for _ in range(2))
    without.graphs = False
    pixels = pixels_of(with_graphs, 5)
    for raw in STRATEGIES:
        strategy = parse_decode({**raw, "options": {"max_tokens": 12} | raw.get("options", {})})
        for _ in range(3):
            found = [
                [image[0].tokens for image in decode(one, one.encode(pixels), strategy, batch=5)]
                for one in (with_graphs, without)
            ]
            assert found[0] == found[1]
    steps = static_steps(with_graphs)
    assert isinstance(steps._capture, CudaGraphs)
    assert steps._shapes and not steps.failed
