"""Loading from a folder in the layout of the model hub, or from the hub by id."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoImageProcessor, AutoProcessor, AutoTokenizer, PreTrainedConfig

from models.card import CARD_FILE, read_card
from models.checkpoints import check_finite, write_checkpoint
from models.errors import CheckpointError, MissingDependencyError
from models.families.base import CardMaker
from models.file_hashes import verify_files

_HARMLESS_KEYS = re.compile(
    r"(^|\.)position_ids$"  # constants that old versions stored
    r"|\.(attn|crossattention)\.(masked_)?bias$"  # the same: GPT-2's causal masks
    r"|^encoder\.pooler\."  # ViT's pooler, which no captioner uses
)
_LAYERS = re.compile(r"(^|_)(layers?|depths?)$")
"""Keys of configurations that say how many there are: ``num_hidden_layers``, ``n_layer``, ``depth``."""
_MOST_LAYERS = 1000
"""Far more than any captioner has. Modules are made for all of them before anybody misses their weights."""


def verify_hub_files(source: str) -> None:
    """Refuse a folder with a card of ours whose files are not what the card says; others are taken as they are.

    Raises:
        CheckpointError: ``hash_mismatch``, ``missing_file`` or ``bad_card``.
    """
    folder = Path(source)
    if (folder / CARD_FILE).is_file():
        verify_files(folder, read_card(folder))


def save_in_hub_layout(
    folder: str | Path, parts: Sequence[Any], make_card: CardMaker | None, extra_files: Mapping[str, str] | None
) -> None:
    """Write what ``save_pretrained`` of the parts gives, further text files by name, and a card with the hash of each
    file where ``make_card`` is given."""

    def write_files(draft: Path) -> None:
        for part in parts:
            part.save_pretrained(str(draft))
        for name, text in (extra_files or {}).items():
            (draft / name).write_text(text, encoding="utf-8")

    if make_card is None:
        write_files(Path(folder))
    else:
        write_checkpoint(Path(folder), make_card, {}, write_files)


def load_config(source: str, model_type: str | None = None) -> Any:
    """The model's configuration, of any type where ``model_type`` is None. Code that a checkpoint brings never runs.

    Raises:
        CheckpointError: ``missing_file`` where there is no such folder or hub id; ``bad_config`` for another type of
            model, no configuration at all, or one of more layers than any model has.
    """
    _check_folder(source)
    _check_layers(_read(source, "config.json", PreTrainedConfig.get_config_dict)[0], source)
    config = _read(source, "config.json", partial(AutoConfig.from_pretrained, trust_remote_code=False))
    if model_type is not None and config.model_type != model_type:
        detail = f"{source} holds a model of type {config.model_type!r}; this family needs {model_type!r}"
        raise CheckpointError("bad_config", detail)
    return config


def load_model(source: str, model_class: Any, *, device: torch.device | str, dtype: torch.dtype) -> Any:
    """The model in evaluation mode, every one of its weights read from ``source``.

    Raises:
        CheckpointError: ``missing_file`` where they are absent or damaged; ``wrong_keys`` where some are missing,
            unexpected, of another shape, NaN or infinite.
    """
    read = partial(model_class.from_pretrained, dtype=dtype, output_loading_info=True)
    model, info = _read(source, "the weights", read)
    _check_keys(source, info)
    check_finite(dict(model.named_parameters()), source)
    return model.to(device).eval()


def load_preprocessing(source: str) -> tuple[Any, Any]:
    """The checkpoint's image processor, with the PIL backend, and its tokenizer.

    Raises:
        CheckpointError: ``missing_file`` or ``bad_config``.
    """
    read = partial(AutoImageProcessor.from_pretrained, backend="pil", trust_remote_code=False)
    processor = _read(source, "preprocessor_config.json", read)
    return processor, load_tokenizer(source)


def load_tokenizer(source: str) -> Any:
    """The checkpoint's tokenizer.

    Raises:
        CheckpointError: ``missing_file`` or ``bad_config``.
    """
    return _read(source, "the tokenizer", partial(AutoTokenizer.from_pretrained, trust_remote_code=False))


def load_processor(source: str) -> Any:
    """The checkpoint's processor, tokenizer and image processor in one.

    Raises:
        CheckpointError: ``missing_file`` or ``bad_config``.
        MissingDependencyError: it needs a package that is not installed.
    """
    try:
        return _read(source, "the processor", partial(AutoProcessor.from_pretrained, trust_remote_code=False))
    except ImportError as error:
        reason = " ".join(str(error).split())[:300]
        raise MissingDependencyError("missing_dependency", f"the processor of {source}: {reason}") from error


def _check_folder(source: str) -> None:
    """Refuse paths that lead nowhere before they are taken for hub ids."""
    path = Path(source)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise CheckpointError("missing_file", f"{source} has no config.json: it is no model folder in hub layout")
    elif path.exists() or path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        raise CheckpointError("missing_file", f"there is no folder {source}")


def _check_layers(part: Mapping[str, Any], source: str) -> None:
    for key, value in part.items():
        if isinstance(value, Mapping):
            _check_layers(value, source)
        elif _LAYERS.search(key):
            most = max((each for each in _listed(value) if isinstance(each, int)), default=0)
            if most > _MOST_LAYERS:
                detail = f"config.json of {source}: {key} is {most}; no model has more than {_MOST_LAYERS}"
                raise CheckpointError("bad_config", detail)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _read(source: str, what: str, reader: Any) -> Any:
    try:
        return reader(source)
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        code = "bad_config" if isinstance(error, ValueError) else "missing_file"
        raise CheckpointError(code, f"{what} of {source} cannot be read: {reason}") from error
    except UnpicklingError as error:  # by torch, of weights in its old format, where more than tensors would be loaded
        raise CheckpointError("unsafe_file", f"{what} of {source} are no plain tensors; not loaded") from error
    except RuntimeError as error:  # transformers: shapes that do not fit the config
        raise CheckpointError("wrong_keys", f"{what} of {source} do not fit its config.json") from error


def _check_keys(source: str, info: dict[str, Any]) -> None:
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        keys = sorted(str(key) for key in info[kind] if not _HARMLESS_KEYS.search(str(key)))
        if keys:
            more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
            named = ", ".join(keys[:3]) + more
            raise CheckpointError("wrong_keys", f"{source} has {kind.replace('_', ' ')}: {named}")
