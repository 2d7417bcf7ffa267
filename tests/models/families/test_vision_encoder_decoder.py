import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import VisionEncoderDecoderModel

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import CheckpointError
from models.families.vision_encoder_decoder import VisionEncoderDecoderCaptioner
from tests.models.families.generate import (
    COUNTING_THE_START_TOKEN,
    MAX_TOKENS,
    PLAIN,
    WITH_OPTIONS,
    count_calls,
    cut,
    our_tokens,
    pixels_of,
)
from tests.models.families.tiny_models import PROMPTS

Pair = tuple[VisionEncoderDecoderCaptioner, VisionEncoderDecoderModel]


def load_pair(folder: Path, fused: bool) -> Pair:
    reference = VisionEncoderDecoderModel.from_pretrained(folder, dtype=torch.float32).eval()
    captioner = VisionEncoderDecoderCaptioner.load(str(folder))
    captioner.fused = fused
    return captioner, reference


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "modules"])
def fused(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def vit_gpt2(vit_gpt2_folder: Path, fused: bool) -> Pair:
    return load_pair(vit_gpt2_folder, fused)


@pytest.fixture(scope="module")
def vit_bert(vit_bert_folder: Path, fused: bool) -> Pair:
    return load_pair(vit_bert_folder, fused)


def generate(pair: Pair, pixels: torch.Tensor, options: dict[str, Any], prompt: str | None = None) -> list[list[int]]:
    captioner, reference = pair
    text = captioner.tokenize([prompt or ""], 99)[0]
    ids = torch.tensor([[captioner.start_id, *text]] * len(pixels))
    generated = reference.generate(
        pixel_values=pixels,
        decoder_input_ids=ids,
        decoder_attention_mask=torch.ones_like(ids),
        max_new_tokens=MAX_TOKENS,
        **options,
    )
    return cut(captioner, generated, ids.shape[1])


@pytest.mark.parametrize("prompt", [None, "a big dog"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("raw", "options"), PLAIN)
def test_vit_gpt2_captions_equal_generate(
    vit_gpt2: Pair, raw: dict[str, Any], options: dict[str, Any], batch: int, prompt: str | None
) -> None:
    pixels = pixels_of(vit_gpt2[0], batch)
    ours = our_tokens(vit_gpt2[0], pixels, raw, None if prompt is None else [prompt] * batch)
    assert ours == generate(vit_gpt2, pixels, options, prompt)


@pytest.mark.parametrize(("raw", "options"), WITH_OPTIONS)
def test_vit_gpt2_captions_with_options_equal_generate(
    vit_gpt2: Pair, raw: dict[str, Any], options: dict[str, Any]
) -> None:
    pixels = pixels_of(vit_gpt2[0], 4)
    assert our_tokens(vit_gpt2[0], pixels, raw) == generate(vit_gpt2, pixels, options)


@pytest.mark.parametrize(("raw", "options"), PLAIN + WITH_OPTIONS + COUNTING_THE_START_TOKEN)
def test_vit_bert_captions_equal_generate(vit_bert: Pair, raw: dict[str, Any], options: dict[str, Any]) -> None:
    pixels = pixels_of(vit_bert[0], 3)
    assert our_tokens(vit_bert[0], pixels, raw) == generate(vit_bert, pixels, options)


def test_tiny_models_say_something(vit_gpt2: Pair, vit_bert: Pair) -> None:
    for captioner, _ in (vit_gpt2, vit_bert):
        found = our_tokens(captioner, pixels_of(captioner, 8), {"name": "beam"})
        assert len({tuple(tokens) for tokens in found}) > 4
        assert any(tokens[-1] == captioner.end_id and len(tokens) > 1 for tokens in found)


@pytest.mark.parametrize("kind", ["vit_gpt2", "vit_bert"])
@pytest.mark.parametrize("raw", [{"name": "greedy"}, {"name": "beam"}, {"name": "diverse_beam"}])
def test_prompts_of_different_lengths_equal_single_runs(
    kind: str, raw: dict[str, Any], fused: bool, request: pytest.FixtureRequest
) -> None:
    pair: Pair = request.getfixturevalue(kind)
    pixels, prompts = pixels_of(pair[0], 4), [*PROMPTS, ""]
    together = our_tokens(pair[0], pixels, raw, prompts)
    for image, prompt in enumerate(prompts):
        alone = pixels[image : image + 1]
        assert our_tokens(pair[0], alone, raw, [prompt]) == [together[image]]
        if raw["name"] != "diverse_beam":
            options = {"num_beams": 3 if raw["name"] == "beam" else 1}
            assert generate(pair, alone, options, prompt) == [together[image]]


def test_finished_rows_may_wait_past_the_last_position(vit_gpt2: Pair) -> None:
    captioner, _ = vit_gpt2
    pixels = pixels_of(captioner, 2)
    long_prompt = "a " * 17
    room = captioner.max_positions - 1 - len(captioner.tokenize([long_prompt], 99)[0])
    assert 0 < room < MAX_TOKENS
    prompts = [long_prompt, ""]
    raw = {"name": "greedy", "options": {"min_tokens": MAX_TOKENS}}
    together = our_tokens(captioner, pixels, raw, prompts)
    assert [len(tokens) for tokens in together] == [room, MAX_TOKENS]
    assert our_tokens(captioner, pixels[:1], raw, [long_prompt]) == together[:1]


@pytest.mark.parametrize(("folder", "projection"), [("vit_gpt2_folder", "c_attn"), ("vit_bert_folder", "self.key")])
def test_memory_is_projected_once_and_never_copied(
    folder: str, projection: str, request: pytest.FixtureRequest
) -> None:
    captioner, _ = load_pair(request.getfixturevalue(folder), fused=False)
    pixels = pixels_of(captioner, 2)
    names = dict(captioner.decoder.named_modules())
    keys = [module for name, module in names.items() if name.endswith(f"crossattention.{projection}")]
    assert len(keys) == 2
    with torch.no_grad(), count_calls(*keys) as calls:
        memory = captioner.encode(pixels)
        decode(captioner, memory, parse_decode({"name": "beam", "options": {"beams": 5}}), batch=2)
    assert calls == [2, 2]


def test_memory_has_the_decoders_width(vit_gpt2: Pair) -> None:
    captioner, _ = vit_gpt2
    with torch.no_grad():
        assert captioner.encode(pixels_of(captioner, 2)).shape == (2, 5, 24)  # class token and 4 patches; D of GPT-2


def test_detokenize(vit_gpt2: Pair, vit_bert: Pair) -> None:
    for captioner, _ in (vit_gpt2, vit_bert):
        assert captioner.detokenize(captioner.tokenize(["a dog near the park"], 99)[0]) == "a dog near the park"
    bert = vit_bert[0]
    assert bert.detokenize(bert.tokenizer.convert_tokens_to_ids(["cat", "##s", ",", "and", "."])) == "cats, and."


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda config: config["decoder"].update(model_type="roberta"), "roberta"),
        (lambda config: config.update(model_type="bert"), "'bert'"),
    ],
)
def test_other_configs_are_refused(vit_bert_folder: Path, tmp_path: Path, change: Any, word: str) -> None:
    folder = shutil.copytree(vit_bert_folder, tmp_path / "changed")
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError) as caught:
        VisionEncoderDecoderCaptioner.load(str(folder))
    assert word in caught.value.detail
