"""Cards, weights and names that are made to harm: refused with a code, and nothing of them runs."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.card import FilePart, WeightsCard, read_card
from models.catalog import find_model
from models.checkpoints import load_into, read_parts
from models.cli import run
from models.errors import CheckpointError, UnknownNameError
from models.families.blip import BlipCaptioner
from models.families.compact.captioner import CompactCaptioner
from models.families.hub import load_config, load_model, load_preprocessing
from models.file_hashes import sha256_of
from tests.models.families.compact.tiny import save_compact
from tests.models.families.tiny_models import save_blip

_CARD = {"format": 1, "id": "m", "kind": "weights", "family": "compact", "description": "", "licence": ""}


def _tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def _safetensors(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        _safetensors(b"{}", length=2**63),
        _safetensors(b"{}", length=100_000_000),
        _safetensors({"a": _tensor("F32", [1], 0, 4), "b": _tensor("F32", [1], 0, 4)}, bytes(4)),
        _safetensors({"a": _tensor("F32", [1], 4, 8)}, bytes(8)),
        _safetensors({"a": _tensor("F32", [10], 0, 40)}, bytes(8)),
        _safetensors({"a": _tensor("F32", [-1], 0, 4)}, bytes(4)),
        _safetensors({"a": _tensor("F32", [2**62, 4], 0, 0)}),
        _safetensors({"a": _tensor("X32", [1], 0, 4)}, bytes(4)),
        _safetensors({"a": _tensor("F32", [1], 0, 4)}, bytes(400)),
        _safetensors(b"[" * 100_000),
        b"PK\3\4" + bytes(100),
        b"\x80\x02cos\nsystem\n",
    ],
    ids="empty huge-header cut-header overlap gap past negative overflow dtype trailing deep zip pickle".split(),
)
def test_weights_with_a_hostile_header(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    part = FilePart(file=path.name, sha256=sha256_of(path))
    with pytest.raises(CheckpointError) as caught:
        read_parts(tmp_path, WeightsCard(id="m", family="fake", description="", licence="", parts={"body": part}))
    assert caught.value.code == "unsafe_file"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float4_e2m1fn_x2])
def test_weights_of_another_kind_of_number(dtype: torch.dtype) -> None:
    stored = torch.zeros(2, dtype=torch.uint8).view(dtype) if dtype.itemsize == 1 else torch.zeros(2, dtype=dtype)
    with pytest.raises(CheckpointError) as caught:
        load_into(torch.nn.BatchNorm1d(2, affine=False), {**_norm(), "running_mean": stored}, "m")
    assert caught.value.code == "wrong_keys"
    load_into(torch.nn.BatchNorm1d(2, affine=False), _norm(), "m")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39])
def test_weights_that_no_caption_comes_of(value: float) -> None:
    stored = torch.tensor([1.0, value], dtype=torch.float64)  # 1e39 is too large for the module's type
    with pytest.raises(CheckpointError, match="running_mean has values that are NaN or infinite") as caught:
        load_into(torch.nn.BatchNorm1d(2, affine=False), {**_norm(), "running_mean": stored}, "m")
    assert caught.value.code == "wrong_keys"


def test_weights_of_the_hub_that_no_caption_comes_of(tmp_path: Path) -> None:
    save_blip(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = float("nan")
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        BlipCaptioner.load(str(tmp_path))


@pytest.mark.parametrize(
    "sizes",
    [
        {"decoder_layers": 10**7},
        {"encoder_layers": 10**7},
        {"width": 10**30},
        {"max_positions": 10**12},
        {"vocab_size": 10**9},
        {"feed_forward": 10**12},
        {"feed_forward": 65_000, "width": 8192, "decoder_layers": 64, "encoder_layers": 64},
    ],
)
def test_sizes_that_no_machine_holds(sizes: dict[str, int], tmp_path: Path) -> None:
    save_compact(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), **sizes}), "utf-8")
    card = json.loads((tmp_path / "card.json").read_text("utf-8"))
    card["files"]["config.json"] = sha256_of(config)
    (tmp_path / "card.json").write_text(json.dumps(card), "utf-8")
    with pytest.raises(CheckpointError) as caught:
        CompactCaptioner.load(str(tmp_path))
    assert caught.value.code in ("bad_config", "wrong_keys")


def _norm() -> dict[str, torch.Tensor]:
    return {"running_mean": torch.zeros(2), "running_var": torch.ones(2), "num_batches_tracked": torch.tensor(0)}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**_CARD, "objective": {"name": "a", "options": {"x": float("inf")}}}),
        json.dumps({**_CARD, "measurements": [{"split": "a", "images": 1, "values": {"x": float("nan")}}]}),
        json.dumps(_CARD)[:-1] + ', "id": "another"}',
        json.dumps(_CARD)[:-1] + ', "objective": {"name": "a", "options": {"x": 1, "x": 2}}}',
        '{"seed": ' + "9" * 100_000 + "}",
        '{"objective": ' + "[" * 100_000,
        json.dumps({**_CARD, "id": "\ud800"}),
        "null",
        "[]",
        "",
    ],
    ids="infinite nan twice twice-inside digits deep surrogate null list empty".split(),
)
def test_cards(text: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        read_card(tmp_path)
    assert caught.value.code == "bad_card"
    assert len(caught.value.detail) < 500


@pytest.mark.parametrize(
    "name", ["a" * 10_000, "org/" + "a" * 10_000, "a\0b", "a\nb", "\ud800", "../x", "org/..", "x/" * 3000]
)
def test_names_of_models(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_model(name)
    assert caught.value.code == "unknown_model"
    assert len(caught.value.detail) < 1000
    if name.isprintable():
        assert run(["models", "show", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model": null}',
        b"[" * 100_000,
        b'{"version":"1.0","model":{"type":"WordPiece","vocab":{"a":99999999999}}}',
        b'{"version":"1.0","model":{"type":"WordPiece","vocab":{},"unk_token":"[UNK]","continuing_subword_prefix":"##"'
        b',"max_input_chars_per_word":100}}',
    ],
)
def test_tokenizers(content: bytes, tmp_path: Path) -> None:
    bundled = find_model("concise").path
    assert bundled is not None
    card = read_card(bundled)
    assert isinstance(card, WeightsCard)
    for file in bundled.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        CompactCaptioner.load(str(tmp_path))
    assert caught.value.code in ("bad_config", "hash_mismatch")


class _Exploit:
    """What makes a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.target),)


def test_pickled_weights_of_the_hub_do_not_run(tmp_path: Path) -> None:
    folder = save_blip(tmp_path / "blip")
    (folder / "model.safetensors").unlink()
    torch.save({"weight": _Exploit(tmp_path / "executed")}, folder / "pytorch_model.bin")
    from transformers import BlipForConditionalGeneration

    with pytest.raises(CheckpointError):
        load_model(str(folder), BlipForConditionalGeneration, device="cpu", dtype=torch.float32)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json", "tokenizer_config.json"])
def test_code_that_a_checkpoint_brings_does_not_run(file: str, tmp_path: Path) -> None:
    folder = save_blip(tmp_path / "blip")
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'executed')!r})\nclass Own: pass\n", "utf-8")
    names = ("AutoConfig", "AutoImageProcessor", "AutoTokenizer", "AutoProcessor")
    own = {name: ["own.Own", None] if name == "AutoTokenizer" else "own.Own" for name in names}
    path = folder / file
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**stored, "model_type": "own_type", "auto_map": own}), "utf-8")
    try:
        load_config(str(folder))
        load_preprocessing(str(folder))
    except CheckpointError as error:
        assert error.code in ("bad_config", "missing_file")
    assert not (tmp_path / "executed").exists()
