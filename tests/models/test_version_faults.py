"""Installs that are cut short, that meet each other, or that find a store which somebody has changed by hand."""

import os
import random
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from models import versions as module
from models.catalog import find_captioner
from models.errors import CheckpointError, RequestError, UnknownNameError
from models.file_hashes import verify_files
from models.versions import install, rollback, versions
from tests.models.test_versions import checkpoint, current, folder, numbers

__all__ = ["folder"]  # the fixture

FORKED = get_context("fork")


class Killed(BaseException):
    """What a kill at this place leaves behind."""


def whole(folder: Path) -> str:
    """The description of the current version, whose files are what its card says."""
    entry = find_captioner("mine", folder)
    assert entry.path is not None
    verify_files(entry.path, entry.card)
    return entry.card.description


@pytest.mark.parametrize("moment", range(8))
@pytest.mark.parametrize("plain", [True, False])
def test_killed_at_any_move_the_store_is_old_or_new(
    tmp_path: Path, folder: Path, moment: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        shutil.copytree(checkpoint(tmp_path, 1), folder / "mine")
    else:
        install(checkpoint(tmp_path, 1), folder)
    second = checkpoint(tmp_path, 2)
    moves = 0

    def cut_short(name: str) -> Callable[..., object]:
        original = getattr(Path, name)

        def move(*arguments: object, **options: object) -> object:
            nonlocal moves
            moves += 1
            if moves > moment:
                raise Killed
            return original(*arguments, **options)

        return move

    with monkeypatch.context() as patched, pytest.MonkeyPatch.context() as no_tidying:
        for name in ("rename", "replace", "symlink_to", "mkdir"):
            patched.setattr(Path, name, cut_short(name))
        no_tidying.setattr(shutil, "rmtree", lambda *_, **__: None)
        with suppress(Killed):
            install(second, folder)
    assert whole(folder) in ("tuned by objective-1", "tuned by objective-2")
    install(checkpoint(tmp_path, 3), folder)
    assert whole(folder) == "tuned by objective-3"
    kept = [find_captioner(str(version.path)).card.description for version in versions(folder, "mine")]
    assert "tuned by objective-1" in kept and len(kept) == len(set(kept))
    assert not [name for name in os.listdir(folder / ".versions" / "mine") if name.startswith(".")]
    assert sorted(os.listdir(folder)) == [".versions", "mine"]


def test_a_plain_folder_that_was_exchanged_is_not_lost(tmp_path: Path, folder: Path) -> None:
    install(checkpoint(tmp_path, 2), folder)
    (folder / ".versions" / "mine" / "0001").rename(folder / ".versions" / "mine" / "0002")
    (folder / "mine").unlink()
    (folder / "mine").symlink_to(".versions/mine/0002")
    shutil.copytree(checkpoint(tmp_path, 1), folder / ".versions" / "mine" / ".link")  # killed before its last move
    install(checkpoint(tmp_path, 3), folder)
    assert rollback(folder, "mine", 1).number == 1 and whole(folder) == "tuned by objective-1"


@pytest.mark.parametrize("can", [True, False])
def test_without_an_exchange_the_plain_folder_is_kept_as_well(
    tmp_path: Path, folder: Path, can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can:
        monkeypatch.setattr(module, "exchange", lambda *_: False)
    shutil.copytree(checkpoint(tmp_path, 1), folder / "mine")
    install(checkpoint(tmp_path, 2), folder)
    assert numbers(versions(folder, "mine")) == [(1, False), (2, True)]
    (folder / "mine").unlink()
    shutil.copytree(checkpoint(tmp_path, 3), folder / "mine")  # by hand, in place of the link
    assert rollback(folder, "mine", 1).number == 1
    assert numbers(versions(folder, "mine")) == [(1, True), (2, False), (3, False)]


def test_two_that_install_at_once_make_two_versions(tmp_path: Path, folder: Path) -> None:
    sources = [checkpoint(tmp_path, seed) for seed in (1, 2, 3)]
    workers = [FORKED.Process(target=install, args=(sources[number % 3], folder)) for number in range(9)]
    random.Random(0).shuffle(workers)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {worker.exitcode for worker in workers} == {0}
    assert [version.number for version in versions(folder, "mine")] == list(range(1, 10))


@pytest.mark.parametrize("name", ["²", "٣", "7", "00007", "0050"])
def test_other_things_in_the_store_are_no_versions(tmp_path: Path, folder: Path, name: str) -> None:
    install(checkpoint(tmp_path, 1), folder)
    install(checkpoint(tmp_path, 2), folder)
    (folder / ".versions" / "mine" / name).write_text("")
    assert numbers(versions(folder, "mine")) == [(1, False), (2, True)]
    assert rollback(folder, "mine").number == 1
    assert install(checkpoint(tmp_path, 3), folder).current


def test_a_link_that_leads_to_itself_is_no_version(tmp_path: Path, folder: Path) -> None:
    install(checkpoint(tmp_path, 1), folder)
    (folder / "mine").unlink()
    (folder / "mine").symlink_to("mine")
    assert numbers(versions(folder, "mine")) == [(1, False)]
    assert rollback(folder, "mine", 1).current and current(folder) == "tuned by objective-1"


def test_a_file_of_that_id_is_not_replaced(tmp_path: Path, folder: Path) -> None:
    (folder / "mine").write_text("precious")
    with pytest.raises(RequestError, match="is a file: it is not replaced"):
        install(checkpoint(tmp_path, 1), folder)
    assert (folder / "mine").read_text() == "precious"
    with pytest.raises(UnknownNameError, match="no version of 'mine' was installed"):
        versions(folder, "mine")


def test_the_id_is_the_name_that_was_given_not_that_of_the_version_it_leads_to(tmp_path: Path, folder: Path) -> None:
    install(checkpoint(tmp_path, 1), folder)
    assert install(folder / "mine", folder).model == "mine"


def test_a_folder_that_holds_the_models_folder_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, 1)
    (source / "models").mkdir()
    with pytest.raises(RequestError, match="holds .*, into which it is to be copied"):
        install(source, source / "models")


def test_what_cannot_be_read_is_named(tmp_path: Path, folder: Path) -> None:
    source = checkpoint(tmp_path, 1)
    (source / "notes").symlink_to("nowhere")
    with pytest.raises(CheckpointError, match=r"cannot be changed: .*notes: .*No such file"):
        install(source, folder)
    (source / "notes").unlink()
    os.mkfifo(source / "notes")
    with pytest.raises(CheckpointError, match="notes is neither a file nor a folder"):
        install(source, folder)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, 1)
    (source / "config.json").unlink()
    os.mkfifo(source / "config.json")
    with pytest.raises(CheckpointError, match="is neither a file nor a folder"):
        verify_files(source, find_captioner(str(source)).card)
    (source / "config.json").unlink()
    (source / "config.json").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="is neither a file nor a folder"):
        verify_files(source, find_captioner(str(source)).card)


def test_a_source_that_changes_while_it_is_copied_is_not_installed(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(checkpoint(tmp_path, 1), folder)
    copytree = shutil.copytree

    def changed(source: Path, target: Path) -> None:
        copytree(source, target)
        next(target.glob("*.safetensors")).write_bytes(b"other")

    monkeypatch.setattr(shutil, "copytree", changed)
    with pytest.raises(CheckpointError) as caught:
        install(checkpoint(tmp_path, 2), folder)
    assert caught.value.code == "hash_mismatch" and whole(folder) == "tuned by objective-1"
    assert numbers(versions(folder, "mine")) == [(1, True)]


def test_others_can_read_what_one_user_installs_whatever_the_umask(tmp_path: Path, folder: Path) -> None:
    source = checkpoint(tmp_path, 1)
    source.chmod(0o700)
    (source / "config.json").chmod(0o600)
    folder.chmod(0o755)
    before = os.umask(0o077)
    try:
        install(source, folder)
    finally:
        os.umask(before)
    paths = [*(folder / ".versions").rglob("*"), folder / ".versions"]
    assert paths and all(path.stat().st_mode & stat.S_IROTH for path in paths)


def test_a_model_is_loaded_from_one_version_whatever_the_link_does(tmp_path: Path, folder: Path) -> None:
    install(checkpoint(tmp_path, 1), folder)
    entry = find_captioner("mine", folder)
    install(checkpoint(tmp_path, 2), folder)
    assert entry.path is not None and entry.id == "mine"
    verify_files(entry.path, entry.card)  # of the version that was found, not of the one that came since


def test_a_full_disk_leaves_the_version_that_is_there(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(checkpoint(tmp_path, 1), folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(CheckpointError, match="cannot be changed: No space left on device"):
        install(checkpoint(tmp_path, 2), folder)
    monkeypatch.setattr(Path, "symlink_to", full)
    with pytest.raises(CheckpointError, match="No space left"):
        rollback(folder, "mine", 1)
    assert whole(folder) == "tuned by objective-1"
