from pathlib import Path

import pytest

from models import cli
from models.card import SpectrumCard, read_card
from tests.models.mixing.tiny_space import write_space


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_space(tmp_path_factory.mktemp("space"))


def _spectrum(space: Path, *words: str) -> int:
    directions = ["-d", "s=smile", "-d", "c=contrastive", "--models-dir", str(space), "--out", str(space / "dial")]
    return cli.run(["models", "spectrum", "base", *directions, *words])


def test_a_dial_by_its_anchors(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _spectrum(space, "-a", "0.4 s=1", "-a", "1 s=1 c=-1.5", "--default", "0.25") == 0
    assert "a spectrum of 21 mixes, not measured yet: limner models calibrate" in capsys.readouterr().out
    card = read_card(space / "dial")
    assert isinstance(card, SpectrumCard)
    assert (card.id, card.description, card.default) == ("dial", "a dial from base along s, c", 0.25)
    assert card.grid[14].coefficients == {"s": 1.0, "c": -0.75}
    assert cli.run(["models", "show", "dial", "--models-dir", str(space)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "default      descriptiveness 0.25" in lines
    assert "point        0.70: (+1 s -0.75 c)" in lines and "point        0.00: (the base)" in lines


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-a", "half s=1"], "anchor 'half s=1' does not begin with a number"),
        (["-a", "1 s=much"], "coefficient s=much is no number"),
        (["-a", "1 s"], "'s' is not key=value"),
        (["-a", "1 x=1"], "no direction 'x'; there are: c, s"),
        (["-a", "1 s=nan"], "coefficient"),
    ],
)
def test_wrong_anchors(space: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str) -> None:
    assert _spectrum(space, *words) == 2
    assert error in capsys.readouterr().err
