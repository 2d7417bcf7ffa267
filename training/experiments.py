"""The plan of a set of experiments: which runs, mixes of them and tables, in one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.errors import DataError

PLAN_FILE = "experiments.yaml"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Run(_Section):
    """A training run; its checkpoint is called what the run is called, whatever its recipe says."""

    recipe: str
    """File, or name of a recipe that limner ships."""
    settings: tuple[str, ...] = ()
    """Overrides, dotted key=value."""


class Row(_Section):
    """Whose captions a row measures: exactly one of ``model``, ``run`` and ``mix``."""

    model: str | None = None
    """Id or folder."""
    run: str | None = None
    mix: Mapping[str, float] | None = None
    """Coefficients of directions."""
    descriptiveness: float | None = Field(default=None, ge=0, le=1)
    """Of a model that is a spectrum."""
    decode: Mapping[str, Any] | None = None
    """As in a request. None: the table's, else the model's own."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("model", "run", "mix") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a row needs exactly one of model, run and mix, not {' and '.join(given) or 'none'}")
        return self


class Table(_Section):
    """Rows that are measured alike; the first is what the others are compared with."""

    split: Literal["train", "val", "test"] = "test"
    rows: Mapping[str, Row] = {}
    plane: Mapping[str, tuple[float, ...]] | None = None
    """Rows besides: every combination of these coefficients of two directions."""
    decode: Mapping[str, Any] | None = None
    num_captions: int = Field(default=1, ge=1)
    """Of each image, for metrics of diversity."""
    metrics: tuple[str, ...] | None = None
    """None: all that cost little."""

    @model_validator(mode="after")
    def _two_axes(self) -> Self:
        if self.plane is not None and len(self.plane) != 2:
            raise ValueError(f"a plane has two directions, not {len(self.plane)}")
        return self

    def all_rows(self) -> dict[str, Row]:
        """The rows that are named and those of the plane, called such as ``smile 0.5, contrastive 2``."""
        rows = dict(self.rows)
        if self.plane is not None:
            (down, ys), (across, xs) = self.plane.items()
            for mix in ({down: y, across: x} for y in ys for x in xs):
                rows[", ".join(f"{name} {value:g}" for name, value in mix.items())] = Row(mix=mix)
        return rows


class Experiments(_Section):
    """All of it, in the order in which it is made."""

    data: Mapping[str, Any]
    """Options of the karpathy format."""
    scorers: tuple[str, ...]
    """Ids, folders, or names of runs."""
    base: str = "concise"
    """What mixes start from."""
    runs: Mapping[str, Run] = Field(default_factory=dict)
    directions: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Runs whose mean each direction of the mixes is; it is kept as int4 differences to the base, and mixed as such."""
    tables: Mapping[str, Table]

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        for name, runs in self.directions.items():
            for run in runs:
                self._known("runs", run, f"directions.{name}")
        for table_name, table in self.tables.items():
            for label, row in table.all_rows().items():
                where = f"tables.{table_name}.rows.{label}"
                if row.run is not None:
                    self._known("runs", row.run, where)
                for direction in row.mix or ():
                    self._known("directions", direction, where)
        return self

    def _known(self, section: Literal["runs", "directions"], name: str, where: str) -> None:
        if name not in (known := getattr(self, section)):
            raise ValueError(f"{where}: {name!r} is none of the {section}: {', '.join(known)}")


def read_experiments(folder: Path) -> Experiments:
    """The plan in ``experiments.yaml`` of ``folder``.

    Raises:
        DataError: ``no_data`` where there is none; ``wrong_schema``, naming the setting, where it is no plan.
    """
    path = folder / PLAN_FILE
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError("no_data", f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError("wrong_schema", f"{path} is no YAML: {error}") from error
    try:
        return Experiments.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError("wrong_schema", f"{path}: {where}{': ' if where else ''}{first['msg']}") from error
