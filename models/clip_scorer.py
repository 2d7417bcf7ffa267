"""CLIPScore (Hessel et al. 2021) under any dual encoder that open_clip can load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import open_clip
import torch
from PIL.Image import Image
from timm.models.efficientnet import EfficientNet

from models.batch_norms import fold_batch_norms
from models.card import CARD_FILE, ScorerCard, read_card
from models.catalog import find_model
from models.device import pick_device
from models.errors import CheckpointError, UnknownNameError
from models.file_hashes import verify_files

T = TypeVar("T")

PREFIX = "A photo depicts "
WEIGHT = 2.5

_IMAGES_PER_PASS = 32
_IMAGES_PER_CPU_PASS = 8
"""On a CPU what a layer gives should still be in the cache when the next one reads it."""
_TEXTS_PER_PASS = 128


class ClipScorer:
    """A dual encoder with its preprocessing and tokenizer; scores compare only under one ``scorer_id``.

    Features are fp32 on the CPU, (N, D) with unit rows. Calls may come from several threads.
    """

    def __init__(
        self,
        model: Any,
        preprocess: Callable[[Image], torch.Tensor],
        tokenizer: Any,
        *,
        scorer_id: str,
        prefix: str = PREFIX,
        weight: float = WEIGHT,
        device: torch.device | None = None,
    ) -> None:
        self.scorer_id = scorer_id
        self.prefix = prefix
        self.weight = weight
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device).eval().requires_grad_(False)
        """The open_clip model itself, frozen and in eval mode."""
        self._images_per_pass = _IMAGES_PER_PASS
        if self.device.type == "cpu":  # together with small passes, a convolutional tower takes a third of the time
            if (visual := getattr(self.model, "visual", None)) is not None:
                if isinstance(trunk := getattr(visual, "trunk", None), EfficientNet):
                    fold_batch_norms(trunk)
                visual.to(memory_format=torch.channels_last)
            self._images_per_pass = _IMAGES_PER_CPU_PASS
        self._preprocess = preprocess
        self._tokenizer = tokenizer
        self._tokenizer_lock = threading.Lock()  # Rust tokenizers refuse two borrowers ("Already borrowed")
        self.dim = self.encode_texts([""]).shape[1]

    @property
    def input_side_px(self) -> int | None:
        """The longer side at which the model sees pictures; None where it does not tell."""
        size = getattr(getattr(self.model, "visual", None), "image_size", None)
        return max(size) if isinstance(size, tuple | list) else size

    def encode_images(self, images: Sequence[Image]) -> torch.Tensor:
        """Unit features (N, D) of RGB pictures from ``models.images.load_image``, by the model's own transform."""
        return self._unit_rows(self.project_images(part) for part in _parts(images, self._images_per_pass))

    def project_images(self, images: Sequence[Image]) -> torch.Tensor:
        """Features (N, D) of RGB pictures as the model gives them, not normalised, in one pass."""
        pixels = torch.stack([self._preprocess(image) for image in images]).to(self.device)
        with torch.inference_mode():
            features: torch.Tensor = self.model.encode_image(pixels).float().cpu()
        return features

    def encode_texts(self, texts: Sequence[str], *, prefix: bool = True) -> torch.Tensor:
        """Unit features (N, D); a text longer than the context is cut, and its end token kept.

        Args:
            prefix: put ``self.prefix`` before each text, as CLIPScore does; retrieval does without.
        """
        passes = (
            self.model.encode_text(self.tokens(part, prefix).to(self.device)) for part in _parts(texts, _TEXTS_PER_PASS)
        )
        return self._unit_rows(passes)

    def count_truncated(self, texts: Sequence[str], *, prefix: bool = True) -> int:
        """How many of the texts ``encode_texts`` cuts."""
        if not texts:
            return 0
        context = int(self._tokenizer.context_length)
        fits = self.tokens(texts, prefix)
        longer = self.tokens(texts, prefix, context + 1)  # with room for one more, a cut text loses its end token here
        return int((fits != longer[:, :context]).any(dim=1).sum())

    def clip_scores(self, image_features: torch.Tensor, text_features: torch.Tensor) -> torch.Tensor:
        """``weight * max(cos, 0)`` of paired rows: (..., D) and (..., D), broadcast, to (...)."""
        return self.weight * (image_features * text_features).sum(dim=-1).clamp(min=0)

    def score(
        self,
        images: Sequence[Image] | None,
        captions: Sequence[Sequence[str]],
        *,
        image_features: torch.Tensor | None = None,
    ) -> list[list[float]]:
        """CLIPScores of each image's captions, in order.

        Args:
            images: RGB pictures; not looked at when ``image_features`` (N, D) from ``encode_images`` is given.
            captions: for each image any number of captions, also none.
        """
        if image_features is None:
            image_features = self.encode_images(images or ())
        if len(image_features) != len(captions):
            raise ValueError(f"{len(image_features)} images but {len(captions)} lists of captions")
        counts = [len(texts) for texts in captions]
        texts = self.encode_texts([text for texts in captions for text in texts])
        rows = image_features.repeat_interleave(torch.tensor(counts, dtype=torch.long), dim=0)
        return [scores.tolist() for scores in torch.split(self.clip_scores(rows, texts), counts)]

    def tokens(self, texts: Sequence[str], prefix: bool, context_length: int | None = None) -> torch.Tensor:
        """Padded ids (N, context) as the text encoder reads them."""
        lead = self.prefix if prefix else ""
        with self._tokenizer_lock:
            ids: torch.Tensor = self._tokenizer([lead + text for text in texts], context_length=context_length)
        return ids

    def pieces(self, text: str) -> list[int]:
        """Ids of a text alone, without start, end and padding."""
        own = getattr(self._tokenizer, "tokenizer", None)  # open_clip wraps tokenizers of transformers
        with self._tokenizer_lock:
            ids: list[int] = self._tokenizer.encode(text) if own is None else own.encode(text, add_special_tokens=False)
        return ids

    @property
    def unknown_piece(self) -> int | None:
        """The id of text that the tokenizer has no piece for; None where it has pieces for any text."""
        own = getattr(self._tokenizer, "tokenizer", None)
        number: int | None = None if own is None else own.unk_token_id
        return number

    def vocabulary(self) -> dict[str, int]:
        """Ids by piece."""
        own = getattr(self._tokenizer, "tokenizer", None)
        return dict(self._tokenizer.encoder if own is None else own.get_vocab())

    def _unit_rows(self, passes: Iterator[torch.Tensor]) -> torch.Tensor:
        """The passes' rows (N, D) at norm 1; cast to fp32 first, because a half-precision norm is off by much."""
        with torch.inference_mode():
            parts = [part.float().cpu() for part in passes]
        if not parts:
            return torch.zeros(0, self.dim)
        rows = torch.nn.functional.normalize(torch.cat(parts), dim=-1)
        if not torch.allclose(rows.norm(dim=-1), torch.ones(len(rows)), atol=1e-3):
            raise CheckpointError("bad_config", f"scorer {self.scorer_id!r} gives features that are zero or not finite")
        return rows


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def load_scorer(
    ref: str, *, models_dir: Path | None = None, device: str = "auto", prefix: str | None = None
) -> ClipScorer:
    """The scorer that ``ref`` names, with fp32 weights.

    Args:
        ref: the id of a bundled scorer or of one below ``models_dir``; ``local-dir:PATH`` or ``hf-hub:ORG/REPO`` in
            open_clip's format; or an open_clip name and tag such as ``ViT-B-32/openai``.
        device: as ``models.device.pick_device`` takes it.
        prefix: what to put before captions instead of the card's prefix, or of ``PREFIX`` where there is no card.

    Raises:
        UnknownNameError: no such id, architecture or tag, or the id of a captioner.
        CheckpointError: the files are absent (offline included), damaged, or not a dual encoder.
        RequestError: no such device.
    """
    source = _find_source(ref, models_dir)
    try:
        model, preprocess = open_clip.create_model_from_pretrained(
            source.name, source.tag, force_quick_gelu=source.quick_gelu
        )
        tokenizer = open_clip.get_tokenizer(source.name)
    except Exception as error:  # open_clip, timm, safetensors and hub clients raise a dozen kinds here
        raise _loading_error(ref, error) from error
    return ClipScorer(
        model,
        preprocess,
        tokenizer,
        scorer_id=source.scorer_id,
        prefix=source.prefix if prefix is None else prefix,
        weight=source.weight,
        device=pick_device(device),
    )


@dataclass(frozen=True)
class _Source:
    """What open_clip needs to load a scorer, and what its card says about scoring."""

    scorer_id: str
    name: str
    tag: str | None = None
    quick_gelu: bool = False
    prefix: str = PREFIX
    weight: float = WEIGHT


def _find_source(ref: str, models_dir: Path | None) -> _Source:
    if ref.startswith("hf-hub:"):
        return _Source(ref, ref)
    if ref.startswith("local-dir:"):
        folder = Path(ref.removeprefix("local-dir:"))
        return _folder_source(ref, folder.resolve().name, folder)
    name, _, tag = ref.rpartition("/")
    if name in open_clip.list_models():
        return _named_source(ref, name, tag)
    entry = find_model(ref, models_dir)
    if entry.path is None:
        raise UnknownNameError("unknown_model", f"{ref!r} is a captioner; a scorer is needed")
    return _folder_source(ref, entry.id, entry.path)


def _folder_source(ref: str, scorer_id: str, folder: Path) -> _Source:
    if not (folder / "open_clip_config.json").is_file():
        raise CheckpointError(
            "missing_file", f"{ref!r}: {folder} holds no open_clip_config.json, which a scorer folder needs"
        )
    if not (folder / CARD_FILE).is_file():
        return _Source(scorer_id, f"local-dir:{folder}")
    card = read_card(folder)
    if not isinstance(card, ScorerCard):
        raise UnknownNameError("unknown_model", f"{ref!r} is a captioner; a scorer is needed")
    verify_files(folder, card)
    return _Source(scorer_id, f"local-dir:{folder}", prefix=card.prefix, weight=card.weight)


def _named_source(ref: str, name: str, tag: str) -> _Source:
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise UnknownNameError("unknown_name", f"{name} has no weights {tag!r}; there are: {', '.join(sorted(tags))}")
    # open_clip only warns when weights were trained with QuickGELU and the architecture's file says otherwise.
    quick_gelu = bool(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False))
    return _Source(ref, name, tag, quick_gelu)


def _loading_error(ref: str, error: Exception) -> CheckpointError:
    reason = " ".join(str(error).split())
    if any(sign in reason for sign in ("Missing key", "Unexpected key", "size mismatch")):
        code = "wrong_keys"
    elif isinstance(error, OSError) or any(sign in reason for sign in ("could not be loaded", "Failed")):
        code = "missing_file"
        reason += " (without a network, use a bundled scorer or a local-dir: folder)"
    else:
        code = "bad_config"
    return CheckpointError(code, f"scorer {ref!r} cannot be loaded: {reason}")
