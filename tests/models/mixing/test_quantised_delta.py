from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.errors import CheckpointError
from models.mixing.quantised_delta import apply_delta, quantise_delta, relative_error

BASE = {
    "matrix": torch.randn(6, 16, generator=torch.Generator().manual_seed(1)).half(),
    "kernel": torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(2)).half(),
    "vector": torch.linspace(-1, 1, 8).half(),
    "scalar": torch.tensor(0.5).half(),
    "frozen": torch.ones(3, 3).half(),
    "steps": torch.tensor([70000]),
}


def _tuned(size: float = 0.01, **changes: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    moved = {
        name: (tensor.float() + size * torch.randn(tensor.shape, generator=generator)).half()
        for name, tensor in BASE.items()
        if name not in ("frozen", "steps")
    }
    return BASE | moved | changes


def test_what_is_stored_is_small_and_what_did_not_change_is_not() -> None:
    stored = quantise_delta(BASE, _tuned())
    names = {"matrix", "kernel", "vector", "scalar"}
    assert stored.keys() == names | {f"{name}::scale" for name in names}
    assert {stored[name].dtype for name in names} == {torch.int8}
    assert stored["matrix::scale"].shape == (6, 1)
    assert stored["kernel::scale"].shape == (4, 1, 1, 1)
    assert stored["vector::scale"].shape == stored["scalar::scale"].shape == ()
    assert int(stored["matrix"].abs().max()) == 127  # every row uses the whole range


@pytest.mark.parametrize("size", [1e-4, 0.01, 3.0])
def test_the_error_is_at_most_half_a_step_and_half_a_unit_in_the_last_place(size: float) -> None:
    tuned = _tuned(size)
    stored = quantise_delta(BASE, tuned)
    restored = apply_delta(BASE, stored, "there")
    for name in (name for name in stored if name in BASE):
        ulp = torch.maximum(restored[name].abs().float() * 2**-10, torch.tensor(2.0**-24))
        allowed = stored[f"{name}::scale"] / 2 + ulp / 2
        assert bool(((restored[name].float() - tuned[name].float()).abs() <= allowed * 1.0001).all())
        assert restored[name].dtype == torch.float16


def test_a_worked_case() -> None:
    base = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    stored = quantise_delta(base, {"w": torch.tensor([[1.0, 2.0], [3.0 + 127, 4.0 - 63.4]])})
    assert stored["w"].tolist() == [[0, 0], [127, -63]]
    assert stored["w::scale"].tolist() == [[0], [1]]  # a row that did not change
    assert apply_delta(base, stored, "there")["w"].tolist() == [[1, 2], [130, -59]]


def test_int4_takes_half_the_bytes_of_int8() -> None:
    stored = quantise_delta(BASE, _tuned(), bits=4)
    assert (stored["matrix"].dtype, stored["matrix"].shape) == (torch.uint8, (6, 8))
    assert (stored["kernel"].dtype, stored["kernel"].shape) == (torch.uint8, (4, 9))
    assert {stored[name].dtype for name in ("vector", "scalar")} == {torch.int8}


def test_a_worked_case_of_int4() -> None:
    base = {"w": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])}
    stored = quantise_delta(base, {"w": torch.tensor([[1.0, 2.0, 3.0], [4.0 + 7, 5.0 - 3.2, 6.0 + 1.4]])}, bits=4)
    assert stored["w::scale"].tolist() == [[0], [1]]
    # steps 7, -3, 1 are 15, 5, 9: the first in the lower half of its byte; 0 steps are 8, and nothing follows the last
    assert stored["w"].tolist() == [[8 | 8 << 4, 8], [15 | 5 << 4, 9]]
    assert apply_delta(base, stored, "there")["w"].tolist() == [[1, 2, 3], [11, 2, 7]]


def test_int4_clips_the_largest_where_that_loses_less() -> None:
    delta = torch.tensor([[7.0] + [0.6] * 200])  # at full range each 0.6 becomes 1
    stored = quantise_delta({"w": torch.zeros_like(delta)}, {"w": delta}, bits=4)
    # A scale of 1 loses 200 * 0.4^2 = 32, one of 0.7 loses 2.1^2 + 200 * 0.1^2 = 6.4, one of 0.6 loses 2.8^2 = 7.8.
    assert stored["w::scale"].item() == pytest.approx(0.7)


@pytest.mark.parametrize("size", [1e-3, 0.05, 3.0])
def test_the_relative_error_of_int4(size: float) -> None:
    tuned = _tuned(size)
    error = relative_error(BASE, tuned, apply_delta(BASE, quantise_delta(BASE, tuned, bits=4), "there"))
    assert 0.02 < error < 0.15


def test_unchanged_tensors_are_the_base_s_own() -> None:
    restored = apply_delta(BASE, quantise_delta(BASE, _tuned()), "there")
    assert restored["frozen"] is BASE["frozen"]
    assert list(restored) == list(BASE)


def test_quantising_again_what_was_restored_changes_little() -> None:
    once = apply_delta(BASE, quantise_delta(BASE, _tuned()), "there")
    twice = apply_delta(BASE, quantise_delta(BASE, once), "there")
    assert relative_error(BASE, once, twice) < 0.01


def test_the_relative_error_of_random_differences() -> None:
    tuned = _tuned(0.05)
    assert 0.001 < relative_error(BASE, tuned, apply_delta(BASE, quantise_delta(BASE, tuned), "there")) < 0.015
    assert relative_error(BASE, tuned, tuned) == 0
    assert relative_error(BASE, tuned, BASE) == pytest.approx(1)
    assert relative_error(BASE, BASE, BASE) == 0


@pytest.mark.parametrize(
    ("tuned", "message"),
    [
        (_tuned(steps=torch.tensor([70001])), r"steps: no difference of int64 \(1,\) and int64 \(1,\)"),
        (_tuned(vector=torch.ones(9)), r"vector: no difference of float16 \(8,\) and float32 \(9,\)"),
        (_tuned(extra=torch.ones(1)), "only one has extra"),
    ],
)
def test_models_without_a_difference_are_refused(tuned: dict[str, Tensor], message: str) -> None:
    with pytest.raises(CheckpointError, match=f"wrong_keys: .*{message}"):
        quantise_delta(BASE, tuned)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector::scale": None}, "vector is no difference"),
        ({"vector": None}, "vector::scale is no difference"),
        ({"other": torch.ones(1)}, "other is no difference"),
        ({"vector": torch.ones(9, dtype=torch.int8)}, r"vector is int8 \(9,\)"),
        ({"vector": torch.ones(8)}, r"vector is float32 \(8,\)"),
        ({"matrix": torch.ones(6, 7, dtype=torch.uint8)}, r"matrix is uint8 \(6, 7\)"),
        ({"vector": torch.ones(4, dtype=torch.uint8)}, r"vector is uint8 \(4,\)"),
        ({"matrix::scale": torch.ones(6)}, r"matrix is int8 \(6, 16\) with scales float32 \(6,\)"),
    ],
)
def test_a_file_that_is_no_difference_to_the_base_is_refused(change: dict[str, Tensor | None], message: str) -> None:
    stored = {name: each for name, each in (quantise_delta(BASE, _tuned()) | change).items() if each is not None}
    with pytest.raises(CheckpointError, match=f"wrong_keys: there/d.safetensors: {message}"):
        apply_delta(BASE, stored, Path("there/d.safetensors"))
