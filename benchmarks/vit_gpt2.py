"""A ViT-GPT2 captioner against ``generate`` of transformers: ``python -m benchmarks.vit_gpt2``.

Random weights in the size of the published checkpoints; every caption has the same number of tokens.
"""

import argparse
import copy
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

from benchmarks.contest import HEADER, Group, measure, ours, pictures, theirs
from benchmarks.report import hardware, markdown_table, say
from models.device import set_threads
from models.families.vision_encoder_decoder import VisionEncoderDecoderCaptioner

BEAM: dict[str, Any] = {"name": "beam", "options": {"beams": 3}}
SIZE_PX = 224


def random_vit_gpt2() -> VisionEncoderDecoderModel:
    """ViT-B/16 and GPT-2 with cross-attention."""
    torch.manual_seed(0)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(), GPT2Config())
    model = VisionEncoderDecoderModel(config).eval()
    ids = {"decoder_start_token_id": 50256, "bos_token_id": 50256, "eos_token_id": 50256, "pad_token_id": 50256}
    model.generation_config.update(**ids)
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.vit_gpt2", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="of each side, per row (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=20, help="tokens of a caption (default: %(default)s)")
    options = parser.parse_args(arguments)
    threads, model = set_threads(None), random_vit_gpt2()
    captioners = {}
    for dtype in (torch.float32, torch.bfloat16):
        own = VisionEncoderDecoderCaptioner(copy.deepcopy(model).to(dtype), None, None).eval()
        captioners[str(dtype).removeprefix("torch.")] = own
    say("## ViT-GPT2 against transformers\n")
    say(f"- {hardware()}; torch {torch.__version__}, transformers {transformers.__version__}, {threads} threads")
    say(f"- beam 3, {options.tokens} tokens a caption, pixels in, captions out; {options.turns} turns after a warm-up")
    rows, equal = [], []
    for batch in (1, 4):
        pixels = pictures(batch, SIZE_PX)
        baseline = theirs(model, pixels, options.tokens, beams=3)
        runs = {
            f"batch {batch}, {name}": ours(captioner, pixels, options.tokens, BEAM)
            for name, captioner in captioners.items()
        }
        rows += measure(Group("transformers float32", baseline, runs, batch), options.turns, None)
        equal.append(f"{runs[f'batch {batch}, float32']() == baseline()} at batch {batch}")
    say(f"- captions in fp32 equal those of transformers: {', '.join(equal)}\n")
    say(markdown_table(HEADER, rows) + "\n")


if __name__ == "__main__":
    main()
