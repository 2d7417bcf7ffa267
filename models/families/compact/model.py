"""The network of a compact captioner: grid encoder, projection to memory, transformer decoder, learned null memory."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.families.compact.config import CompactConfig
from models.families.compact.step_cache import KeyValue, StepCache
from models.families.compact.transformer import DecoderLayer, EncoderLayer, Reader
from models.families.compact.vision import GridEncoder
from models.interfaces import TeacherForced
from models.packed_weights import PACKED


class CompactModel(nn.Module):
    """Next-token logits of a caption given a picture.

    Memory: (B, S+1, D), one projected vector per grid cell and one for their mean.
    """

    def __init__(self, config: CompactConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.vision = GridEncoder(config.vision, config.stem_blocks)
        cells = (config.image_size_px // 32) ** 2
        self.feature_dropout = nn.Dropout(dropout)
        self.project = nn.Linear(self.vision.channels, config.width)
        self.cell_embedding = nn.Parameter(torch.randn(cells + 1, config.width) * 0.02)
        self.encoder = nn.ModuleList(EncoderLayer(config, dropout) for _ in range(config.encoder_layers))
        self.memory_norm = nn.LayerNorm(config.width)
        self.null_memory = nn.Parameter(torch.randn(cells + 1, config.width) * 0.02)

        self.token_embedding = nn.Embedding(config.vocab_size, config.width)
        nn.init.normal_(self.token_embedding.weight, std=config.width**-0.5)
        self.position_embedding = nn.Parameter(torch.randn(config.max_positions, config.width) * 0.02)
        self.embedding_dropout = nn.Dropout(dropout)
        self.decoder = nn.ModuleList(DecoderLayer(config, dropout) for _ in range(config.decoder_layers))
        self.final_norm = nn.LayerNorm(config.width)
        self.output_dropout = nn.Dropout(dropout)

    def remember(self, grid: Tensor) -> Tensor:
        """Memory (B, S+1, D) of grid features (B, S, C)."""
        x = self.project(self.feature_dropout(torch.cat([grid, grid.mean(1, keepdim=True)], dim=1)))
        x = x + self.cell_embedding
        for layer in self.encoder:
            x = layer(x)
        out: Tensor = self.memory_norm(x)
        return out

    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B, S+1, D) of pictures (B, 3, H, W)."""
        return self.remember(self.vision(pixels))

    def memory_keys_values(self, memory: Tensor) -> list[KeyValue]:
        """Cross-attention keys and values per decoder layer, (B, H, S+1, D/H) each."""
        return [layer.cross_attention.keys_values(memory) for layer in self.decoder]  # type: ignore[union-attr, operator]

    def step_memory(self, memory: Tensor) -> list[KeyValue]:
        """The same for ``step``, which reads them all every time: contiguous, and the keys scaled."""
        pairs = self.memory_keys_values(memory)
        return [(key.contiguous() * key.shape[-1] ** -0.5, value.contiguous()) for key, value in pairs]

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Input vectors (R, T, D) of ``tokens`` (R, T) that stand at ``positions`` (T,) or (R, T); without T alike."""
        scale = self.config.width**0.5  # the tied output embedding wants small weights, the input wants unit variance
        out: Tensor = self.embedding_dropout(self.token_embedding(tokens) * scale + self.position_embedding[positions])
        return out

    def output_states(self, hidden: Tensor) -> Tensor:
        """What the output projection reads (..., D), of decoder outputs (..., D)."""
        out: Tensor = self.output_dropout(self.final_norm(hidden))
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of decoder outputs (..., D); the output projection is the token embedding."""
        return nn.functional.linear(self.output_states(hidden), self.token_embedding.weight)

    def step(self, tokens: Tensor, memory: Sequence[KeyValue], cache: StepCache) -> Tensor:
        """Logits (R, V) after one more token per row (R,), with the ``step_memory`` of B images; ``cache`` grows in
        place."""
        return self.step_together([tokens], [memory], [cache])[0]

    def step_together(
        self, tokens: Sequence[Tensor], memories: Sequence[Sequence[KeyValue]], caches: Sequence[StepCache]
    ) -> list[Tensor]:
        """The same for several caches, each with its tokens and memory: one product with each weight for all rows."""
        counts = [len(each) for each in tokens]
        positions = [self._next_positions(cache) for cache in caches]
        x = self.embed(torch.cat(list(tokens)), torch.cat(positions))
        for cache in caches:
            cache.positions = cache.positions + 1
            cache.open_places()
        biases = [self._bias_of_heads(cache) for cache in caches]
        for number, layer in enumerate(self.decoder):
            readers = [
                Reader(count, cache, number, bias, memory[number])
                for count, cache, bias, memory in zip(counts, caches, biases, memories, strict=True)
            ]
            x = layer.step(x, readers)  # type: ignore[operator]
        logits = PACKED.linear(self.output_states(x), self.token_embedding.weight)
        return list(logits.split_with_sizes(counts))

    def _next_positions(self, cache: StepCache) -> Tensor:
        """(R,)."""
        return cache.positions.clamp(max=self.config.max_positions - 1).repeat_interleave(cache.rows)

    def _bias_of_heads(self, cache: StepCache) -> Tensor:
        """(P*H, Q, N), the same for all layers."""
        return cache.bias.unsqueeze(1).expand(-1, self.config.heads, -1, -1).flatten(0, 1).contiguous()

    def forward(
        self,
        memory: Tensor,
        input_ids: Tensor,
        segments: Tensor | None = None,
        *,
        at: Tensor | None = None,
        logits: bool = True,
        hidden: bool = False,
        attentions: bool = False,
    ) -> TeacherForced:
        """Teacher-forced outputs of ``input_ids`` (R, T) on ``memory`` (B, S+1, D), R a multiple of B.

        Without ``segments`` a row is one caption, padded on the right, where causal attention hides the padding from
        every real token. With ``segments`` (R, T) a row packs several captions of one image: tokens of one caption
        share a number, and each caption sees itself only, from position 0 on. With ``at`` (R, T), logits and states are
        given for the marked positions only, as (N, V) and (N, D): the output projection is the costliest layer.
        """
        length = input_ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).tril()
        positions = torch.arange(length, device=input_ids.device)
        if segments is not None:
            same = segments[:, :, None] == segments[:, None, :]  # (R, T, T)
            positions = (same & mask).sum(-1) - 1  # tokens of the own caption so far
            positions = positions.clamp(max=self.config.max_positions - 1)  # a long run of padding counts on
            mask = (same & mask)[:, None]  # (R, 1, T, T)
        x = self.embed(input_ids, positions)
        states, selfs, crosses = [], [], []
        for layer, key_value in zip(self.decoder, self.memory_keys_values(memory), strict=True):
            x, self_weights, cross_weights = layer(x, key_value, mask)
            states.append(x)
            selfs.append(self_weights)
            crosses.append(cross_weights)
        output = self.output_states(x if at is None else x[at])
        return TeacherForced(
            logits=nn.functional.linear(output, self.token_embedding.weight) if logits else None,
            states=output,
            hidden_states=tuple(states) if hidden else None,
            self_attentions=tuple(selfs) if attentions else None,
            cross_attentions=tuple(crosses) if attentions else None,
        )
