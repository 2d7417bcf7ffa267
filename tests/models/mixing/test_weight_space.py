import time
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from models.errors import CheckpointError, DataError, RequestError, UnknownNameError
from models.mixing.weight_space import WeightSpace


def _random(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "decoder.weight": torch.randn(33, 17, generator=generator).half(),
        "decoder.bias": torch.randn(33, generator=generator).half(),
        "vision.kernel": torch.ones(4, 2, 3, 3).half(),
        "steps": torch.tensor([70000]),
    }


BASE, SMILE, CONTRASTIVE = _random(0), _random(1), _random(2)
SPACE = WeightSpace(BASE, {"smile": SMILE, "contrastive": CONTRASTIVE})


def _slow_sum(coefficients: Mapping[str, float], key: str) -> np.ndarray:
    """The definition, in float64."""
    base = BASE[key].double().numpy()
    ends = {"smile": SMILE, "contrastive": CONTRASTIVE}
    total = base.copy()
    for name, value in coefficients.items():
        total += value * (ends[name][key].double().numpy() - base)
    return np.asarray(total)


@pytest.mark.parametrize("coefficients", [{}, {"smile": 0}, {"smile": 0.0, "contrastive": -0.0}])
def test_without_coefficients_the_base_itself(coefficients: dict[str, float]) -> None:
    mixed = SPACE.mix(coefficients)
    assert mixed.keys() == BASE.keys()
    assert all(mixed[key].data_ptr() == BASE[key].data_ptr() for key in BASE)


@pytest.mark.parametrize("coefficients", [{"smile": 1}, {"smile": 1.0, "contrastive": 0}])
def test_a_single_one_is_the_direction_itself(coefficients: dict[str, float]) -> None:
    mixed = SPACE.mix(coefficients)
    assert mixed["decoder.weight"].data_ptr() == SMILE["decoder.weight"].data_ptr()
    assert all(torch.equal(mixed[key], SMILE[key]) for key in SMILE)


def test_equal_tensors_are_held_once() -> None:
    for mixed in (SPACE.mix({"smile": 1}), SPACE.mix({"smile": 0.3, "contrastive": 2})):
        assert mixed["vision.kernel"].data_ptr() == BASE["vision.kernel"].data_ptr()
        assert mixed["steps"].data_ptr() == BASE["steps"].data_ptr()
    assert SPACE.directions["smile"]["vision.kernel"] is SPACE.base["vision.kernel"]


@pytest.mark.parametrize(
    "coefficients",
    [
        {"smile": 0.25, "contrastive": 2},
        {"smile": -1.5},
        {"contrastive": 4, "smile": -4},
        {"smile": 1, "contrastive": 1},
    ],
)
def test_the_sum_is_the_definition_s(coefficients: dict[str, float]) -> None:
    mixed = SPACE.mix(coefficients)
    for key in ("decoder.weight", "decoder.bias"):
        assert mixed[key].dtype == torch.float16
        expected = _slow_sum(coefficients, key)
        ulp = np.maximum(np.abs(expected), 2.0**-14) * 2.0**-10
        assert (np.abs(mixed[key].double().numpy() - expected) <= 0.502 * ulp).all()  # one rounding to fp16


def test_the_bits_are_those_of_single_operations_in_float32() -> None:
    base, smile, contrastive = (each["decoder.weight"].float().numpy() for each in (BASE, SMILE, CONTRASTIVE))
    expected = base + (contrastive - base) * np.float32(1.7) + (smile - base) * np.float32(0.3)
    mixed = SPACE.mix({"smile": 0.3, "contrastive": 1.7})["decoder.weight"]
    assert np.array_equal(mixed.numpy(), expected.astype(np.float16))


def test_the_order_of_the_coefficients_changes_no_bit() -> None:
    one, other = SPACE.mix({"smile": 0.3, "contrastive": 1.7}), SPACE.mix({"contrastive": 1.7, "smile": 0.3})
    assert all(torch.equal(one[key], other[key]) for key in BASE)


def test_a_mix_is_linear() -> None:
    half, whole = SPACE.mix({"smile": 0.5})["decoder.weight"], SMILE["decoder.weight"]
    torch.testing.assert_close(half.float(), (BASE["decoder.weight"].float() + whole.float()) / 2, atol=0, rtol=2**-10)


def test_the_stored_tensors_stay_as_they_are() -> None:
    wide = {"w": torch.tensor([1.0, 2.0])}
    space = WeightSpace(wide, {"a": {"w": torch.tensor([2.0, 4.0])}})
    assert space.mix({"a": 2})["w"].tolist() == [3, 6]
    assert (space.base["w"].tolist(), space.directions["a"]["w"].tolist()) == ([1, 2], [2, 4])


def test_a_sum_beyond_the_dtype_is_refused() -> None:
    space = WeightSpace({"w": torch.tensor([0.0]).half()}, {"a": {"w": torch.tensor([60000.0]).half()}})
    with pytest.raises(DataError, match=r"not_finite: the mix a=2 is beyond torch.float16 in tensor w"):
        space.mix({"a": 2})


def test_names_and_bounds_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="there are: contrastive, smile"):
        SPACE.mix({"unkt": 1})
    with pytest.raises(RequestError, match="not from -4 to 4"):
        SPACE.mix({"smile": 4.5})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": torch.ones(1)}, "it has a tensor extra"),
        ({"decoder.bias": None}, "it has no tensor decoder.bias"),
        ({"decoder.bias": torch.ones(34)}, r"decoder.bias has shape \(34,\), the base's \(33,\)"),
        ({"steps": torch.tensor([70001])}, "steps holds whole numbers and differs"),
        ({"steps": torch.tensor([0.5])}, "steps holds whole numbers and differs"),
    ],
)
def test_another_architecture_is_refused(change: dict[str, Tensor | None], message: str) -> None:
    tensors = {key: tensor for key, tensor in (SMILE | change).items() if tensor is not None}
    with pytest.raises(CheckpointError, match=f"wrong_keys: direction 'smile' does not fit the base: {message}"):
        WeightSpace(BASE, {"smile": tensors})


def test_a_mix_of_the_bundled_size_takes_a_moment() -> None:
    base = {f"w{i}": torch.randn(256, 1024).half() for i in range(21)}  # 5.5 million parameters
    space = WeightSpace(base, {name: {key: -each for key, each in base.items()} for name in "ab"})
    times_s = []
    for _ in range(3):
        began = time.perf_counter()
        space.mix({"a": 0.25, "b": 2})
        times_s.append(time.perf_counter() - began)
    assert min(times_s) < 0.5  # some 30 ms on an idle core
