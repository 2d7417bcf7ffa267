"""Where a model runs, in which precision, on how many threads."""

import os
from collections.abc import Callable, Mapping

import torch

from models.cpus import usable_cores
from models.errors import RequestError

_DEVICE_TYPES = ("cpu", "cuda", "mps")
_DTYPES = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "int8": torch.int8,
}


def pick_device(name: str = "auto") -> torch.device:
    """The device by name: ``auto`` (CUDA where there is one, else CPU), ``cpu``, ``cuda``, ``cuda:1``, ``mps``.

    Raises:
        RequestError: ``invalid_request`` for other names and for devices that this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, index = name.partition(":")
    if kind not in _DEVICE_TYPES or (colon and not (index.isascii() and index.isdigit())):
        raise RequestError("invalid_request", f"no device {name!r}; there are: auto, cpu, cuda, cuda:N, mps")
    present = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if int(index or 0) >= present:
        raise RequestError("invalid_request", f"this machine has {present} {kind} device(s), so no {name!r}; try auto")
    return torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The precision of the weights and activations on ``device``.

    ``default`` is fp32, on CUDA bf16. ``auto`` takes what is fastest there: on CPU bf16 where the processor
    multiplies it itself, on CUDA cards without bf16 fp16; captions may then differ in rare words. ``int8`` is for the
    products of decoding alone, by families that take it: see ``beside_int8``.

    Raises:
        RequestError: ``invalid_request`` for other names, for fp16 on a CPU, where it is slower than fp32, and for int8
            where the processor cannot multiply it itself.
    """
    choose: dict[str, Callable[[torch.device], torch.dtype]] = {"default": _default_dtype, "auto": _fastest_dtype}
    if name in choose:
        return choose[name](device)
    if name not in _DTYPES:
        raise RequestError("invalid_request", f"no dtype {name!r}; there are: {', '.join([*choose, *_DTYPES])}")
    if _DTYPES[name] == torch.float16 and device.type == "cpu":
        raise RequestError("invalid_request", f"{name} is slower than fp32 on a CPU; choose fp32 or bf16")
    if _DTYPES[name] == torch.int8 and not (device.type == "cpu" and cpu_has_int8()):
        raise RequestError("invalid_request", f"{name} needs a CPU with AVX-512 VNNI; choose fp32 or bf16")
    return _DTYPES[name]


def beside_int8(device: torch.device) -> torch.dtype:
    """The precision of all that ``int8`` leaves as it is."""
    return _fastest_dtype(device)


def cpu_has_int8() -> bool:
    """Whether this machine's CPU multiplies 8-bit numbers itself, with sums that cannot overflow."""
    return _cpu_has("avx512_vnni") and torch.backends.quantized.engine in ("x86", "fbgemm")


def set_threads(threads: int | None = None, *, respect_omp: bool = False) -> int:
    """The number of threads that torch's operators use from now on in this process: ``threads``, or as many as cores
    are usable (see ``models.cpus``).

    With ``respect_omp`` the environment's ``OMP_NUM_THREADS`` comes before the count of cores. It is an option since
    Ray sets that variable to 1 in workers that ask for no whole core.

    Raises:
        RequestError: ``invalid_request`` for fewer than one thread.
    """
    omp = os.environ.get("OMP_NUM_THREADS", "") if respect_omp else ""
    if threads is None:
        threads = int(omp) if omp.isdigit() and int(omp) > 0 else usable_cores()
    if threads < 1:
        raise RequestError("invalid_request", f"{threads} threads; at least 1 is needed")
    torch.set_num_threads(threads)
    return threads


def _default_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" and _cuda_has_bf16() else torch.float32


def _fastest_dtype(device: torch.device) -> torch.dtype:
    if device.type == "cuda":
        return torch.bfloat16 if _cuda_has_bf16() else torch.float16
    return torch.bfloat16 if device.type == "cpu" and _cpu_has_bf16() else torch.float32


def _cuda_has_bf16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _cpu_has_bf16() -> bool:
    return _cpu_has("avx512_bf16", "amx_bf16", "bf16")


def _cpu_has(*names: str) -> bool:
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch cannot tell
    return any(capabilities.get(name) for name in names)
