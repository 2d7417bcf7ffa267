from collections.abc import Iterator

import pytest
import torch

from models import device as device_module
from models.cpus import usable_cores
from models.device import beside_int8, pick_device, pick_dtype, set_threads
from models.errors import RequestError
from tests.support import needs_gpu

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_auto_is_cuda_where_there_is_one() -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == CPU


@needs_gpu
def test_on_a_gpu() -> None:
    assert pick_device("cuda:0").index == 0
    assert pick_dtype("auto", pick_device("cuda")) in (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "cuda:-1", "cpu:\u00b2", "meta"])
def test_names_that_are_no_device_list_the_valid_ones(name: str) -> None:
    with pytest.raises(RequestError, match="there are: auto, cpu, cuda, cuda:N, mps") as caught:
        pick_device(name)
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize("name", ["cuda:99", "cpu:1"])
def test_devices_that_the_machine_lacks(name: str) -> None:
    with pytest.raises(RequestError, match=f"no '{name}'; try auto"):
        pick_device(name)


@pytest.mark.parametrize(
    ("cpu_has", "cuda_has", "expected"),
    [
        # default on cpu, default on cuda, auto on cpu, auto on cuda
        (True, True, (torch.float32, torch.bfloat16, torch.bfloat16, torch.bfloat16)),
        (False, False, (torch.float32, torch.float32, torch.float32, torch.float16)),
    ],
)
def test_default_and_auto_dtype(
    monkeypatch: pytest.MonkeyPatch, cpu_has: bool, cuda_has: bool, expected: tuple[torch.dtype, ...]
) -> None:
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: cpu_has)
    monkeypatch.setattr(device_module, "_cuda_has_bf16", lambda: cuda_has)
    asked = [("default", CPU), ("default", CUDA), ("auto", CPU), ("auto", CUDA)]
    assert tuple(pick_dtype(name, device) for name, device in asked) == expected


def test_named_dtypes() -> None:
    assert pick_dtype("bf16", CPU) == pick_dtype("bfloat16", CUDA) == torch.bfloat16
    assert pick_dtype("fp16", CUDA) == torch.float16
    assert pick_dtype("fp32", CUDA) == torch.float32


def test_dtypes_that_are_refused() -> None:
    with pytest.raises(RequestError, match="there are: default, auto, fp32"):
        pick_dtype("int4", CPU)
    with pytest.raises(RequestError, match="fp16 is slower than fp32 on a CPU"):
        pick_dtype("fp16", CPU)


def test_int8_where_the_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "cpu_has_int8", lambda: True)
    assert pick_dtype("int8", CPU) == torch.int8
    with pytest.raises(RequestError, match="int8 needs a CPU with AVX-512 VNNI"):
        pick_dtype("int8", CUDA)
    monkeypatch.setattr(device_module, "cpu_has_int8", lambda: False)
    with pytest.raises(RequestError, match="choose fp32 or bf16"):
        pick_dtype("int8", CPU)


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_what_int8_leaves_as_it_is(monkeypatch: pytest.MonkeyPatch, has_bf16: bool, expected: torch.dtype) -> None:
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: has_bf16)
    assert beside_int8(CPU) == expected


def test_threads_are_set_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert set_threads(2) == torch.get_num_threads() == 2
    assert set_threads() == torch.get_num_threads() == usable_cores()
    assert set_threads(respect_omp=True) == torch.get_num_threads() == 3
    assert set_threads(1, respect_omp=True) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert set_threads(respect_omp=True) == usable_cores()


@pytest.mark.parametrize("threads", [0, -1])
def test_fewer_than_one_thread_is_refused(threads: int) -> None:
    with pytest.raises(RequestError, match="at least 1"):
        set_threads(threads)
