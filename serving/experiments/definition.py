"""What an experiment is, and the YAML file that defines them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from models.card import MAX_COEFFICIENT
from models.decoding import DEFAULT_STRATEGY, parse_decode
from models.errors import ExperimentError, LimnerError
from serving.schemas import DecodeInput
from serving.validation import explain

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""Of an experiment or an arm; it becomes a label of metrics and a part of ids."""


class _Definition(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Arm(_Definition):
    """One way to caption; what it leaves open is as the request has it."""

    label: Name
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="relative; 0: nobody new is assigned")
    model: str | None = Field(default=None, description="None: the server's default")
    descriptiveness: float | None = Field(default=None, ge=0, le=1)
    mix: dict[str, Annotated[float, Field(ge=-MAX_COEFFICIENT, le=MAX_COEFFICIENT)]] | None = None
    decode: DecodeInput | None = None

    @field_validator("decode")
    @classmethod
    def _can_decode(cls, decode: DecodeInput | None) -> DecodeInput | None:
        given = decode.model_dump(exclude_none=True, exclude={"rerank"}) if decode else {}
        if given:
            try:
                parse_decode({"name": DEFAULT_STRATEGY, **given})
            except LimnerError as error:
                raise ValueError(error.detail) from None
        return decode

    @model_validator(mode="after")
    def _one_way_to_mix(self) -> Self:
        if self.descriptiveness is not None and self.mix is not None:
            raise ValueError("give descriptiveness or mix, not both")
        return self


class Experiment(_Definition):
    """Arms that are compared; every unit (a user, say) sees one of them."""

    name: Name
    arms: tuple[Arm, ...] = Field(min_length=2, max_length=6)
    score_share: float = Field(default=1.0, ge=0, le=1, description="share of the requests that are scored")

    @model_validator(mode="after")
    def _arms_can_be_assigned(self) -> Self:
        _refuse_duplicates([arm.label for arm in self.arms], "label")
        if not any(arm.weight for arm in self.arms):
            raise ValueError("every arm has weight 0; give at least one a positive weight")
        if not math.isfinite(sum(arm.weight for arm in self.arms)):
            raise ValueError("the weights are too large; they are relative, so 1 and 2 do as well")
        return self

    def arm(self, label: str) -> Arm | None:
        """The arm of that label."""
        return next((arm for arm in self.arms if arm.label == label), None)


class _File(_Definition):
    experiments: tuple[Experiment, ...]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        check_names(self.experiments)
        return self


def check_names(experiments: Sequence[Experiment]) -> None:
    """Raise ValueError where two experiments have one name."""
    _refuse_duplicates([experiment.name for experiment in experiments], "name")


def read_experiments(path: Path) -> tuple[Experiment, ...]:
    """The experiments of a YAML file, a list under the key ``experiments``.

    Raises:
        ExperimentError: ``bad_experiments``; the detail names the file, the field and what is allowed.
    """
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror}); name a YAML file") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: bytes, dates and numbers that are none
        raise _refusal(path, f"is no YAML: {error}") from error
    if not isinstance(raw, dict):
        raise _refusal(path, "must hold a list under the key 'experiments'")
    try:
        return _File.model_validate(raw).experiments
    except ValidationError as error:
        raise _refusal(path, explain(error)) from None


def _refuse_duplicates(names: Sequence[str], what: str) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{what} {twice[0]!r} stands twice; each needs its own")


def _refusal(path: Path, problem: str) -> ExperimentError:
    return ExperimentError("bad_experiments", f"{path}: {' '.join(problem.split())}")
