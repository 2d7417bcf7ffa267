"""Plots are pictures, and the numbers behind them lie beside them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from models.errors import DataError
from tests.training.evaluation.support import evaluation
from training.plots import has_trade_off, plot_curves, plot_dial, plot_trade_off

ONE = evaluation("one", words=8.0, r_at_1=0.2, clip_score=0.7)
TWO = evaluation("two", words=12.0, r_at_1=0.4, clip_score=0.6)


def size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return image.size


def test_a_trade_off_has_two_panels_for_each_scorer(tmp_path: Path) -> None:
    out = tmp_path / "trade_off.png"
    plot_trade_off([ONE, TWO], out)
    width, height = size(out)
    assert width > 2 * height
    data = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert list(data) == ["s"]
    assert data["s"]["two"] == {
        "mean_words": {"value": 12.0, "low": 11.0, "high": 14.0},
        "r_at_1": {"value": 40.0, "low": 40.0, "high": 40.0},
        "clip_score": {"value": 60.0, "low": 60.0, "high": 60.0},
    }


def test_what_no_scorer_measured_cannot_be_plotted(tmp_path: Path) -> None:
    bare = evaluation("bare", words=1, r_at_1=0, clip_score=0)
    without = type(bare)(bare.label, bare.context, bare.measurements[:1])
    assert has_trade_off([ONE, TWO])
    assert not has_trade_off([ONE, without])
    with pytest.raises(DataError, match="a trade-off needs"):
        plot_trade_off([ONE, without], tmp_path / "x.png")


def test_curves_have_a_panel_for_each_number_and_a_line_for_each_run(tmp_path: Path) -> None:
    out = tmp_path / "curves.png"
    curves = {
        "a": {"mean_words": [(10, 9.0), (20, 12.0)], "r_at_1": [(10, 0.1), (20, 0.2)], "nll": [(10, 3.0)]},
        "b": {"mean_words": [(10, 9.5)]},
    }
    plot_curves(curves, ["mean_words", "r_at_1", "nll"], out)
    width, height = size(out)
    assert width / height == pytest.approx(4.8 / 3.8, abs=0.05)  # two by two
    data = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert data["b"] == {"mean_words": [[10, 9.5]]}


def test_a_dial_has_a_panel_for_each_number(tmp_path: Path) -> None:
    out = tmp_path / "dial.png"
    plot_dial([replace(each, context={"descriptiveness": at}) for at, each in ((0.0, ONE), (1.0, TWO))], out)
    width, height = size(out)
    assert width / height == pytest.approx(4.8 / 3.8, abs=0.05)  # two by two, one of them empty
    assert json.loads(out.with_suffix(".json").read_text(encoding="utf-8")) == {
        "descriptiveness": [0.0, 1.0],
        "values": {
            "mean_words": {"text": [8.0, 12.0]},
            "r_at_1": {"s": [20.0, 40.0]},
            "clip_score": {"s": [70.0, 60.0]},
        },
    }
