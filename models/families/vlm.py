"""Multimodal language models that are told to describe a picture: the baseline for captioners of their own kind."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoModelForImageTextToText, DynamicCache

from models.errors import CheckpointError, RequestError
from models.families.base import CardMaker, TorchCaptioner, tidy
from models.families.hub import load_config, load_model, load_processor, save_in_hub_layout, verify_hub_files
from models.families.instruction_prompt import DEFAULT_INSTRUCTION, InstructionPrompt
from models.families.picture_canvas import LONGEST_SIDE_PX, from_canvas, to_canvas
from models.interfaces import DecodeState, TeacherForced
from models.rows import rows_of

_NO_LIMIT = 2**15


class VlmCaptioner(TorchCaptioner):
    """Any decoder-only ``AutoModelForImageTextToText`` as a captioner, for inference.

    A prompt is the instruction, in place of ``DEFAULT_INSTRUCTION``; it is no part of the caption. ``start_id`` stands
    for all that the model reads before its answer: chat template, picture and instruction.

    The picture is a part of the decoder's own sequence. So memory is the pictures themselves, which ``start`` runs
    through the vision tower, and each of the K rows of an image has its own copy of the cached keys and values.

    Positions, masks and token types come from the hooks that ``generate`` itself calls: every architecture has its own.
    """

    family: ClassVar[str] = "vlm"
    capabilities = frozenset({"prompt"})

    model: Any  # transformers types its models and configs too loosely to be of use

    def __init__(self, model: Any, processor: Any, source: str) -> None:
        super().__init__()
        self.model = model
        self.prompt = InstructionPrompt(processor, source)
        self.tokenizer = self.prompt.tokenizer
        text = model.config.get_text_config(decoder=True)
        self.vocab_size = text.vocab_size
        self._end_ids = _end_ids(model, self.tokenizer, source)
        self.end_id = self._end_ids[0]
        self.start_id = self.end_id if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id
        self.max_positions = _positions(text) - self._longest_prompt(source) + 1  # 1: the start token

    @classmethod
    def load(cls, source: str, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Self:
        """The captioner in ``source``, a local folder in hub layout or a hub id, in evaluation mode.

        Raises:
            CheckpointError: ``missing_file``, ``bad_config``, ``wrong_keys`` or, where the folder has a card of ours,
                ``hash_mismatch``; the detail names file or key.
            MissingDependencyError: the model's processor needs a package that is not installed.
        """
        verify_hub_files(source)
        verify_hub_files(source)
        config = load_config(source)
        text = config.get_text_config(decoder=True)
        if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or text.is_encoder_decoder:
            what = f"{source} holds a model of type {config.model_type!r}"
            raise CheckpointError("bad_config", f"{what}: no language model that answers about pictures")
        model = load_model(source, AutoModelForImageTextToText, device=device, dtype=dtype)
        return cls(model, load_processor(source), source).eval()

    def save(
        self, folder: str | Path, make_card: CardMaker | None = None, extra_files: Mapping[str, str] | None = None
    ) -> None:
        """Write weights, configs, tokenizer and processor in hub layout, with ``make_card`` also a card."""
        save_in_hub_layout(folder, (self.model, self.prompt.processor), make_card, extra_files)

    @property
    def input_side_px(self) -> int:
        return LONGEST_SIDE_PX

    def preprocess(self, image: Image.Image) -> Tensor:
        """The picture on a square canvas (3, S, S) in 0..255: what sizes a model takes is its processor's business."""
        return to_canvas(image)

    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B, 3, S, S): the canvases as they are."""
        return pixels

    def train_encoder(self, trained: bool) -> list[nn.Parameter]:
        """Nothing: ``unsupported_option``."""
        raise RequestError("unsupported_option", "models of the family 'vlm' are a baseline and are not trained here")

    def start(self, memory: Tensor, prompts: list[str] | None = None) -> tuple[DecodeState, Tensor]:
        state, output = self._read(memory, prompts)
        return state, self._with_one_end(output.logits[:, -1])

    def step(self, state: DecodeState, tokens: Tensor) -> Tensor:
        output = self._append(state, tokens.unsqueeze(1))
        return self._with_one_end(output.logits[:, -1])

    def reorder(self, state: DecodeState, rows: Tensor) -> None:
        state.cache.reorder_cache(rows)
        state.extra = {name: value.index_select(-2, rows) for name, value in state.extra.items()}  # (..., R, columns)

    def merge(self, states: Sequence[DecodeState]) -> DecodeState:
        """Nothing: ``unsupported_option``. Positions and caches of these architectures are theirs to line up."""
        raise RequestError("unsupported_option", "models of the family 'vlm' decode batch by batch")

    def keep(self, state: DecodeState, images: Tensor) -> None:
        self.reorder(state, rows_of(images, state.extra["attention_mask"].shape[-2] // len(state.memory)))
        state.memory = state.memory[images]

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
        """As ``Captioner.forward_teacher``, after the default instruction, which is read once per image.

        Logits are the model's own, also where it has several end tokens.

        Raises:
            RequestError: ``unsupported_option`` for ``output_attentions``: the picture is no memory to attend to.
        """
        if output_attentions:
            raise RequestError("unsupported_option", "models of the family 'vlm' give no attention maps")
        rows = torch.arange(len(memory), device=self.device).repeat_interleave(len(input_ids) // len(memory))
        with self._captured_states() as states:
            state, output = self._read(memory, output_hidden_states=output_hidden_states)
            outputs = [output]
            self.reorder(state, rows)
            if input_ids.shape[1] > 1:
                outputs += [self._append(state, input_ids[:, 1:], attention_mask[:, 1:], output_hidden_states)]
        layers = zip(*(output.hidden_states[1:] for output in outputs), strict=True) if output_hidden_states else ()
        logits, chosen = _joined([output.logits for output in outputs], rows), _joined(states, rows)
        if at is not None:
            logits, chosen = logits[at], chosen[at]
        return TeacherForced(
            logits=logits if output_logits else None,
            states=chosen,
            hidden_states=tuple(_joined(layer, rows) for layer in layers) if output_hidden_states else None,
        )

    def _read(
        self, memory: Tensor, prompts: list[str] | None = None, output_hidden_states: bool = False
    ) -> tuple[DecodeState, Any]:
        """The state after pictures and instructions, and the model's output, logits (B, 1 or P, V)."""
        instructions = [prompt or DEFAULT_INSTRUCTION for prompt in prompts or [""] * len(memory)]
        inputs = self.prompt.inputs([from_canvas(canvas) for canvas in memory], instructions)
        moved = {name: self._moved(value) for name, value in inputs.items()}
        ids = moved.pop("input_ids")
        cache = DynamicCache(config=self.model.config.get_text_config(decoder=True))
        if _takes(self.model, "position_ids"):
            moved["position_ids"] = self.model._prepare_position_ids_for_generation(ids, moved)
        few = {"logits_to_keep": 1} if _takes(self.model, "logits_to_keep") else {}  # (B, P, V) would fill gigabytes
        prepared = self.model.prepare_inputs_for_generation(
            ids, is_first_iteration=True, cache=cache, use_cache=True, **moved, **few
        )
        output = self.model(**prepared, output_hidden_states=output_hidden_states)
        return DecodeState(memory, cache, {name: value for name, value in moved.items() if _grows(name)}), output

    def _append(
        self, state: DecodeState, ids: Tensor, mask: Tensor | None = None, output_hidden_states: bool = False
    ) -> Any:
        """The model's output, logits (R, T, V), for ``ids`` (R, T) behind what the cache holds."""
        length = ids.shape[1]
        state.extra = self.model._update_model_kwargs_for_generation({}, state.extra, num_new_tokens=length)
        if mask is not None:
            state.extra["attention_mask"][:, -length:] = mask
        prepared = self.model.prepare_inputs_for_generation(
            ids, next_sequence_length=length, cache=state.cache, use_cache=True, **state.extra
        )
        return self.model(**prepared, output_hidden_states=output_hidden_states)

    def _moved(self, value: Tensor) -> Tensor:
        return value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)

    def _with_one_end(self, logits: Tensor) -> Tensor:
        """Logits (R, V) where ``end_id`` stands for the likeliest of the end tokens and the others never come."""
        if len(self._end_ids) == 1:
            return logits
        ends = torch.tensor(self._end_ids, device=logits.device)
        likeliest = logits[:, ends].amax(dim=1, keepdim=True)
        return logits.index_fill(1, ends, -torch.inf).index_copy(1, ends[:1], likeliest)

    @contextmanager
    def _captured_states(self) -> Iterator[list[Tensor]]:
        """What the output layer is given, (R, T, D), call by call."""
        seen: list[Tensor] = []
        layer: nn.Module = self.model.get_output_embeddings()
        handle = layer.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
        try:
            yield seen
        finally:
            handle.remove()

    def _longest_prompt(self, source: str) -> int:
        """Tokens of the largest picture with the default instruction."""
        picture = Image.new("RGB", (LONGEST_SIDE_PX, LONGEST_SIDE_PX))
        try:
            inputs = self.prompt.inputs([picture], [DEFAULT_INSTRUCTION])
        except Exception as error:  # processors and their templates raise errors of several libraries
            reason = " ".join(str(error).split())[:300]
            detail = f"the processor of {source} cannot prepare a picture with an instruction: {reason}"
            raise CheckpointError("bad_config", detail) from error
        if "cross_attention_mask" in inputs:
            raise CheckpointError("bad_config", f"{source} attends to pictures by cross-attention: not supported")
        return inputs["input_ids"].shape[1]

    def tokenize(self, texts: list[str], max_tokens: int) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, truncation=True, max_length=max_tokens)[
            "input_ids"
        ]
        return ids

    def detokenize(self, tokens: tuple[int, ...] | list[int]) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return tidy(text)


def _end_ids(model: Any, tokenizer: Any, source: str) -> list[int]:
    """The tokens that end an answer, as the first of these that knows any says."""
    configs = (model.generation_config, model.config, model.config.get_text_config(decoder=True), tokenizer)
    for value in (getattr(config, "eos_token_id", None) for config in configs):
        if value is not None:
            return [value] if isinstance(value, int) else list(value)
    raise CheckpointError("bad_config", f"neither the configs nor the tokenizer of {source} name an end token")


def _positions(text_config: Any) -> int:
    """How many positions the decoder holds; rotary ones may have no limit."""
    return getattr(text_config, "max_position_embeddings", None) or _NO_LIMIT


def _takes(model: Any, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


def _grows(name: str) -> bool:
    """Whether a model input has a column for every token, (..., R, columns)."""
    return name in ("attention_mask", "position_ids") or name.endswith("token_type_ids")


def _joined(parts: Sequence[Tensor], rows: Tensor) -> Tensor:
    """(R, T, ...) from what the whole prompt gave, (B, P, ...), and what the caption gave, (R, T-1, ...)."""
    prompt, *caption = parts
    return torch.cat((prompt[rows, -1:], *caption), dim=1)
