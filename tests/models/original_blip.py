"""A tiny BLIP captioner in the layout of its authors, and a slow forward written from their state dict alone.

The ViT is 128 wide with two heads, the text half 64 with one, so that no width is taken for another.
"""

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from tests.models.families.tiny_models import BERT_SPECIAL, WORDS

State = dict[str, Tensor]
IMAGE_PX, PATCH_PX, HEAD = 48, 16, 64
VISION, TEXT, LAYERS, POSITIONS = 128, 64, 2, 24
VOCABULARY = BERT_SPECIAL + WORDS
START, END = len(VOCABULARY), 3
PIECES = len(VOCABULARY) + 2


def save_vocabulary(folder: Path) -> Path:
    path = folder / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return path


def random_state() -> State:
    """What ``torch.save({"model": ...})`` of the authors' captioner holds, the constants of old versions included."""
    generator = torch.Generator().manual_seed(11)

    def random(*shape: int, std: float = 0.25) -> Tensor:
        return torch.randn(shape, generator=generator) * std

    def dense(name: str, out: int, width: int) -> State:
        return {f"{name}.weight": random(out, width), f"{name}.bias": random(out, std=0.1)}

    def norm(name: str, width: int) -> State:
        return {f"{name}.weight": 1 + random(width, std=0.1), f"{name}.bias": random(width, std=0.1)}

    patches = (VISION, 3, PATCH_PX, PATCH_PX)
    state = {
        "visual_encoder.cls_token": random(1, 1, VISION),
        "visual_encoder.pos_embed": random(1, 1 + (IMAGE_PX // PATCH_PX) ** 2, VISION, std=1.0),
        "visual_encoder.patch_embed.proj.weight": random(*patches, std=0.05),
        "visual_encoder.patch_embed.proj.bias": random(VISION),
        **norm("visual_encoder.norm", VISION),
        "text_decoder.bert.embeddings.position_ids": torch.arange(POSITIONS)[None],
        "text_decoder.bert.embeddings.word_embeddings.weight": random(PIECES, TEXT),
        "text_decoder.bert.embeddings.position_embeddings.weight": random(POSITIONS, TEXT, std=1.0),
        **norm("text_decoder.bert.embeddings.LayerNorm", TEXT),
        **dense("text_decoder.cls.predictions.transform.dense", TEXT, TEXT),
        **norm("text_decoder.cls.predictions.transform.LayerNorm", TEXT),
        "text_decoder.cls.predictions.bias": random(PIECES),
    }
    for i in range(LAYERS):
        block, layer = f"visual_encoder.blocks.{i}", f"text_decoder.bert.encoder.layer.{i}"
        state |= norm(f"{block}.norm1", VISION) | norm(f"{block}.norm2", VISION)
        state |= dense(f"{block}.attn.qkv", 3 * VISION, VISION) | dense(f"{block}.attn.proj", VISION, VISION)
        state |= dense(f"{block}.mlp.fc1", 2 * VISION, VISION) | dense(f"{block}.mlp.fc2", VISION, 2 * VISION)
        for kind, seen in (("attention", TEXT), ("crossattention", VISION)):
            state |= dense(f"{layer}.{kind}.self.query", TEXT, TEXT)
            state |= dense(f"{layer}.{kind}.self.key", TEXT, seen) | dense(f"{layer}.{kind}.self.value", TEXT, seen)
            state |= dense(f"{layer}.{kind}.output.dense", TEXT, TEXT) | norm(f"{layer}.{kind}.output.LayerNorm", TEXT)
        state |= dense(f"{layer}.intermediate.dense", 2 * TEXT, TEXT) | dense(f"{layer}.output.dense", TEXT, 2 * TEXT)
        state |= norm(f"{layer}.output.LayerNorm", TEXT)
    bias = state["text_decoder.cls.predictions.bias"]
    bias[END], bias[[0, 1, 2, 4, START, START + 1]] = 4.0, -1000.0  # captions end now and then and hold words alone
    tied = state["text_decoder.bert.embeddings.word_embeddings.weight"]
    return state | {
        "text_decoder.cls.predictions.decoder.weight": tied,
        "text_decoder.cls.predictions.decoder.bias": bias,
    }


def see(state: State, pixels: Tensor) -> Tensor:
    """Image memory (S, D) of one picture (3, H, W): a ViT with the norm in front of each half of a block."""

    def normed(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, (VISION,), state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    kernel, bias = (state[f"visual_encoder.patch_embed.proj.{part}"] for part in ("weight", "bias"))
    patches = torch.conv2d(pixels[None], kernel, bias, stride=PATCH_PX)[0].flatten(1).T
    x = torch.cat((state["visual_encoder.cls_token"][0], patches)) + state["visual_encoder.pos_embed"][0]
    for i in range(LAYERS):
        block = f"visual_encoder.blocks.{i}"
        query, key, value = _dense(state, f"{block}.attn.qkv", normed(x, f"{block}.norm1")).chunk(3, dim=1)
        x = x + _dense(state, f"{block}.attn.proj", _attend(query, key, value))
        x = x + _dense(state, f"{block}.mlp.fc2", gelu(_dense(state, f"{block}.mlp.fc1", normed(x, f"{block}.norm2"))))
    return normed(x, "visual_encoder.norm")


def say(state: State, memory: Tensor, tokens: list[int]) -> Tensor:
    """Logits (T, V) after each of ``tokens``: a BERT whose layers look back, then at the picture."""

    def normed(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, (TEXT,), state[f"{name}.LayerNorm.weight"], state[f"{name}.LayerNorm.bias"], 1e-12)

    def attended(x: Tensor, seen: Tensor, name: str, mask: Tensor | None) -> Tensor:
        query = _dense(state, f"{name}.self.query", x)
        key, value = (_dense(state, f"{name}.self.{part}", seen) for part in ("key", "value"))
        return normed(x + _dense(state, f"{name}.output.dense", _attend(query, key, value, mask)), f"{name}.output")

    embeddings = "text_decoder.bert.embeddings"
    words = state[f"{embeddings}.word_embeddings.weight"][tokens]
    x = normed(words + state[f"{embeddings}.position_embeddings.weight"][: len(tokens)], embeddings)
    later = torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(1)
    for i in range(LAYERS):
        layer = f"text_decoder.bert.encoder.layer.{i}"
        x = attended(x, x, f"{layer}.attention", later)
        x = attended(x, memory, f"{layer}.crossattention", None)
        inner = gelu(_dense(state, f"{layer}.intermediate.dense", x))
        x = normed(x + _dense(state, f"{layer}.output.dense", inner), f"{layer}.output")
    head = "text_decoder.cls.predictions"
    x = normed(gelu(_dense(state, f"{head}.transform.dense", x)), f"{head}.transform")
    return linear(x, state[f"{head}.decoder.weight"], state[f"{head}.bias"])


def caption(state: State, memory: Tensor, most: int) -> list[int]:
    """The greedy caption, its end token included where it has one, recomputed from the start for every word."""
    tokens = [START]
    while len(tokens) <= most and tokens[-1] != END:
        tokens.append(int(say(state, memory, tokens)[-1].argmax()))
    return tokens[1:]


def _dense(state: State, name: str, x: Tensor) -> Tensor:
    return linear(x, state[f"{name}.weight"], state[f"{name}.bias"])


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of (T, D) to (S, D), head by head."""
    heads = []
    for q, k, v in zip(query.split(HEAD, dim=1), key.split(HEAD, dim=1), value.split(HEAD, dim=1), strict=True):
        scores = q @ k.T / math.sqrt(HEAD)
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        heads.append(scores.softmax(dim=-1) @ v)
    return torch.cat(heads, dim=1)
