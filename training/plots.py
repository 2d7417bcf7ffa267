"""Plots of results, as PNG with the numbers behind them as JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import DataError
from training.dependencies import require
from training.report import Evaluation, to_json, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = (4.8, 3.8)
_TITLES = {
    "mean_words": "words a caption",
    "lexical_diversity": "different words over all captions (thousands)",
    "r_at_1": "self-retrieval R@1 (%)",
    "clip_score": "CLIPScore x100",
    "cider": "CIDEr x100",
    "content_matches": "content words a caption that are in a reference",
    "content_precision": "content words that are in a reference (%)",
    "repetition": "captions that repeat a 3-gram (%)",
}
_PLANE = (
    "mean_words",
    "lexical_diversity",
    "r_at_1",
    "clip_score",
    "cider",
    "content_matches",
    "content_precision",
    "repetition",
)
_DIAL = ("mean_words", "r_at_1", "clip_score", "content_precision")
_Y = "clip_score"
_XS = ("r_at_1", "mean_words")

Curves = Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]
"""By run and number: (step, value)."""


@dataclass(frozen=True)
class _Point:
    """A number in a plot, in the unit of its axis."""

    value: float
    low: float
    high: float

    @property
    def errors(self) -> list[list[float]]:
        """The lengths of the bars below and above."""
        return [[max(0.0, self.value - self.low)], [max(0.0, self.high - self.value)]]

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def check_plotting() -> None:
    """Nothing, where plots can be made.

    Raises:
        MissingDependencyError: matplotlib is absent.
    """
    require("matplotlib.figure", "train")


def has_trade_off(evaluations: Sequence[Evaluation]) -> bool:
    """Whether ``plot_trade_off`` finds what it shows."""
    return all({_Y, *_XS} <= {m.name for m in evaluation.measurements} for evaluation in evaluations)


def plot_trade_off(evaluations: Sequence[Evaluation], out: Path) -> None:
    """CLIPScore against self-retrieval and against length: a row of two panels per scorer, a point per captioner.

    Raises:
        DataError: ``no_data`` when no scorer gives both numbers.
        MissingDependencyError: matplotlib is absent.
    """
    scorers = dict.fromkeys(m.scorer for m in evaluations[0].measurements if m.name == _Y and m.scorer)
    data = {scorer: {evaluation.label: _points(evaluation, scorer) for evaluation in evaluations} for scorer in scorers}
    if not data or not all(point.keys() == {_Y, *_XS} for of in data.values() for point in of.values()):
        raise DataError("no_data", f"a trade-off needs {_Y}, {' and '.join(_XS)} of every model under a scorer")
    figure, panels = _grid(len(data), len(_XS))
    for row, (scorer, points) in enumerate(data.items()):
        for axes, x in zip(panels[row], _XS, strict=True):
            _draw_points(axes, points, x)
            axes.set_ylabel(f"{_TITLES[_Y]} ({scorer})")
    _save(figure, out, {s: {label: _plain(p) for label, p in of.items()} for s, of in data.items()})


def plot_plane(evaluations: Sequence[Evaluation], axes: Mapping[str, Sequence[float]], out: Path) -> None:
    """Heat maps over the mixes of two directions: a panel for each number, under each scorer.

    Args:
        evaluations: end with those of the plane, the first axis varying slowest.
        axes: coefficients by the name of their direction.

    Raises:
        MissingDependencyError: matplotlib is absent.
    """
    (down, ys), (across, xs) = axes.items()
    plane = evaluations[len(evaluations) - len(ys) * len(xs) :]
    shown = [m for name in _PLANE for m in plane[0].measurements if m.name == name]
    figure, panels = _grid(-(-len(shown) // 2), 2)
    flat = [panel for row in panels for panel in row]
    data = {}
    for panel, of in zip(flat, shown, strict=False):
        values = [evaluation.value(of.name, of.scorer) * of.table_scale for evaluation in plane]
        rows = [values[start : start + len(xs)] for start in range(0, len(values), len(xs))]
        title = _TITLES[of.name] + (f" ({of.scorer})" if of.scorer else "")
        _draw_map(panel, rows, title)
        panel.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        panel.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
        panel.set_xlabel(across)
        panel.set_ylabel(down)
        data[title] = rows
    for panel in flat[len(shown) :]:
        panel.set_axis_off()
    _save(figure, out, {"axes": {name: list(values) for name, values in axes.items()}, "values": data})


def plot_dial(evaluations: Sequence[Evaluation], out: Path) -> None:
    """Numbers over the descriptiveness that their captions were asked for: a panel for each, a line for each scorer.

    Raises:
        MissingDependencyError: matplotlib is absent.
    """
    at = [float(evaluation.context["descriptiveness"]) for evaluation in evaluations]
    names = [name for name in _DIAL if any(m.name == name for m in evaluations[0].measurements)]
    figure, panels = _grid(-(-len(names) // 2), 2)
    flat = [axes for row in panels for axes in row]
    data: dict[str, dict[str, list[float]]] = {}
    for axes, name in zip(flat, names, strict=False):
        for of in (m for m in evaluations[0].measurements if m.name == name):
            values = [evaluation.value(name, of.scorer) * of.table_scale for evaluation in evaluations]
            axes.plot(at, values, marker=".", label=of.scorer)
            data.setdefault(name, {})[of.scorer or "text"] = values
        axes.set_title(_TITLES[name], fontsize=10)
        axes.set_xlabel("descriptiveness")
        axes.grid(alpha=0.3)
        if len(data[name]) > 1:
            axes.legend(fontsize=8)
    for axes in flat[len(names) :]:
        axes.set_axis_off()
    _save(figure, out, {"descriptiveness": at, "values": data})


def plot_curves(curves: Curves, names: Sequence[str], out: Path) -> None:
    """The numbers ``names`` over the steps of training: a panel for each, a line for each run."""
    columns = min(2, len(names))
    figure, panels = _grid(-(-len(names) // columns), columns)
    flat = [axes for row in panels for axes in row]
    for axes, name in zip(flat, names, strict=False):
        for run, numbers in curves.items():
            steps, values = zip(*numbers.get(name, [(float("nan"), float("nan"))]), strict=True)
            axes.plot(steps, [value * _scale(name) for value in values], marker=".", label=run)
        axes.set_title(_TITLES.get(name, name), fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    for axes in flat[len(names) :]:
        axes.set_axis_off()
    flat[0].legend(fontsize=8)
    _save(
        figure,
        out,
        {run: {name: numbers[name] for name in names if name in numbers} for run, numbers in curves.items()},
    )


def _points(evaluation: Evaluation, scorer: str) -> dict[str, _Point]:
    points = {}
    for measurement in evaluation.measurements:
        if measurement.name in (_Y, *_XS) and measurement.scorer in (scorer, None):
            estimate = evaluation.estimate(measurement)
            low, high = estimate.interval if estimate else (measurement.value, measurement.value)
            scale = _scale(measurement.name)
            points[measurement.name] = _Point(measurement.value * scale, low * scale, high * scale)
    return points


def _draw_points(axes: Axes, points: Mapping[str, Mapping[str, _Point]], x: str) -> None:
    for number, (label, of) in enumerate(points.items()):
        across, up, colour = of[x], of[_Y], f"C{number % 10}"
        look: dict[str, Any] = {"fmt": "o", "color": colour, "capsize": 2, "elinewidth": 1}
        axes.errorbar(across.value, up.value, xerr=across.errors, yerr=up.errors, **look)
        place: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8, "color": colour}
        axes.annotate(label, (across.value, up.value), **place)
    axes.margins(0.15)
    axes.set_xlabel(_TITLES[x])
    axes.grid(alpha=0.3)


def _draw_map(axes: Axes, rows: Sequence[Sequence[float]], title: str) -> None:
    axes.imshow(rows, origin="lower", aspect="auto", cmap="viridis")
    flat = [value for row in rows for value in row]
    middle = (min(flat) + max(flat)) / 2
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            colour = "black" if value > middle else "white"
            axes.text(x, y, f"{value:.3g}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_title(title, fontsize=10)


def _grid(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    """A figure of panels, of matplotlib's object interface: it needs no display and leaves no state behind."""
    module = require("matplotlib.figure", "train")
    figure: Figure = module.Figure(figsize=(_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows), layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def _save(figure: Figure, out: Path, data: Any) -> None:
    figure.savefig(out, format="png", dpi=120)
    write_text(out.with_suffix(".json"), to_json(data))


def _plain(points: Mapping[str, _Point]) -> dict[str, dict[str, float]]:
    return {name: point.to_json() for name, point in points.items()}


def _scale(name: str) -> float:
    return 100.0 if name in ("r_at_1", "clip_score") else 1.0
