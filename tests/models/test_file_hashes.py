from hashlib import sha256
from pathlib import Path

import pytest

from models.card import FilePart, SharedPart, WeightsCard
from models.errors import CheckpointError
from models.file_hashes import file_inside, sha256_of, verify, verify_files


def _card(**files: str) -> WeightsCard:
    return WeightsCard(id="m", family="compact", description="", licence="", files=files)


def test_hash_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_of(tmp_path / "f") == sha256(b"abc").hexdigest()
    verify(tmp_path / "f", sha256(b"abc").hexdigest())


def test_a_changed_file_is_refused_with_both_hashes_and_the_fix(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abd")
    with pytest.raises(CheckpointError) as caught:
        verify(tmp_path / "f", sha256(b"abc").hexdigest())
    assert caught.value.code == "hash_mismatch"
    for word in (str(tmp_path / "f"), sha256(b"abc").hexdigest()[:16], sha256(b"abd").hexdigest()[:16], "restore"):
        assert word in caught.value.detail


@pytest.mark.parametrize("name", ["absent", "folder"])
def test_what_cannot_be_read_is_missing(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=f"missing_file: .*{name} cannot be read"):
        sha256_of(tmp_path / name)


def test_every_listed_file_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    right = {name: sha256_of(tmp_path / name) for name in "ab"}
    part = FilePart(file="b", sha256=right["b"])
    card = _card(a=right["a"]).model_copy(update={"parts": {"own": part, "far": SharedPart(model="x", part="y")}})
    verify_files(tmp_path, card)
    (tmp_path / "b").write_bytes(b"B")
    with pytest.raises(CheckpointError, match="hash_mismatch"):
        verify_files(tmp_path, card)
    with pytest.raises(CheckpointError, match="hash_mismatch"):
        verify_files(tmp_path, _card(a=right["b"]))


@pytest.mark.parametrize("name", ["../card.json", "/etc/hostname", "sub/file", "", "..", "a\0b", "./x"])
def test_a_card_names_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="bad_card: .*names a file outside its folder"):
        file_inside(tmp_path, name)
    with pytest.raises(CheckpointError, match="bad_card"):
        verify_files(tmp_path, _card(**{name: "0" * 64}))
