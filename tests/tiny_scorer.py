"""A dual encoder of a few kilobytes with random weights, saved in open_clip's own folder format."""

import json
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors.torch import save_file

CONTEXT = 77
_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "photo", "depicts", "dog", "cat", "x"]


def write_tiny_scorer(folder: Path, *, seed: int = 0) -> Path:
    """The folder, now with config, weights and tokenizer files of a scorer with 16 features and 32 px pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "model_cfg": {
            "embed_dim": 16,
            "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 32, "layers": 1, "head_width": 16},
            "text_cfg": {
                "context_length": CONTEXT,
                "vocab_size": len(_WORDS),
                "width": 32,
                "heads": 2,
                "layers": 1,
                "hf_tokenizer_name": "tokenizer",
                "pool_type": "eos",
                "eos_id": 3,
            },
        },
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
    }
    torch.manual_seed(seed)
    model = open_clip.CLIP(**config["model_cfg"])
    (folder / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    special = [{"id": i, "content": word, "special": True, **_FLAGS} for i, word in enumerate(_WORDS[:4])]
    wrap = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [*wrap, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [*wrap, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "special_tokens": {w: {"id": w, "ids": [_WORDS.index(w)], "tokens": [w]} for w in ("[CLS]", "[SEP]")},
        },
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(_WORDS)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts), encoding="utf-8")


_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
