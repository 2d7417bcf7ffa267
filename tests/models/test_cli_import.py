from pathlib import Path

import pytest
import torch

from models import cli
from models.card import read_card
from tests.models.original_blip import random_state, save_vocabulary


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.save({"model": random_state()}, tmp_path / "captioner.pth")
    save_vocabulary(tmp_path)
    return tmp_path / "captioner.pth"


def test_import_writes_a_model_that_is_shown(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = source.parent / "models/smile"
    words = ["models", "import", str(source), "--out", str(out), "--vocab", str(source.parent)]
    assert cli.run([*words, "--id", "smile", "--licence", "BSD-3-Clause"]) == 0
    assert capsys.readouterr().out.startswith("smile: BLIP captioner imported from captioner.pth, 48 px")
    assert read_card(out).licence == "BSD-3-Clause"
    assert cli.run(["models", "show", "smile", "--models-dir", str(out.parent)]) == 0
    assert "verified" in capsys.readouterr().out


def test_what_cannot_be_imported_is_told_in_one_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["models", "import", str(source), "--out", str(source.parent / "out"), "--vocab", str(source.parent)]
    assert cli.run([*words, "--size", "base"]) == 2
    assert capsys.readouterr().err.startswith("error: bad_config: ")
    assert cli.run([*words, "--size", "huge"]) == 2
    assert cli.run(["models", "import", "nowhere.pth", "--out", "x"]) == 2
    err = capsys.readouterr().err
    assert err.count("error: usage: ") == err.count("\n") == 2
