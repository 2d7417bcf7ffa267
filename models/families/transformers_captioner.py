"""What the families over image-to-text models of ``transformers`` share: decoding with a cache, loading, saving."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import Parameter
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from models.device import beside_int8
from models.errors import CheckpointError
from models.families.base import CardMaker, TorchCaptioner, tidy
from models.families.fused import decoder as fused_decoding
from models.families.fused.build import DECODER_MAKERS
from models.families.fused.linears import Precision
from models.families.fused.prepared import Prepared
from models.families.fused.rows import Rows
from models.families.hub import load_config, load_model, load_preprocessing, save_in_hub_layout, verify_hub_files
from models.families.memory_sharing import share_memory, unfold_attentions
from models.families.resizing import to_pixels
from models.interfaces import DecodeState, TeacherForced
from models.rows import cat_left_padded, keep_rows, leading_padding, rows_of

T = TypeVar("T")


class TransformersCaptioner(TorchCaptioner, ABC):
    """A captioner whose decoder attends to image memory (B, S, D) by cross-attention.

    Pixels come from the checkpoint's own image processor with the PIL backend: such checkpoints were trained with PIL's
    resampling, and torchvision's differs enough to change captions.

    Captions are made by ``models.families.fused``, and by the modules of transformers, slower, where gradients are
    asked for, while training, and with ``fused = False``. The two give the same fp32 captions.
    """

    capabilities = frozenset({"prompt", "joining", "shared_steps"})
    model_class: ClassVar[type[PreTrainedModel]]
    model_type: ClassVar[str]
    pad_id: int
    cleans_up_spaces: bool
    """Whether ``detokenize`` removes spaces before punctuation: word pieces need it, byte-level tokens do not."""

    model: Any  # transformers types its models and configs too loosely to be of use
    fused = True
    graphs = True
    """Whether steps on a GPU are repeated as CUDA graphs (``models.families.fused.graphs``)."""
    precision: Precision = "stored"
    takes_int8 = True
    _prepared: Mapping[str, Prepared[Any]] = {}

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any) -> None:
        super().__init__()
        self.model = model
        self.image_processor, self.tokenizer = image_processor, tokenizer
        share_memory(self.decoder)

    @classmethod
    def load(cls, source: str, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Self:
        """The captioner in ``source``, a local folder in hub layout or a hub id, in evaluation mode.

        Args:
            dtype: ``torch.int8`` quantises the products of decoding; all else is in bf16 then, or in fp32 where the
                processor does not multiply bf16.

        Raises:
            CheckpointError: ``missing_file``, ``bad_config`` or ``wrong_keys``; the detail names file or key.
        """
        verify_hub_files(source)
        cls.check_config(load_config(source, cls.model_type), source)
        stored = beside_int8(torch.device(device)) if dtype == torch.int8 else dtype
        model = load_model(source, cls.model_class, device=device, dtype=stored)
        captioner = cls(model, *load_preprocessing(source))
        captioner.precision = "int8" if dtype == torch.int8 else "stored"
        captioner._check_image_size(source)
        captioner._check_tokenizer(source)
        return captioner.eval()

    @classmethod
    def check_config(cls, config: Any, source: str) -> None:
        """Refuse (``bad_config``) what the model class could load but this family cannot run."""

    def save(
        self, folder: str | Path, make_card: CardMaker | None = None, extra_files: Mapping[str, str] | None = None
    ) -> None:
        """Write weights, configs, tokenizer and image processor in hub layout, with ``make_card`` also a card."""
        save_in_hub_layout(folder, (self.model, self.tokenizer, self.image_processor), make_card, extra_files)

    @property
    @abstractmethod
    def decoder(self) -> Any:
        """The language model with cross-attention and output layer."""

    @property
    @abstractmethod
    def image_size_px(self) -> tuple[int, int]:
        """Height and width that the encoder takes."""

    @property
    @abstractmethod
    def encoder_modules(self) -> list[nn.Module]:
        """What turns pixels into memory."""

    decoder_arguments: ClassVar[dict[str, Any]] = {}
    """What the decoder's base model wants to be told on every teacher-forced pass."""

    @abstractmethod
    def output_states(self, hidden: Tensor) -> Tensor:
        """What the output layer reads (..., D), from the last layer's output (..., D)."""

    @abstractmethod
    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B, S, D) of pixels (B, 3, H, W)."""

    @property
    def input_side_px(self) -> int:
        return max(self.image_size_px)

    def preprocess(self, image: Image.Image) -> Tensor:
        return to_pixels(self.image_processor, image)

    def start(self, memory: Tensor, prompts: list[str] | None = None) -> tuple[DecodeState, Tensor]:
        texts = self.tokenize(prompts, self.max_positions) if prompts else [[]] * len(memory)
        rows = [[self.start_id, *text] for text in texts]
        length = max(len(row) for row in rows)
        # Left padding: the last column is every row's last real token, so that all rows go on in the same column.
        ids = [[self.pad_id] * (length - len(row)) + row for row in rows]
        if self._runs_fused():
            padding = [length - len(row) for row in rows]
            decoder = self._prepare("decoder", self.decoder, DECODER_MAKERS[self.precision])
            return decoder.start(memory, torch.tensor(ids, device=memory.device), padding, graphs=self.graphs)
        mask = [[0] * (length - len(row)) + [1] * len(row) for row in rows]
        state = DecodeState(memory, EncoderDecoderCache(DynamicCache(), DynamicCache()))
        if any(len(row) != length for row in rows):
            state.extra["mask"] = torch.tensor(mask, device=memory.device)  # (R, columns so far)
        return state, self._append(state, torch.tensor(ids, device=memory.device))

    def step(self, state: DecodeState, tokens: Tensor) -> Tensor:
        if isinstance(state.cache, Rows):
            return fused_decoding.append(state, tokens.unsqueeze(1))
        mask = state.extra.get("mask")
        if mask is not None:
            state.extra["mask"] = torch.cat((mask, mask.new_ones(len(mask), 1)), dim=1)
        return self._append(state, tokens.unsqueeze(1))

    def step_together(self, states: Sequence[DecodeState], tokens: Sequence[Tensor]) -> list[Tensor]:
        if all(isinstance(state.cache, Rows) for state in states):
            return fused_decoding.append_together(states, [each.unsqueeze(1) for each in tokens])
        return [self.step(state, each) for state, each in zip(states, tokens, strict=True)]

    def reorder(self, state: DecodeState, rows: Tensor) -> None:
        if isinstance(state.cache, Rows):
            state.cache.select(rows)
            return
        state.cache.self_attention_cache.batch_select_indices(rows)  # keys and values of the memory stay one per image
        if "mask" in state.extra:
            state.extra["mask"] = state.extra["mask"][rows]

    def merge(self, states: Sequence[DecodeState]) -> DecodeState:
        if all(isinstance(state.cache, Rows) for state in states):
            return fused_decoding.merge(states)
        memory = torch.cat([state.memory for state in states])
        caches = [state.cache for state in states]
        merged = DecodeState(
            memory,
            EncoderDecoderCache(
                _merged([cache.self_attention_cache for cache in caches]),
                _merged([cache.cross_attention_cache for cache in caches]),
            ),
        )
        masks = [_mask(state) for state in states]
        if len({mask.shape[1] for mask in masks}) > 1 or any("mask" in state.extra for state in states):
            merged.extra["mask"] = cat_left_padded(masks, 0)
        return merged

    def keep(self, state: DecodeState, images: Tensor) -> None:
        if isinstance(state.cache, Rows):
            fused_decoding.keep(state, images)
            return
        mask = _mask(state)
        rows = rows_of(images, len(mask) // len(state.memory))
        mask = mask[rows]
        skipped = leading_padding(mask > 0)
        for layer in state.cache.self_attention_cache.layers:
            layer.keys, layer.values = (
                keep_rows(tensor, rows)[:, :, skipped:] for tensor in (layer.keys, layer.values)
            )
        for layer in state.cache.cross_attention_cache.layers:
            layer.keys, layer.values = (keep_rows(tensor, images) for tensor in (layer.keys, layer.values))
        state.memory = state.memory[images]
        state.extra = {} if bool(mask[:, skipped:].all()) else {"mask": mask[:, skipped:]}

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._prepared = {}  # some optimisers change weights in ways that torch does not count
        return super().train(mode)

    def _runs_fused(self) -> bool:
        return self.fused and not self.training and not torch.is_grad_enabled()

    def _prepare(self, name: str, module: nn.Module, make: Callable[[Any], T]) -> T:
        """What ``make`` gives for ``module`` as it is now, kept under ``name`` until its weights change."""
        held = self._prepared.get(name)
        if held is None or not held.fits(module, make):
            held = Prepared.of(module, make)
            self._prepared = {**self._prepared, name: held}  # not in place: copies of the captioner share it
        made: T = held.made
        return made

    def _append(self, state: DecodeState, ids: Tensor) -> Tensor:
        """Logits (R, V) after the last of ``ids`` (R, T), which are appended to the cache."""
        padding = {}
        mask = state.extra.get("mask")
        if mask is not None:
            # Only finished rows, which wait for the others, go past the last position; what they predict is not used.
            positions = (mask.cumsum(dim=1) - 1).clamp(0, self.max_positions - 1)
            padding = {"attention_mask": mask, "position_ids": positions[:, -ids.shape[1] :]}
        output = self.decoder(
            input_ids=ids, encoder_hidden_states=state.memory, cache=state.cache, use_cache=True, **padding
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def forward_teacher(
        self,
        memory: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        segments: Tensor | None = None,
        at: Tensor | None = None,
        output_logits: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TeacherForced:
        output = self.decoder.base_model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            encoder_hidden_states=memory,
            use_cache=False,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            **self.decoder_arguments,
        )
        rows = len(input_ids)
        last = output.last_hidden_state
        states = self.output_states(last if at is None else last[at])
        return TeacherForced(
            logits=self.project(states) if output_logits else None,
            states=states,
            hidden_states=tuple(output.hidden_states[1:]) if output_hidden_states else None,  # without the embeddings
            self_attentions=tuple(output.attentions) if output_attentions else None,
            cross_attentions=tuple(unfold_attentions(weights, rows) for weights in output.cross_attentions)
            if output_attentions
            else None,
        )

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        layer = self.decoder.get_output_embeddings()
        return layer.weight, layer.bias

    def train_encoder(self, trained: bool) -> list[Parameter]:
        self.encoder_is_trained = trained
        parameters = [parameter for module in self.encoder_modules for parameter in module.parameters()]
        for parameter in parameters:
            parameter.requires_grad_(trained)
        return parameters if trained else []

    def vocabulary(self) -> dict[str, int]:
        return dict(self.tokenizer.get_vocab())

    def frozen_encoder(self) -> list[Tensor]:
        if self.encoder_is_trained:
            return []
        return [tensor for module in self.encoder_modules for tensor in module.state_dict().values()]

    def preprocessing(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads(self.image_processor.to_json_string())
        return settings

    def continuation(self, token: int) -> int:
        number: int | None = self.tokenizer.convert_tokens_to_ids(f"##{self.tokenizer.convert_ids_to_tokens(token)}")
        return token if number is None or number == self.tokenizer.unk_token_id else number

    def tokenize(self, texts: list[str], max_tokens: int) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, truncation=True, max_length=max_tokens)[
            "input_ids"
        ]
        return ids

    def detokenize(self, tokens: tuple[int, ...] | list[int]) -> str:
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=self.cleans_up_spaces
        )
        return tidy(text)

    def _check_tokenizer(self, source: str) -> None:
        """Refuse a tokenizer of another vocabulary; transformers makes an empty one where the files are missing."""
        entries = len(self.tokenizer)
        if not self.vocab_size // 2 < entries <= self.vocab_size:
            detail = f"the tokenizer of {source} has {entries} entries for a vocabulary of {self.vocab_size}"
            raise CheckpointError("bad_config", f"{detail}: its files are missing or belong to another model")

    def _check_image_size(self, source: str) -> None:
        """Refuse an image processor that makes pictures of another size than the encoder takes."""
        made = tuple(self.preprocess(Image.new("RGB", (8, 8))).shape[1:])
        if made != self.image_size_px:
            detail = f"the image processor of {source} makes {made} pixels, its encoder takes {self.image_size_px}"
            raise CheckpointError("bad_config", detail)


def _mask(state: DecodeState) -> Tensor:
    """(R, columns so far), 1 where a token stands."""
    mask: Tensor | None = state.extra.get("mask")
    if mask is not None:
        return mask
    keys = state.cache.self_attention_cache.layers[0].keys  # (R, H, columns, D/H)
    return torch.ones(keys.shape[0], keys.shape[2], dtype=torch.long, device=keys.device)


def _merged(caches: Sequence[DynamicCache]) -> DynamicCache:
    """The rows of all caches, (N, H, columns, D/H) in each layer, the shorter ones padded on the left."""
    merged = DynamicCache()
    for number, layers in enumerate(zip(*(cache.layers for cache in caches), strict=True)):
        merged.update(
            cat_left_padded([layer.keys for layer in layers], 0.0, dim=-2),
            cat_left_padded([layer.values for layer in layers], 0.0, dim=-2),
            number,
        )
    return merged
