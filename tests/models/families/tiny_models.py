"""Tiny random captioners saved in the layout of the model hub; weights are scaled up so that captions vary and end."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    BertConfig,
    BertLMHeadModel,
    BertTokenizer,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessorPil,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    PreTrainedModel,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
    ViTModel,
)

IMAGE_PX = 32
_STDS = {"patch_embed": 0.05, "position": 1.0, "wpe": 1.0, "crossattention": 0.5}
"""Large weights make captions differ between pictures and positions instead of looping."""
WORDS = (
    "a the dog cat man red blue big small old runs sits near on in park street beach with and , . ' s ##s ##ing".split()
)
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PROMPTS = ["a", "a big dog", "the old red cat sits near"]


def images(count: int, seed: int = 0) -> list[Image.Image]:
    """Random colour blotches: large enough differences for a random network to see."""
    rng = np.random.default_rng(seed)
    grids = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return [Image.fromarray(grid).resize((48, 40), Image.Resampling.NEAREST) for grid in grids]


def save_blip(folder: Path) -> Path:
    """A BLIP captioner with 2 layers; [DEC] and [ENC] are the last two ids, as in the published checkpoints."""
    tokenizer = _bert_tokenizer(folder, ["[DEC]", "[ENC]"])
    vocab = len(tokenizer)
    ids = {"bos_token_id": vocab - 2, "sep_token_id": 3, "pad_token_id": 0, "eos_token_id": 3}
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BlipConfig(
        text_config=shape | ids | {"vocab_size": vocab, "encoder_hidden_size": 32, "max_position_embeddings": 48},
        # Its default, 1e-10, would make all pictures alike.
        vision_config=shape | {"image_size": IMAGE_PX, "patch_size": 16, "initializer_range": 0.1},
    )
    model = BlipForConditionalGeneration(config)
    _favour_words(model.text_decoder.cls.predictions.bias, end=3, never=[0, 1, 2, 4, vocab - 2, vocab - 1])
    _save(folder, model, tokenizer, BlipImageProcessorPil(size=_size()))
    return folder


def save_vit_gpt2(folder: Path) -> Path:
    """ViT + GPT-2, which start, end and pad with one token, as the published ViT-GPT2 checkpoints do."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        [" ".join(WORDS)] * 4, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False
    )
    trained.save_model(str(folder))
    tokenizer = GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=24,
        n_layer=2,
        n_head=4,
        n_positions=40,
        bos_token_id=end,
        eos_token_id=end,
        add_cross_attention=True,
        is_decoder=True,
    )
    decoder = GPT2LMHeadModel(config)
    _save_pair(folder, decoder, tokenizer, start=end, end=end, pad=end)
    return folder


def save_vit_bert(folder: Path) -> Path:
    """ViT + BERT decoder, which start with [CLS] and end with [SEP]."""
    tokenizer = _bert_tokenizer(folder, [])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=40,
        is_decoder=True,
        add_cross_attention=True,
    )
    decoder = BertLMHeadModel(config)
    _favour_words(decoder.cls.predictions.bias, end=3, never=[0, 1, 2, 4])
    _save_pair(folder, decoder, tokenizer, start=2, end=3, pad=0)
    return folder


def _bert_tokenizer(folder: Path, extra: list[str]) -> BertTokenizer:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(BERT_SPECIAL + WORDS + extra) + "\n", encoding="utf-8")
    return BertTokenizer(str(folder / "vocab.txt"))


def _size() -> dict[str, int]:
    return {"height": IMAGE_PX, "width": IMAGE_PX}


def _favour_words(bias: torch.Tensor, *, end: int, never: list[int]) -> None:
    """Set an output bias (V,) so that captions end now and then and hold no special tokens."""
    bias.data[end] = 3.0
    bias.data[never] = -1000.0


def _save_pair(folder: Path, decoder: PreTrainedModel, tokenizer: object, *, start: int, end: int, pad: int) -> None:
    encoder = ViTModel(
        ViTConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=IMAGE_PX,
            patch_size=16,
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = start, end, pad
    _save(folder, model, tokenizer, ViTImageProcessorPil(size=_size()))


def _save(folder: Path, model: PreTrainedModel, tokenizer: object, processor: object) -> None:
    generator = torch.Generator().manual_seed(4)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            std = next((std for part, std in _STDS.items() if part in name), 0.25)
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * std)
    if isinstance(decoder := getattr(model, "decoder", None), GPT2LMHeadModel):
        # No output bias here: lean every hidden state towards the end token's embedding instead.
        decoder.transformer.ln_f.bias.data.copy_(decoder.transformer.wte.weight[0] * 1.8)
    for part in (model.eval(), tokenizer, processor):
        part.save_pretrained(folder)
