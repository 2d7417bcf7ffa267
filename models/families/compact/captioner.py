"""A compact model as a ``models.interfaces.Captioner``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from PIL import Image
from pydantic import ValidationError
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import Parameter

from models.card import FilePart, WeightsCard
from models.checkpoints import check_fit, load_into, to_json_config, write_checkpoint
from models.errors import CheckpointError, RequestError
from models.families.base import CardMaker, TorchCaptioner
from models.families.compact.config import CompactConfig
from models.families.compact.model import CompactModel
from models.families.compact.step_cache import StepCache, cat_pairs
from models.families.compact.text import join_words
from models.interfaces import DecodeState, TeacherForced
from models.mixing.loading import read_weights
from models.rows import keep_rows, moving_rows

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
VISION = "vision"
DECODER = "decoder"


class CompactCaptioner(TorchCaptioner):
    """Captions of pictures squashed to a square; the part ``vision`` can be shared between checkpoints."""

    family: ClassVar[str] = "compact"
    capabilities = frozenset({"null_memory", "packing", "joining", "shared_steps"})

    def __init__(self, config: CompactConfig, tokenizer: Tokenizer, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.model = CompactModel(config, dropout)
        self.vocab_size = config.vocab_size
        self.start_id = config.start_id
        self.end_id = config.end_id
        self.max_positions = config.max_positions

    @classmethod
    def load(
        cls,
        source: str,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        models_dir: Path | None = None,
        coefficients: Mapping[str, float] | None = None,
    ) -> Self:
        """The captioner of a checkpoint folder, of stored weights, a mix or a spectrum, in eval mode.

        Args:
            coefficients: of the directions; None: as the card says.

        Raises:
            CheckpointError: a file is missing or damaged, or tensors do not fit the config.
        """
        folder, tensors = read_weights(Path(source), models_dir, coefficients)
        config, tokenizer = _read_config(folder / CONFIG_FILE), _read_tokenizer(folder / TOKENIZER_FILE)
        if (words := tokenizer.get_vocab_size()) > config.vocab_size:
            raise CheckpointError("bad_config", f"{folder}: {words} tokens, but vocab_size is {config.vocab_size}")
        with torch.device("meta"):  # sizes alone: a config that asks for more than the files hold takes no memory
            check_fit(cls(config, tokenizer).model, tensors, folder)
        captioner = cls(config, tokenizer)
        captioner.to(device=device, dtype=dtype)
        load_into(captioner.model, tensors, folder)
        captioner.model.vision.to(memory_format=torch.channels_last)
        return captioner.eval()

    def save(
        self,
        folder: str | Path,
        make_card: CardMaker | None = None,
        extra_files: Mapping[str, str] | None = None,
    ) -> None:
        """Write a checkpoint folder in fp16.

        Args:
            make_card: as in ``models.checkpoints.write_checkpoint``; None makes a card without history.
            extra_files: text files by name to keep beside the weights, such as the recipe.
        """
        folder = Path(folder)

        def plain_card(parts: dict[str, FilePart], files: dict[str, str]) -> WeightsCard:
            return WeightsCard(
                id=folder.name,
                family=self.family,
                description="a compact captioner",
                licence="unstated",
                parts=dict(parts),
                files=files,
            )

        def write_files(draft: Path) -> None:
            (draft / CONFIG_FILE).write_text(to_json_config(self.config), encoding="utf-8")
            self.tokenizer.save(str(draft / TOKENIZER_FILE))
            for name, text in (extra_files or {}).items():
                (draft / name).write_text(text, encoding="utf-8")

        state = self.model.state_dict()
        parts = {
            VISION: {name: tensor for name, tensor in state.items() if name.startswith(f"{VISION}.")},
            DECODER: {name: tensor for name, tensor in state.items() if not name.startswith(f"{VISION}.")},
        }
        write_checkpoint(folder, make_card or plain_card, parts, write_files)

    @property
    def input_side_px(self) -> int:
        return self.config.image_size_px

    def preprocess(self, image: Image.Image) -> Tensor:
        """Pixels (3, H, W) in [-1, 1]; the picture is squashed to a square, bicubic."""
        side = self.config.image_size_px
        pixels = np.array(image.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
        pixels /= 127.5
        pixels -= 1
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B, S+1, D)."""
        memory: Tensor = self.model.encode(self.upload(pixels))
        return memory

    def train_encoder(self, trained: bool) -> list[Parameter]:
        """The last blocks can be trained; the stem stays frozen."""
        self.encoder_is_trained = trained
        self.model.vision.requires_grad_(False)
        self.model.vision.top.requires_grad_(trained)
        return list(self.model.vision.top.parameters()) if trained else []

    def frozen_encoder(self) -> list[Tensor]:
        vision = self.model.vision
        return list((vision.stem if self.encoder_is_trained else vision).state_dict().values())

    def preprocessing(self) -> dict[str, Any]:
        return {"image_size_px": self.config.image_size_px}

    def encode_stem(self, pixels: Tensor) -> Tensor:
        """Features (B, C, h, w) of the frozen half of a trained encoder, or the grid (B, S, C) of a frozen one."""
        vision = self.model.vision
        pixels = self.upload(pixels)
        features: Tensor = vision.forward_stem(pixels) if self.encoder_is_trained else vision(pixels)
        return features

    def encode_from_stem(self, features: Tensor) -> Tensor:
        """Memory (B, S+1, D) of what ``encode_stem`` gave."""
        grid = self.model.vision.forward_top(features) if self.encoder_is_trained else features
        memory: Tensor = self.model.remember(grid)
        return memory

    def null_memory(self, batch: int) -> Tensor:
        """The learned memory (B, S+1, D) of "no picture"."""
        memory: Tensor = self.model.null_memory.expand(batch, -1, -1)
        return memory

    def start(self, memory: Tensor, prompts: list[str] | None = None) -> tuple[DecodeState, Tensor]:
        if prompts and any(prompts):
            raise RequestError("unsupported_option", "models of the family 'compact' take no prompt")
        keys_values = self.model.step_memory(memory)
        state = DecodeState(memory=keys_values, cache=StepCache(keys_values))
        start = torch.full((memory.shape[0],), self.start_id, device=memory.device)
        return state, self.step(state, start)

    def step(self, state: DecodeState, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model.step(tokens, state.memory, state.cache)
        return logits

    def step_together(self, states: Sequence[DecodeState], tokens: Sequence[Tensor]) -> list[Tensor]:
        logits: list[Tensor] = self.model.step_together(
            tokens, [state.memory for state in states], [state.cache for state in states]
        )
        return logits

    def reorder(self, state: DecodeState, rows: Tensor) -> None:
        state.cache.reorder(rows)

    def merge(self, states: Sequence[DecodeState]) -> DecodeState:
        layers = zip(*(state.memory for state in states), strict=True)
        return DecodeState([cat_pairs(layer) for layer in layers], StepCache.merge([state.cache for state in states]))

    def keep(self, state: DecodeState, images: Tensor) -> None:
        movers = moving_rows(images)
        state.memory = [
            (keep_rows(key, images, movers), keep_rows(value, images, movers)) for key, value in state.memory
        ]
        state.cache.keep(images)

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
        out: TeacherForced = self.model(
            memory,
            input_ids,
            segments,
            at=at,
            logits=output_logits,
            hidden=output_hidden_states,
            attentions=output_attentions,
        )
        return out

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        return self.model.token_embedding.weight, None

    def vocabulary(self) -> dict[str, int]:
        return dict(self.tokenizer.get_vocab())

    def continuation(self, token: int) -> int:
        number: int | None = self.tokenizer.token_to_id(f"##{self.tokenizer.id_to_token(token)}")
        return token if number is None else number

    def tokenize(self, texts: list[str], max_tokens: int) -> list[list[int]]:
        encodings = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids[:max_tokens] for encoding in encodings]

    def detokenize(self, tokens: tuple[int, ...] | list[int]) -> str:
        return join_words(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


def _read_config(path: Path) -> CompactConfig:
    try:
        return CompactConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError("missing_file", f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise CheckpointError(
            "bad_config", f"{path}: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}"
        ) from error


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError("missing_file", f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # tokenizers raises bare Exception for malformed files
        raise CheckpointError("bad_config", f"{path} is no tokenizer: {error}") from error
