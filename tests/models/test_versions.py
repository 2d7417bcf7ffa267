"""Installed versions of a model, and the way back."""

import os
import shutil
import time
from pathlib import Path

import pytest

from models.catalog import find_captioner, model_ids
from models.errors import CheckpointError, RequestError, UnknownNameError
from models.pipeline import load_pipeline
from models.versions import Version, install, rollback, versions
from tests.models.families.compact.tiny import tiny_captioner
from tests.models.mixing.tiny_space import save_tuned


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The models folder."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def checkpoint(tmp_path: Path, seed: int) -> Path:
    save_tuned(tmp_path / f"run-{seed}" / "mine", tiny_captioner(seed), f"objective-{seed}")
    return tmp_path / f"run-{seed}" / "mine"


def current(folder: Path, model: str = "mine") -> str:
    return find_captioner(model, folder).card.description


def numbers(found: list[Version]) -> list[tuple[int, bool]]:
    return [(version.number, version.current) for version in found]


def test_versions_are_kept_and_the_way_back_is_one_step(tmp_path: Path, folder: Path) -> None:
    for seed in (1, 2, 3):
        version = install(checkpoint(tmp_path, seed), folder)
        assert (version.number, version.current) == (seed, True)
        assert current(folder) == f"tuned by objective-{seed}"
    assert model_ids(folder).count("mine") == 1
    assert numbers(versions(folder, "mine")) == [(1, False), (2, False), (3, True)]
    assert rollback(folder, "mine").number == 2 and current(folder) == "tuned by objective-2"
    assert rollback(folder, "mine").number == 1
    with pytest.raises(RequestError, match="'mine' has no version before the current one; there are: 1, 2, 3"):
        rollback(folder, "mine")
    assert rollback(folder, "mine", 3).number == 3 and current(folder) == "tuned by objective-3"
    with pytest.raises(RequestError, match="'mine' has no version 4; there are: 1, 2, 3"):
        rollback(folder, "mine", 4)
    load_pipeline("mine", models_dir=folder, scorer=None)  # whole, not only its card


def refuse(_: Version) -> None:
    raise RequestError("invalid_request", "the server does not want it")


@pytest.mark.parametrize("before", ["nothing", "a plain folder", "a version", "a link of somebody's own"])
def test_what_a_server_does_not_take_up_changes_nothing(tmp_path: Path, folder: Path, before: str) -> None:
    one, two = checkpoint(tmp_path, 1), checkpoint(tmp_path, 2)
    if before == "a plain folder":
        shutil.copytree(one, folder / "mine")
    elif before == "a version":
        install(one, folder)
    elif before == "a link of somebody's own":
        (folder / "mine").symlink_to(one)
    for _ in range(2):
        with pytest.raises(RequestError, match="does not want it"):
            install(two, folder, take_up=refuse)
        if before == "nothing":
            assert not os.path.lexists(folder / "mine")
        else:
            assert current(folder) == "tuned by objective-1"
    taken = list[Version]()
    version = install(two, folder, take_up=taken.append)
    assert taken == [version] and current(folder) == "tuned by objective-2"
    if before in ("a plain folder", "a version"):
        for _ in range(2):
            with pytest.raises(RequestError, match="does not want it"):
                rollback(folder, "mine", take_up=refuse)
            assert current(folder) == "tuned by objective-2"
        assert rollback(folder, "mine", take_up=taken.append) == taken[-1]
        assert numbers(versions(folder, "mine")) == [(1, True), (2, False)]


def test_an_interruption_is_no_refusal(tmp_path: Path, folder: Path) -> None:
    """What asked the server goes on without us."""

    def interrupted(_: Version) -> None:
        raise KeyboardInterrupt

    install(checkpoint(tmp_path, 1), folder)
    with pytest.raises(KeyboardInterrupt):
        install(checkpoint(tmp_path, 2), folder, take_up=interrupted)
    assert numbers(versions(folder, "mine")) == [(1, False), (2, True)]


def test_a_version_has_the_time_when_it_was_installed(tmp_path: Path, folder: Path) -> None:
    old = checkpoint(tmp_path, 1)
    os.utime(old, (1e9, 1e9))
    before = time.time()
    assert install(old, folder).path.stat().st_mtime > before - 60


def test_a_plain_folder_becomes_the_first_version(tmp_path: Path, folder: Path) -> None:
    shutil.copytree(checkpoint(tmp_path, 1), folder / "mine")
    assert install(checkpoint(tmp_path, 2), folder).number == 2
    assert rollback(folder, "mine").number == 1 and current(folder) == "tuned by objective-1"


def test_another_id_may_be_given(tmp_path: Path, folder: Path) -> None:
    install(checkpoint(tmp_path, 1), folder, "blue")
    assert current(folder, "blue") == "tuned by objective-1"
    with pytest.raises(UnknownNameError, match="no version of 'mine' was installed"):
        versions(folder, "mine")


@pytest.mark.parametrize("model", ["..", ".hidden", "a/b", "", "x" * 101, "a\nb"])
def test_other_ids_are_refused(tmp_path: Path, folder: Path, model: str) -> None:
    with pytest.raises(RequestError, match="is no id"):
        install(checkpoint(tmp_path, 1), folder, model)
    with pytest.raises(UnknownNameError):
        rollback(folder, model)
    assert list(folder.iterdir()) == []


def test_a_damaged_checkpoint_is_not_installed(tmp_path: Path, folder: Path) -> None:
    install(checkpoint(tmp_path, 1), folder)
    damaged = checkpoint(tmp_path, 2)
    weights = next(damaged.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError) as caught:
        install(damaged, folder)
    assert caught.value.code == "hash_mismatch" and current(folder) == "tuned by objective-1"
    assert numbers(versions(folder, "mine")) == [(1, True)]


def test_a_damaged_version_is_not_gone_back_to(tmp_path: Path, folder: Path) -> None:
    first = install(checkpoint(tmp_path, 1), folder)
    install(checkpoint(tmp_path, 2), folder)
    next(first.path.glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointError):
        rollback(folder, "mine")
    assert current(folder) == "tuned by objective-2"


def test_what_is_no_captioner_is_not_installed(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="is no folder"):
        install(tmp_path / "nowhere", folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError):
        install(tmp_path / "empty", folder)
    assert list(folder.iterdir()) == []
