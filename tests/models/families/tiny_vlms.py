"""Tiny random multimodal language models saved in the layout of the model hub, with processors made in code."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    CLIPImageProcessorPil,
    GenerationConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    SiglipImageProcessorPil,
)

from tests.models.families.tiny_models import IMAGE_PX, WORDS

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "<video>", "<begin>", "<stop>"]
PAD, START, END, IMAGE, VIDEO, BEGIN, STOP = 0, 1, 2, 4, 5, 6, 7
ENTRIES = [*SPECIAL, *dict.fromkeys(WORDS), *"Describe following image user assistant : what is".split()]
CHAT = (
    "{% for message in messages %}{{ message['role'] }} : {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)
TEXT = {
    "vocab_size": len(ENTRIES),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": PAD,
    "bos_token_id": START,
    "eos_token_id": END,
}
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def save_llava(folder: Path) -> Path:
    """CLIP + Llama: one size for every picture."""
    model = LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config={"model_type": "clip_vision_model", "image_size": IMAGE_PX, "patch_size": 16} | TOWER,
            text_config={"model_type": "llama", "max_position_embeddings": 96} | TEXT,
            image_token_index=IMAGE,
            vision_feature_layer=-1,
        )
    )
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": IMAGE_PX}, crop_size=_square()),
        _tokenizer(),
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT.replace("IMAGE", "<image> "),
    )
    return _save(folder, model, processor, [END])


def save_qwen2_vl(folder: Path, ends: Sequence[int] = (END,)) -> Path:
    """As many tokens as a picture's own size needs, and positions in three dimensions."""
    model = Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(
            vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 14},
            text_config={
                "max_position_embeddings": 4096,
                "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
            }
            | TEXT,
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            vision_start_token_id=BEGIN,
            vision_end_token_id=STOP,
        )
    )
    tokenizer = _tokenizer(image_token="<image>", video_token="<video>")
    processor = Qwen2VLProcessor(
        Qwen2VLImageProcessorPil(),
        tokenizer,
        Qwen2VLVideoProcessor(),
        chat_template=CHAT.replace("IMAGE", "<begin> <image> <stop> "),
    )
    return _save(folder, model, processor, list(ends))


def save_paligemma(folder: Path) -> Path:
    """SigLIP + Gemma without a chat template; picture and instruction see each other in both directions."""
    model = PaliGemmaForConditionalGeneration(
        PaliGemmaConfig(
            vision_config={"model_type": "siglip_vision_model", "image_size": IMAGE_PX, "patch_size": 16} | TOWER,
            text_config={"model_type": "gemma", "max_position_embeddings": 96} | TEXT,
            image_token_index=IMAGE,
            projection_dim=32,
        )
    )
    images = SiglipImageProcessorPil(size=_square())
    images.image_seq_length = (IMAGE_PX // 16) ** 2
    return _save(folder, model, PaliGemmaProcessor(images, _tokenizer()), [END])


def _tokenizer(**special: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(ENTRIES)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=special,
    )


def _square() -> dict[str, int]:
    return {"height": IMAGE_PX, "width": IMAGE_PX}


def _save(folder: Path, model: PreTrainedModel, processor: Any, ends: list[int]) -> Path:
    """Large weights make captions differ between pictures instead of looping."""
    generator = torch.Generator().manual_seed(4)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=PAD, bos_token_id=START)
    for part in (model.eval(), processor):
        part.save_pretrained(folder)
    return folder
