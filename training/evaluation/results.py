"""Reading of the files that evaluations and comparisons write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from models.errors import DataError
from training.data.files import describe_json, load_json
from training.metrics.interface import Measurement
from training.report import Estimate, Evaluation

_MEASUREMENT: TypeAdapter[Measurement] = TypeAdapter(Measurement)
_ESTIMATE: TypeAdapter[Estimate] = TypeAdapter(Estimate)
_OF_ESTIMATES = ("interval", "method", "difference")


def read_results(path: Path) -> list[Evaluation]:
    """The evaluations in an ``evaluation.json`` (one) or a ``comparison.json``, without captions.

    Raises:
        DataError: ``no_data``, ``not_json``, or ``wrong_schema`` for a file of another kind.
    """
    raw = load_json(path)
    bodies = raw.get("evaluations", [raw]) if isinstance(raw, dict) else None
    if not isinstance(bodies, list) or not bodies or not all(map(_is_evaluation, bodies)):
        raise DataError("wrong_schema", f"{path} is {describe_json(raw)}; an evaluation has label and measurements")
    try:
        return [_evaluation(body) for body in bodies]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "a measurement"
        raise DataError("wrong_schema", f"{path} is no evaluation: {where}: {first['msg']}") from error


def _is_evaluation(body: Any) -> bool:
    if not isinstance(body, dict) or not isinstance(body.get("label"), str):
        return False
    measurements = body.get("measurements")
    return isinstance(measurements, list) and all(isinstance(item, dict) for item in measurements)


def _evaluation(body: Mapping[str, Any]) -> Evaluation:
    context = {name: value for name, value in body.items() if name not in ("label", "measurements")}
    measurements, estimates = [], {}
    for raw in body["measurements"]:
        estimate = {name: raw[name] for name in _OF_ESTIMATES if name in raw}
        kept = {name: value for name, value in raw.items() if name not in _OF_ESTIMATES}
        measurement = _MEASUREMENT.validate_python(kept)
        measurements.append(measurement)
        if estimate:
            estimates[measurement.name, measurement.scorer] = _ESTIMATE.validate_python(estimate)
    return Evaluation(body["label"], context, tuple(measurements), estimates=estimates)
