"""The models that can be named: bundled ones, those of a models folder, plain folders, hub ids. Loads no torch."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from models.card import (
    CARD_FILE,
    ArithmeticCard,
    FilePart,
    ScorerCard,
    SharedPart,
    SpectrumCard,
    SpectrumPoint,
    WeightsCard,
    read_card,
)
from models.errors import CheckpointError, RequestError, UnknownNameError

BUNDLED = Path(__file__).parent / "bundled"
STORE = ".versions"
"""Of a models folder: what ``models.versions`` installed, ``.versions/ID/NUMBER``."""
DEFAULT_MODEL = "dial"
DEFAULT_SCORER = "scorer"

FAKE_CARD = WeightsCard(
    id="fake", family="fake", description="deterministic captions without weights, for tests", licence="Apache-2.0"
)
HUB_FAMILIES = {"blip": "blip", "vision-encoder-decoder": "vision_encoder_decoder"}
"""transformers' ``model_type`` -> our family; for multimodal language models, of which there are many types, see
``_hub_family``."""
_LONGEST_HUB_ID = 96  # the hub's own limit
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class CaptionerEntry:
    """A captioner that exists; its card is made up from ``config.json`` where the folder has none."""

    id: str
    path: Path | None
    """The folder; None for ``fake`` and for hub ids."""
    card: WeightsCard | ArithmeticCard

    @property
    def source(self) -> str:
        """What the family's ``load`` takes: the folder or the hub id."""
        return self.id if self.path is None else str(self.path)


@dataclass(frozen=True)
class ScorerEntry:
    """A scorer that exists, always in a folder with a card."""

    id: str
    path: Path
    card: ScorerCard


CatalogEntry = CaptionerEntry | ScorerEntry


def model_ids(models_dir: Path | None = None) -> list[str]:
    """Ids of the checkpoint folders among the bundled models and below ``models_dir``, sorted; cards are not read."""
    roots = [root for root in (BUNDLED, models_dir) if root is not None]
    found = {card.parent.name for root in roots for card in root.glob(f"*/{CARD_FILE}")}
    return sorted(name for name in found if not name.startswith("."))  # drafts of an unfinished write begin with a dot


def list_models(models_dir: Path | None = None) -> list[CatalogEntry]:
    """Every model of ``model_ids``, by id; a model below ``models_dir`` hides a bundled one of that id.

    Raises:
        CheckpointError: one of the cards cannot be read.
    """
    return [find_model(name, models_dir) for name in model_ids(models_dir)]


def find_model(ref: str, models_dir: Path | None = None) -> CatalogEntry:
    """The model that ``ref`` names: an id, a folder, or a hub id such as ``Salesforce/blip-image-captioning-base``.

    Raises:
        UnknownNameError: ``unknown_model``, listing the ids there are.
        CheckpointError: the folder, or what the hub gives, is no model.
    """
    if ref == FAKE_CARD.id:
        return CaptionerEntry(ref, None, FAKE_CARD)
    if entry := find_by_id(ref, (models_dir, BUNDLED)):
        return entry
    folder = Path(ref)
    if ref and _can_exist(ref) and folder.is_dir():
        return _from_folder(folder.resolve().name, folder)
    if _HUB_ID.fullmatch(ref) and len(ref) <= _LONGEST_HUB_ID:
        return _from_hub(ref)
    raise _unknown(ref, [FAKE_CARD.id, *model_ids(models_dir)])


def find_captioner(ref: str, models_dir: Path | None = None) -> CaptionerEntry:
    """As ``find_model``, but a scorer is refused as ``unknown_model``; a card of mixes that is silent on decoding says
    what its base's does."""
    entry = _find(ref, models_dir, CaptionerEntry)
    if isinstance(entry, ScorerEntry):
        raise UnknownNameError("unknown_model", f"{ref!r} is a scorer; a captioner is needed")
    if isinstance(entry.card, ArithmeticCard) and entry.card.decoding is None and entry.path is not None:
        base = find_beside(entry.card.base.model, entry.path, models_dir)
        inherited = base.card.decoding if isinstance(base, CaptionerEntry) else None  # loading tells of a missing base
        return replace(entry, card=entry.card.model_copy(update={"decoding": inherited}))
    return entry


def spectrum_point(entry: CaptionerEntry, descriptiveness: float) -> SpectrumPoint:
    """The point of a model's spectrum closest to ``descriptiveness``.

    Raises:
        RequestError: ``unsupported_option`` for a model without a spectrum, ``invalid_request`` beyond 0 to 1.
    """
    if not isinstance(entry.card, SpectrumCard):
        raise RequestError("unsupported_option", f"descriptiveness: model {entry.id!r} has no spectrum")
    if not 0 <= descriptiveness <= 1:
        raise RequestError("invalid_request", f"descriptiveness {descriptiveness:g} is not from 0 to 1")
    return entry.card.nearest(descriptiveness)


def find_scorer(ref: str, models_dir: Path | None = None) -> ScorerEntry:
    """As ``find_model``, but a captioner is refused as ``unknown_model``."""
    entry = _find(ref, models_dir, ScorerEntry)
    if isinstance(entry, CaptionerEntry):
        raise UnknownNameError("unknown_model", f"{ref!r} is a captioner; a scorer is needed")
    return entry


def find_by_id(name: str, roots: Iterable[Path | None]) -> CatalogEntry | None:
    """The model of that id in the first root that has it. An id is one plain name: it never reaches outside a root.

    Raises:
        CheckpointError: its card cannot be read.
    """
    if Path(name).name != name or name in ("", "..") or not _can_exist(name):
        return None
    for root in roots:
        if root is not None and (root / name / CARD_FILE).is_file():
            return _from_folder(name, _version(root / name))
    return None


def _version(folder: Path) -> Path:
    """What a link to an installed version leads to, so that all files are of one version when the link moves."""
    try:
        target = folder.parent / folder.readlink()
    except OSError:  # no link
        return folder
    return target if _is_version(target) else folder


def _is_version(folder: Path) -> bool:
    return folder.parent.parent.name == STORE


def find_beside(name: str, folder: Path, models_dir: Path | None = None) -> CatalogEntry | None:
    """The model of that id that the card in ``folder`` may name: beside it, below ``models_dir`` or bundled.

    Raises:
        CheckpointError: its card cannot be read.
    """
    place = folder.absolute()
    beside = place.parents[2] if _is_version(place) else place.parent
    return find_by_id(name, (beside, models_dir, BUNDLED))


def find_part(part: SharedPart, folder: Path, models_dir: Path | None = None) -> tuple[Path, FilePart]:
    """Folder and file of the part of another model that the card in ``folder`` names.

    Raises:
        CheckpointError: ``missing_file``, no such model has such a file.
    """
    owner = find_beside(part.model, folder, models_dir)
    if owner and owner.path and not isinstance(owner.card, ArithmeticCard):
        found = owner.card.parts.get(part.part)
        if isinstance(found, FilePart):
            return owner.path, found
    raise CheckpointError(
        "missing_file",
        f"{folder} needs part {part.part!r} of model {part.model!r}, which is neither beside it nor in the models "
        "folder nor bundled",
    )


def _find(ref: str, models_dir: Path | None, kind: type[CatalogEntry]) -> CatalogEntry:
    """As ``find_model``, but who errs is told those of one kind."""
    try:
        return find_model(ref, models_dir)
    except UnknownNameError:
        raise _unknown(ref, filter(partial(_is_a, kind=kind, models_dir=models_dir), model_ids(models_dir))) from None


def _is_a(name: str, kind: type[CatalogEntry], models_dir: Path | None) -> bool:
    try:
        return isinstance(find_by_id(name, (models_dir, BUNDLED)), kind)
    except CheckpointError:
        return False


def _unknown(ref: str, known: Iterable[str]) -> UnknownNameError:
    detail = f"no model {ref[:200]!r}: it is no folder and none of {', '.join(known)}"
    return UnknownNameError("unknown_model", detail)


def _can_exist(path: str) -> bool:
    """Whether a system would look for it at all, rather than raise for its length."""
    encoded = path.encode("utf-8", "surrogatepass")
    return len(encoded) < 4096 and all(len(name) < 256 for name in encoded.split(b"/"))


def _from_folder(name: str, folder: Path) -> CatalogEntry:
    if not (folder / CARD_FILE).is_file():
        return CaptionerEntry(name, folder, _hub_card(name, folder / "config.json"))
    card = read_card(folder)
    if isinstance(card, ScorerCard):
        return ScorerEntry(name, folder, card)
    return CaptionerEntry(name, folder, card)


def _from_hub(ref: str) -> CatalogEntry:
    from huggingface_hub import hf_hub_download  # deferred: slow to import and rarely needed

    try:
        config = Path(hf_hub_download(ref, "config.json"))
    except Exception as error:  # the hub client raises errors of several libraries
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            "missing_file", f"{ref!r} is no folder here and the hub gave nothing: {reason}"
        ) from error
    return CaptionerEntry(ref, None, _hub_card(ref, config))


def _hub_card(name: str, config: Path) -> WeightsCard:
    """A card made up for a model in the hub's own layout, which brings none."""
    try:
        family = _hub_family(json.loads(config.read_bytes()))
    except OSError as error:
        raise CheckpointError(
            "missing_file", f"{config.parent} is no model folder: it has neither {CARD_FILE} nor config.json"
        ) from error
    except (ValueError, AttributeError) as error:
        raise CheckpointError("bad_config", f"{config} is not a JSON object: {error}") from error
    if family is None:
        supported = ", ".join(sorted(HUB_FAMILIES))
        raise CheckpointError(
            "bad_config",
            f"{config}: its model_type is not supported; supported: {supported}, and multimodal language models that "
            "transformers itself holds (a vision_config and an architecture ...ForConditionalGeneration)",
        )
    return WeightsCard(
        id=name,
        family=family,
        description="a model in the hub's layout, without a card of ours",
        licence="see the model's own page",
    )


def _hub_family(config: dict[str, object]) -> str | None:
    """The family of a model in the hub's layout; None if there is none for it."""
    family = HUB_FAMILIES.get(str(config.get("model_type")))
    architectures = config.get("architectures")
    speaks = isinstance(architectures, list) and str(architectures[:1]).endswith("ForConditionalGeneration']")
    return "vlm" if family is None and speaks and "vision_config" in config else family
