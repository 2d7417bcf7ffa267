"""The scorer as an open_clip model, and the two passes that training takes through it in place of open_clip's own.

B images, N texts, S grid cells, C channels, T tokens, D features of the shared space.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import open_clip
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from training.packages import imagenet_network


def build_dual_encoder(config: Mapping[str, Any]) -> Any:
    """An ``open_clip.CLIP`` from the text of ``open_clip_config.json``, its vision trunk with ImageNet weights.

    Raises:
        MissingDependencyError: no package holds weights of the trunk.
    """
    model: Any = open_clip.CLIP(**config["model_cfg"])
    trunk = model.visual.trunk
    stored = imagenet_network(config["model_cfg"]["vision_cfg"]["timm_model_name"]).state_dict()
    trunk.load_state_dict({name: stored[name] for name in trunk.state_dict()})
    trunk.requires_grad_(False)
    for layer in (trunk.conv_head, trunk.bn2):
        layer.requires_grad_(True)
    return model


class ImageTail(nn.Module):
    """What follows the cached blocks: the last convolution, the pool over cells and the head of ``visual``.

    The batch norm keeps its ImageNet statistics. Cells and pooled features are dropped in training only.
    """

    def __init__(self, visual: Any, *, cells: int, pooled_dropout: float, hidden_dropout: float) -> None:
        super().__init__()
        self.visual = visual
        self._cells = cells
        self._pooled_dropout = pooled_dropout
        self._hidden_dropout = hidden_dropout

    def forward(self, grid: Tensor) -> Tensor:
        """(B, D), not normalised, from the blocks' output (B, S, C)."""
        if self.training and self._cells < grid.shape[1]:
            grid = grid[:, torch.randperm(grid.shape[1], device=grid.device)[: self._cells]]
        trunk, mlp = self.visual.trunk, self.visual.head.mlp
        norm = trunk.bn2
        gain = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        mapped = linear(grid, trunk.conv_head.weight.flatten(1) * gain[:, None], norm.bias - norm.running_mean * gain)
        pooled = dropout(norm.act(mapped).mean(dim=1), self._pooled_dropout, self.training)
        vectors: Tensor = mlp.fc2(dropout(mlp.act(mlp.fc1(pooled)), self._hidden_dropout, self.training))
        return vectors


class TextTower(nn.Module):
    """open_clip's text tower at the length of the batch at hand, with dropout in training.

    The attention is causal and the end token is read, so that padding behind it changes nothing. Plain products are
    faster to differentiate on a CPU than torch's fused attention.
    """

    def __init__(self, model: Any, rate: float) -> None:
        super().__init__()
        self.model = model
        self._rate = rate

    def forward(self, ids: Tensor) -> Tensor:
        """(N, D), not normalised, from padded ids (N, T)."""
        model = self.model
        length = ids.shape[1]
        states = self._drop(model.token_embedding(ids) + model.positional_embedding[:length])
        mask = model.attn_mask[:length, :length]
        for block in model.transformer.resblocks:
            states = states + self._drop(_attend(block.attn, block.ln_1(states), mask))
            states = states + self._drop(block.mlp(block.ln_2(states)))
        ends = (ids == model.text_eos_id).int().argmax(dim=1)
        vectors: Tensor = model.ln_final(states[torch.arange(len(ids)), ends]) @ model.text_projection
        return vectors

    def _drop(self, states: Tensor) -> Tensor:
        return dropout(states, self._rate, self.training)


def _attend(attention: nn.MultiheadAttention, states: Tensor, mask: Tensor) -> Tensor:
    """Self-attention (N, T, W) with the weights of ``attention``."""
    rows, length, width = states.shape
    heads = attention.num_heads
    packed = linear(states, attention.in_proj_weight, attention.in_proj_bias)
    queries, keys, values = packed.view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    shares = (queries @ keys.transpose(-1, -2) * (width // heads) ** -0.5 + mask).softmax(dim=-1)
    mixed = (shares.to(values.dtype) @ values).transpose(1, 2).reshape(rows, length, width)
    return attention.out_proj(mixed)  # type: ignore[no-any-return]


@torch.no_grad()
def start_from_minilm(model: Any, bert: Any, pieces: Sequence[int], layers: Sequence[int]) -> None:
    """Give the text tower MiniLM's word vectors, and the layers that ``layers`` numbers.

    MiniLM normalises after each sub-layer and open_clip before: a layer's own norms move to where open_clip has them,
    the word vectors are scaled to what MiniLM's first norm makes of them, and the first norm becomes about the
    identity. That is no equality, but a start from which little training remains.

    Args:
        bert: a transformers ``BertModel`` of the same width.
        pieces: for each id of the tower's tokenizer, the id of the same piece in BERT's vocabulary.
    """
    words = bert.embeddings.word_embeddings.weight[torch.tensor(pieces)]
    positions = bert.embeddings.position_embeddings.weight[: len(model.positional_embedding)]
    positions = positions + bert.embeddings.token_type_embeddings.weight[0]
    norm = bert.embeddings.LayerNorm
    spread = (words[:, None] + positions[1:16:5]).std(dim=-1).mean()
    model.token_embedding.weight.copy_(_centred(words) / spread * norm.weight + norm.bias)
    model.positional_embedding.copy_(_centred(positions) / spread * norm.weight)
    blocks = model.transformer.resblocks
    for block, number in zip(blocks, layers, strict=True):
        before = bert.encoder.layer[number - 1].output.LayerNorm if number else norm
        _copy_layer(block, bert.encoder.layer[number], before)
    start = model.token_embedding.weight + model.positional_embedding[5]
    blocks[0].ln_1.weight.fill_(start.std(dim=-1).mean())
    blocks[0].ln_1.bias.fill_(start.mean())


def _centred(vectors: Tensor) -> Tensor:
    return vectors - vectors.mean(dim=-1, keepdim=True)


def _copy_layer(block: Any, layer: Any, norm_before: nn.LayerNorm) -> None:
    own = layer.attention.self
    for name in ("weight", "bias"):
        packed = torch.cat([getattr(part, name) for part in (own.query, own.key, own.value)])
        getattr(block.attn, f"in_proj_{name}").copy_(packed)
        for target, source in (
            (block.attn.out_proj, layer.attention.output.dense),
            (block.mlp.c_fc, layer.intermediate.dense),
            (block.mlp.c_proj, layer.output.dense),
            (block.ln_1, norm_before),
            (block.ln_2, layer.attention.output.LayerNorm),
        ):
            getattr(target, name).copy_(getattr(source, name))
