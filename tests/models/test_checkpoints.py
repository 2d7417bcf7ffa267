import json
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from models.card import FilePart, SharedPart, WeightsCard, dump_card, read_card
from models.checkpoints import load_into, read_parts, write_checkpoint
from models.errors import CheckpointError, DataError
from models.file_hashes import sha256_of

TENSORS = {"weight": torch.tensor([[0.1, 2.0], [3.0, -4.0]]), "steps": torch.tensor(70000)}


def _maker(folder: Path, **shared: SharedPart) -> Callable[[dict[str, FilePart], dict[str, str]], WeightsCard]:
    def make_card(parts: dict[str, FilePart], files: dict[str, str]) -> WeightsCard:
        every = {**parts, **shared}
        return WeightsCard(id=folder.name, family="compact", description="", licence="", parts=every, files=files)

    return make_card


def _write(
    folder: Path, parts: Mapping[str, Mapping[str, Tensor]] | None = None, config: str = "{}", **shared: SharedPart
) -> WeightsCard:
    def write_files(draft: Path) -> None:
        (draft / "config.json").write_text(config, encoding="utf-8")

    parts = {"body": TENSORS} if parts is None else parts
    card = write_checkpoint(folder, _maker(folder, **shared), parts, write_files)
    assert isinstance(card, WeightsCard)
    return card


def _set_card(folder: Path, card: WeightsCard) -> None:
    (folder / "card.json").write_text(dump_card(card), encoding="utf-8")


def test_what_is_written_is_read_as_stored(tmp_path: Path) -> None:
    card = _write(tmp_path / "m")
    assert read_card(tmp_path / "m") == card
    assert card.files == {"config.json": sha256_of(tmp_path / "m/config.json")}
    tensors = read_parts(tmp_path / "m", card)
    assert tensors["weight"].dtype == torch.float16
    torch.testing.assert_close(tensors["weight"], TENSORS["weight"].half())
    torch.testing.assert_close(tensors["steps"], TENSORS["steps"])  # whole numbers are not rounded


def test_others_may_read_what_one_user_wrote(tmp_path: Path) -> None:
    card = write_checkpoint(tmp_path / "m", _maker(tmp_path / "m"), {"body": TENSORS}, lambda draft: None)
    assert card.parts
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in (tmp_path / "m").iterdir())
    assert (tmp_path / "m").stat().st_mode & 0o100  # the folder itself can still be entered


def test_tied_and_sliced_tensors_are_written_whole(tmp_path: Path) -> None:
    weight = torch.arange(6.0).view(2, 3)
    card = _write(tmp_path / "m", {"body": {"a": weight, "b": weight, "c": weight.T, "d": weight[:, 1]}})
    tensors = read_parts(tmp_path / "m", card)
    assert tensors["c"].tolist() == weight.T.tolist()
    assert tensors["d"].tolist() == [1, 4]


@pytest.mark.parametrize("position", [0, 9, -1])
def test_one_damaged_byte_anywhere_is_refused(tmp_path: Path, position: int) -> None:
    card = _write(tmp_path / "m")
    path = tmp_path / "m/body.safetensors"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"hash_mismatch: .*body\.safetensors is damaged or was changed"):
        read_parts(tmp_path / "m", card)


@pytest.mark.parametrize("name", ["config.json", "body.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    card = _write(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    with pytest.raises(CheckpointError, match=f"missing_file: .*{name} cannot be read: No such file"):
        read_parts(tmp_path / "m", card)


def test_a_part_outside_the_folder_is_refused(tmp_path: Path) -> None:
    card = _write(tmp_path / "m")
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes((tmp_path / "m/body.safetensors").read_bytes())
    for name in ("../secret.safetensors", str(secret)):
        escaping = card.model_copy(update={"parts": {"body": FilePart(file=name, sha256=sha256_of(secret))}})
        with pytest.raises(CheckpointError, match="bad_card: .*names a file outside its folder"):
            read_parts(tmp_path / "m", escaping)


class _Exploit:
    """What runs a command when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    card = _write(tmp_path / "m")
    path = tmp_path / "m/body.safetensors"
    path.write_bytes(pickle.dumps(_Exploit(tmp_path / "executed")))
    pickled = card.model_copy(update={"parts": {"body": FilePart(file=path.name, sha256=sha256_of(path))}})
    with pytest.raises(CheckpointError, match="unsafe_file: .* is not a readable safetensors file"):
        read_parts(tmp_path / "m", pickled)
    assert not (tmp_path / "executed").exists()


def test_a_part_can_lie_in_a_model_beside_it(tmp_path: Path) -> None:
    _write(tmp_path / "base", {"vision": {"eye": torch.ones(2)}, "rest": {"x": torch.zeros(1)}})
    card = _write(
        tmp_path / "smile", {"decoder": {"mouth": torch.ones(3)}}, vision=SharedPart(model="base", part="vision")
    )
    assert {name: tuple(tensor.shape) for name, tensor in read_parts(tmp_path / "smile", card).items()} == {
        "eye": (2,),
        "mouth": (3,),
    }


def test_a_part_can_lie_below_the_models_folder(tmp_path: Path) -> None:
    _write(tmp_path / "root/base", {"vision": {"eye": torch.ones(2)}})
    card = _write(tmp_path / "elsewhere/m", {}, vision=SharedPart(model="base", part="vision"))
    assert read_parts(tmp_path / "elsewhere/m", card, tmp_path / "root").keys() == {"eye"}
    with pytest.raises(CheckpointError, match="missing_file: .* needs part 'vision' of model 'base'"):
        read_parts(tmp_path / "elsewhere/m", card)


def test_a_damaged_or_exchanged_shared_part_is_refused(tmp_path: Path) -> None:
    owner = _write(tmp_path / "base", {"vision": {"eye": torch.ones(2)}})
    part = owner.parts["vision"]
    assert isinstance(part, FilePart)
    shared = SharedPart(model="base", part="vision", sha256=part.sha256)
    card = _write(tmp_path / "m", {}, vision=shared)
    read_parts(tmp_path / "m", card)
    _write(tmp_path / "base", {"vision": {"eye": torch.zeros(2)}})  # sound in itself, but not what m was trained with
    with pytest.raises(CheckpointError, match="hash_mismatch"):
        read_parts(tmp_path / "m", card)


@pytest.mark.parametrize(
    ("model", "part"), [("base", "vision"), ("gone", "body"), ("../x/base", "body"), ("m", "again")]
)
def test_a_shared_part_that_is_nowhere_is_named(tmp_path: Path, model: str, part: str) -> None:
    _write(tmp_path / "base")
    card = _write(tmp_path / "m", {}, again=SharedPart(model=model, part=part))
    with pytest.raises(CheckpointError, match="missing_file") as caught:
        read_parts(tmp_path / "m", card)
    assert repr(part) in caught.value.detail and repr(model) in caught.value.detail


def test_two_parts_with_the_same_tensor_are_refused(tmp_path: Path) -> None:
    card = _write(tmp_path / "m", {"one": {"x": torch.ones(1)}, "two": {"x": torch.ones(1)}})
    with pytest.raises(CheckpointError, match="wrong_keys: .*part 'two' repeats x"):
        read_parts(tmp_path / "m", card)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": torch.ones(1)}, r"0 tensors missing .* 1 unexpected \(first: \['extra'\]\)"),
        ({"weight": None}, r"1 tensors missing \(first: \['weight'\]\)"),
        ({"bias": torch.ones(3)}, r"bias has shape \(3,\), the config asks for \(2,\)"),
        ({"bias": torch.ones(1)}, r"bias has shape \(1,\)"),  # would broadcast
    ],
)
def test_tensors_that_do_not_fit_are_refused(change: dict[str, Tensor | None], message: str) -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.clone()
    tensors = {name: tensor for name, tensor in (layer.state_dict() | change).items() if tensor is not None}
    with pytest.raises(CheckpointError, match=f"wrong_keys: there.*{message}"):
        load_into(layer, tensors, "there")
    torch.testing.assert_close(layer.weight, before)


def test_tensors_are_converted_to_the_dtype_of_the_module() -> None:
    layer = nn.Linear(2, 2)
    load_into(layer, {"weight": torch.ones(2, 2).half(), "bias": torch.zeros(2).half()}, "there")
    assert layer.weight.dtype == torch.float32
    assert layer.weight.sum() == 4


def _crash(_: Path) -> None:
    raise KeyboardInterrupt


def test_a_crash_while_writing_leaves_nothing_new_and_the_old_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path / "m", _maker(tmp_path / "m"), {}, _crash)
    assert list(tmp_path.iterdir()) == []
    old = _write(tmp_path / "m")
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path / "m", _maker(tmp_path / "m"), {"body": TENSORS}, _crash)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    read_parts(tmp_path / "m", old)


def test_writing_again_replaces_the_whole_folder(tmp_path: Path) -> None:
    _write(tmp_path / "m", {"old": TENSORS})
    _write(tmp_path / "m", {"new": TENSORS}, config='{"a": 1}')
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"card.json", "config.json", "new.safetensors"}
    assert json.loads((tmp_path / "m/config.json").read_bytes()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_folder_of_something_else_is_not_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "holidays").mkdir()
    (tmp_path / "holidays/beach.jpg").write_bytes(b"")
    with pytest.raises(CheckpointError, match="bad_card: .*holidays exists and is no checkpoint"):
        _write(tmp_path / "holidays")
    assert (tmp_path / "holidays/beach.jpg").exists()


@pytest.mark.parametrize(("place", "message"), [("file", "is a file"), ("file/below", "cannot be written")])
def test_a_file_in_the_way_is_told(tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(CheckpointError, match=message):
        _write(tmp_path / place)
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_a_tensor_that_half_precision_cannot_hold_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(DataError, match="not_finite: tensor x has values"):
        _write(tmp_path / "m", {"body": {"x": torch.tensor([0.0, value])}})
    assert list(tmp_path.iterdir()) == []
