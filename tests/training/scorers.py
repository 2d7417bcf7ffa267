"""Tiny scorers: one that has the tokenizer of the tiny compact captioner, and one with another."""

import json
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

from models.clip_scorer import ClipScorer, load_scorer
from tests.models.families.compact.tiny import SPECIAL, tiny_tokenizer
from tests.tiny_scorer import write_tiny_scorer


def foreign_scorer(folder: Path) -> ClipScorer:
    """A scorer that knows whole words only: a, photo, depicts, dog, cat, x."""
    return load_scorer(f"local-dir:{write_tiny_scorer(folder)}", device="cpu")


def kindred_scorer(folder: Path, seed: int = 0) -> ClipScorer:
    """A scorer with the captioner's own vocabulary, as the bundled one has that of the bundled captioners."""
    return load_scorer(f"local-dir:{write_kindred_scorer(folder, seed)}", device="cpu")


def write_kindred_scorer(folder: Path, seed: int = 0) -> Path:
    """The folder, now with such a scorer; its word vectors are large enough for captions to differ."""
    write_tiny_scorer(folder)
    tokenizer = tiny_tokenizer()
    marks = [(word, SPECIAL.index(word)) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair=None, special_tokens=marks)
    tokenizer.save(str(folder / "tokenizer.json"))
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model_cfg"]["text_cfg"]["vocab_size"] = tokenizer.get_vocab_size()
    path.write_text(json.dumps(config), encoding="utf-8")
    torch.manual_seed(seed)
    model = open_clip.CLIP(**config["model_cfg"])
    with torch.no_grad():
        model.token_embedding.weight.normal_()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder
