"""``card.json``: what a checkpoint folder is, where it comes from and how good it is. Loads no torch.

The format is frozen under ``format: 1``; a change that old readers would misread gets a new number.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from models.errors import CheckpointError

CARD_FILE = "card.json"
MAX_COEFFICIENT = 4.0
"""How far a mix may go along a direction, either way; 1 is the direction's own model."""
MAX_GUIDANCE = 10.0


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Named(_Record):
    """A variant and its options, as recipes and requests write it."""

    name: str
    options: dict[str, Any] = {}


class Decoding(Named):
    """A decoding strategy, its options and its guidance, of which 1 is none and is not written."""

    guidance: float = Field(default=1.0, ge=0, le=MAX_GUIDANCE, exclude_if=lambda guidance: guidance == 1.0)


class DataSource(_Record):
    """Data that the weights were trained on, with its terms."""

    name: str
    split: str
    images: int
    captions: int
    terms: str


class Measurement(_Record):
    """Measured values with all that is needed to read them."""

    split: str
    images: int
    values: dict[str, float]
    decoding: Decoding | None = None
    scorer: str | None = None
    tokenizer: str | None = None


class FilePart(_Record):
    """Tensors in a file of this folder."""

    file: str
    sha256: str


class SharedPart(_Record):
    """Tensors that are a part of another model of the same models root."""

    model: str
    part: str
    sha256: str | None = None
    """What the part's file must be; None takes the owner's word for it."""


class PinnedPart(SharedPart):
    """A shared part that must be this very file."""

    sha256: str


class DeltaPart(FilePart):
    """Tensors in a file of this folder, as differences to another model's (``models.mixing.quantised_delta``)."""

    base: PinnedPart


class Reference(_Record):
    """Another checkpoint, named by its id."""

    model: str
    sha256: str
    """The fingerprint that it must have (``models.mixing.references``)."""


class Direction(Reference):
    """A checkpoint that a mix moves towards, and how far."""

    coefficient: float = Field(ge=-MAX_COEFFICIENT, le=MAX_COEFFICIENT)


class CardBase(_Record):
    """What every card says."""

    format: Literal[1] = 1
    id: str
    description: str
    licence: str
    objective: Named | None = None
    data: list[DataSource] = []
    origin: list[str] = []
    """Works that the weights were initialised from, with their licences."""
    seed: int | None = None
    git_revision: str | None = None
    measurements: list[Measurement] = []
    files: dict[str, str] = {}
    """sha256 of every further file that loading reads, such as ``config.json`` and the tokenizer."""


class CaptionerCard(CardBase):
    """What every captioner's card says."""

    kind: Literal["weights", "mix", "spectrum"]
    family: str
    decoding: Decoding | None = None
    """How captions are decoded where nobody says how, chosen on val; None: the default strategy, for a mix its base's
    decoding."""


class WeightsCard(CaptionerCard):
    """A captioner with weights of its own."""

    kind: Literal["weights"] = "weights"
    parts: dict[str, FilePart | SharedPart | DeltaPart] = {}


class MixCard(CaptionerCard):
    """A captioner whose weights are computed when it is loaded: base + sum of coefficient * (direction - base)."""

    kind: Literal["mix"] = "mix"
    base: Reference
    directions: dict[str, Direction]

    @property
    def coefficients(self) -> dict[str, float]:
        """Coefficients by the name of their direction."""
        return {name: direction.coefficient for name, direction in self.directions.items()}


class SpectrumPoint(_Record):
    """A mix on the way from the most concise to the most descriptive."""

    descriptiveness: float = Field(ge=0, le=1)
    coefficients: dict[str, float] = {}
    """By direction; one that is not named is 0."""
    expected_words: float | None = None
    """Mean words of a caption as calibrated; None before that."""
    measures: dict[str, float] = {}
    """What else was measured there, by the metrics' names."""


class Calibration(_Record):
    """What the points of a spectrum were measured on."""

    split: str
    images: int
    decoding: Decoding
    scorer: str | None = None


class SpectrumCard(CaptionerCard):
    """A path of mixes of one base and its directions; a request says how far along it goes."""

    kind: Literal["spectrum"] = "spectrum"
    base: Reference
    directions: dict[str, Reference]
    grid: list[SpectrumPoint] = Field(min_length=2)
    """By descriptiveness, from 0 to 1."""
    default: float = Field(default=0.0, ge=0, le=1)
    """The descriptiveness of who asks for none."""
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _grid_is_a_path(self) -> Self:
        places = [point.descriptiveness for point in self.grid]
        if places != sorted(set(places)) or places[0] != 0 or places[-1] != 1:
            raise ValueError("the grid must rise from descriptiveness 0 to 1")
        for point in self.grid:
            if odd := sorted(point.coefficients.keys() - self.directions.keys()):
                raise ValueError(f"the point {point.descriptiveness:g} names a direction {odd[0]!r} that there is not")
            if any(abs(value) > MAX_COEFFICIENT for value in point.coefficients.values()):
                raise ValueError(f"a coefficient of the point {point.descriptiveness:g} is beyond {MAX_COEFFICIENT:g}")
        return self

    def nearest(self, descriptiveness: float) -> SpectrumPoint:
        """The point of the grid that is closest; of two as close, the more concise."""
        return min(self.grid, key=lambda point: abs(point.descriptiveness - descriptiveness))


class ScorerCard(CardBase):
    """A dual encoder in open_clip's format that gives CLIPScores."""

    kind: Literal["scorer"] = "scorer"
    parts: dict[str, FilePart] = {}
    prefix: str = "A photo depicts "
    weight: float = 2.5
    """The w of CLIPScore = w * max(cos, 0)."""
    score_range: tuple[float, float] | None = None
    """5th and 95th percentile of CLIPScore over the human captions of val: scores mean something only within it."""


ArithmeticCard = MixCard | SpectrumCard
"""Cards of captioners whose weights are sums of those of others."""
Card = WeightsCard | MixCard | SpectrumCard | ScorerCard
_CARD: TypeAdapter[Card] = TypeAdapter(Annotated[Card, Field(discriminator="kind")])


def read_card(folder: Path) -> Card:
    """The card of a checkpoint folder.

    Raises:
        CheckpointError: ``missing_file`` or ``bad_card``, naming the file and the field.
    """
    path = folder / CARD_FILE
    try:
        data = path.read_bytes()
        card = _CARD.validate_json(data)
        json.loads(data, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
        return card
    except OSError as error:
        raise CheckpointError("missing_file", f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(key) for key in first["loc"]) or "the file"
        raise CheckpointError("bad_card", f"{path} is no valid card: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:  # what pydantic lets pass and readers understand in different ways
        raise CheckpointError("bad_card", f"{path} is no valid card: {error}") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("an object names a key twice")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def dump_card(card: Card) -> str:
    """The card as the text of its file."""
    return json.dumps(card.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False) + "\n"
