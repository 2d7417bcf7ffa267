"""The built wheel holds what a user needs, and git holds it too."""

import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

from models import __version__
from tests.import_graph import PACKAGES, ROOT, source_files

MOST_BYTES, MOST_BYTES_TOGETHER = 20_000_000, 52_000_000
"""Of one bundled model, and of all."""


def _data_files() -> set[str]:
    """Every file of the bundled models, every recipe, every template and the page, relative to the root."""
    folders = ("models/bundled", "training/recipes", "serving/templates", "serving/page")
    found = {path for folder in folders for path in (ROOT / folder).rglob("*")}
    return {path.relative_to(ROOT).as_posix() for path in found if path.is_file() and not _hidden(path)}


def _hidden(path: Path) -> bool:
    """Drafts of an unfinished write, caches."""
    return any(part.startswith((".", "__")) for part in path.relative_to(ROOT).parts)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """A wheel built from a copy, so that the checkout stays clean."""
    source = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (source / "dist").glob("*.whl")
    return ZipFile(built)


def test_the_wheel_holds_every_module_and_data_file(wheel: ZipFile) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in source_files().values()}
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert modules | _data_files() <= names
    assert {PurePosixPath(name).parts[0] for name in names} == set(PACKAGES)


def test_the_wheel_says_what_it_is(wheel: ZipFile) -> None:
    folder = f"limner-{__version__}.dist-info"
    metadata = wheel.read(f"{folder}/METADATA").decode()
    for line in (f"Version: {__version__}", "License-Expression: Apache-2.0", "Requires-Python: >=3.11"):
        assert f"{line}\n" in metadata
    assert "limner = models.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert {f"{folder}/licenses/LICENSE", f"{folder}/licenses/NOTICE"} <= set(wheel.namelist())


def test_git_drops_no_data_file() -> None:
    files = sorted(_data_files())
    command = ["git", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(command, cwd=ROOT, input="\n".join(files), capture_output=True, text=True, check=False)
    if done.returncode == 128:  # no checkout, such as an unpacked source archive
        pytest.skip("not a git checkout")
    assert done.stdout == ""


def test_bundled_models_are_small() -> None:
    sizes = {
        folder.name: sum(path.stat().st_size for path in folder.iterdir())
        for folder in (ROOT / "models/bundled").iterdir()
        if not _hidden(folder)
    }
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}
    assert sum(sizes.values()) <= MOST_BYTES_TOGETHER
