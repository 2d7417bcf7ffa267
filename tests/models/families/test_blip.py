import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BlipForConditionalGeneration, BlipImageProcessorPil, BlipProcessor

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import CheckpointError
from models.families.blip import BlipCaptioner
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
from tests.models.families.tiny_models import PROMPTS, images


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "modules"])
def captioner(blip_folder: Path, request: pytest.FixtureRequest) -> BlipCaptioner:
    captioner = BlipCaptioner.load(str(blip_folder))
    captioner.fused = request.param
    return captioner


@pytest.fixture(scope="module")
def reference(blip_folder: Path) -> BlipForConditionalGeneration:
    return BlipForConditionalGeneration.from_pretrained(blip_folder, dtype=torch.float32).eval()


def generate(
    reference: BlipForConditionalGeneration,
    captioner: BlipCaptioner,
    pixels: torch.Tensor,
    options: dict[str, Any],
    prompt: str | None = None,
) -> list[list[int]]:
    inputs, prefix = {}, 1
    if prompt is not None:
        ids = captioner.tokenizer([prompt] * len(pixels), return_tensors="pt").input_ids  # [CLS] prompt [SEP]
        inputs, prefix = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids.shape[1] - 1
    generated = reference.generate(pixel_values=pixels, max_new_tokens=MAX_TOKENS, **inputs, **options)
    return cut(captioner, generated, prefix)


@pytest.mark.parametrize("prompt", [None, "a big dog"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("raw", "options"), PLAIN)
def test_captions_equal_generate(
    captioner: BlipCaptioner,
    reference: BlipForConditionalGeneration,
    raw: dict[str, Any],
    options: dict[str, Any],
    batch: int,
    prompt: str | None,
) -> None:
    pixels = pixels_of(captioner, batch)
    expected = generate(reference, captioner, pixels, options, prompt)
    assert our_tokens(captioner, pixels, raw, None if prompt is None else [prompt] * batch) == expected


def test_the_tiny_model_says_something(captioner: BlipCaptioner) -> None:
    found = our_tokens(captioner, pixels_of(captioner, 8), {"name": "beam"})
    assert len({tuple(tokens) for tokens in found}) > 4
    assert any(tokens[-1] == captioner.end_id and len(tokens) > 1 for tokens in found)
    assert any(tokens[-1] != captioner.end_id for tokens in found)


@pytest.mark.parametrize(("raw", "options"), WITH_OPTIONS + COUNTING_THE_START_TOKEN)
def test_captions_with_options_equal_generate(
    captioner: BlipCaptioner, reference: BlipForConditionalGeneration, raw: dict[str, Any], options: dict[str, Any]
) -> None:
    pixels = pixels_of(captioner, 4)
    for prompt in (None, "the old dog"):
        expected = generate(reference, captioner, pixels, options, prompt)
        assert our_tokens(captioner, pixels, raw, None if prompt is None else [prompt] * 4) == expected


@pytest.mark.parametrize(("raw", "options"), [*PLAIN, COUNTING_THE_START_TOKEN[1]])
def test_prompts_of_different_lengths_equal_single_runs(
    captioner: BlipCaptioner, reference: BlipForConditionalGeneration, raw: dict[str, Any], options: dict[str, Any]
) -> None:
    pixels, prompts = pixels_of(captioner, 4), [*PROMPTS, ""]
    together = our_tokens(captioner, pixels, raw, prompts)
    for image, prompt in enumerate(prompts):
        alone = pixels[image : image + 1]
        assert our_tokens(captioner, alone, raw, [prompt]) == [together[image]]
        assert generate(reference, captioner, alone, options, prompt or None) == [together[image]]


def test_scores_equal_generate(captioner: BlipCaptioner, reference: BlipForConditionalGeneration) -> None:
    pixels = pixels_of(captioner, 3)
    strategy = parse_decode({"name": "beam", "options": {"beams": 4, "max_tokens": MAX_TOKENS}})
    with torch.no_grad():
        found = decode(captioner, captioner.encode(pixels), strategy, batch=3, num_captions=4)
    generated = reference.generate(
        pixel_values=pixels,
        num_beams=4,
        num_return_sequences=4,
        max_new_tokens=MAX_TOKENS,
        return_dict_in_generate=True,
        output_scores=True,
    )
    scores = [hypothesis.score for hypotheses in found for hypothesis in hypotheses]
    assert scores == pytest.approx(generated.sequences_scores.tolist(), rel=1e-5)


def test_memory_is_projected_once_and_never_copied(blip_folder: Path) -> None:
    captioner = BlipCaptioner.load(str(blip_folder))
    captioner.fused = False
    pixels = pixels_of(captioner, 2)
    layers = captioner.model.text_decoder.bert.encoder.layer
    keys = [layer.crossattention.self.key for layer in layers]
    with torch.no_grad():
        memory = captioner.encode(pixels)
        with count_calls(*keys) as calls:
            strategy = parse_decode({"name": "beam", "options": {"beams": 5}})
            decode(captioner, memory, strategy, batch=2, prompts=["a", "the old dog"])
        assert calls == [2] * len(layers)  # once per layer, one row per image

        state, _ = captioner.start(memory)
        captioner.reorder(state, torch.tensor([0, 0, 0, 1, 1, 1]))
        captioner.step(state, torch.tensor([5, 6, 7, 8, 9, 10]))
    for own, cross in zip(
        state.cache.self_attention_cache.layers, state.cache.cross_attention_cache.layers, strict=True
    ):
        assert own.keys.shape[0] == own.values.shape[0] == 6
        assert cross.keys.shape[0] == cross.values.shape[0] == 2
        assert own.keys.shape[2] == 2
        assert cross.keys.shape[2] == memory.shape[1]


def test_half_precision(blip_folder: Path) -> None:
    captioner = BlipCaptioner.load(str(blip_folder), dtype=torch.bfloat16)
    assert captioner.dtype == torch.bfloat16
    assert all(our_tokens(captioner, pixels_of(captioner, 2), {"name": "beam"}))


def test_pixels_are_the_image_processors(captioner: BlipCaptioner, blip_folder: Path) -> None:
    processor = BlipImageProcessorPil.from_pretrained(blip_folder)
    (image,) = images(1)
    assert torch.equal(captioner.preprocess(image), processor(image, return_tensors="pt")["pixel_values"][0])
    assert captioner.preprocess(image).dtype == torch.float32


def test_detokenize_joins_pieces_and_punctuation(captioner: BlipCaptioner) -> None:
    words = "a man ' s dog , the cat ##s .".split()
    assert captioner.detokenize(captioner.tokenizer.convert_tokens_to_ids(words)) == "a man's dog, the cats."
    assert captioner.tokenize(["a dog", "a big old dog"], 3) == [
        captioner.tokenizer.convert_tokens_to_ids(["a", "dog"]),
        captioner.tokenizer.convert_tokens_to_ids(["a", "big", "old"]),
    ]


def test_loads_what_the_processor_class_saves(captioner: BlipCaptioner, tmp_path: Path) -> None:
    captioner.model.save_pretrained(tmp_path)
    BlipProcessor(captioner.image_processor, captioner.tokenizer).save_pretrained(tmp_path)
    again = BlipCaptioner.load(str(tmp_path))
    pixels = pixels_of(captioner, 2)
    assert torch.equal(pixels_of(again, 2), pixels)
    assert our_tokens(again, pixels, {"name": "beam"}) == our_tokens(captioner, pixels, {"name": "beam"})


@pytest.fixture
def copied_folder(blip_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(blip_folder, tmp_path / "blip")


def refusal(folder: Path | str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        BlipCaptioner.load(str(folder))
    return caught.value


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "preprocessor_config.json"])
def test_missing_files_are_named(copied_folder: Path, name: str) -> None:
    (copied_folder / name).unlink()
    error = refusal(copied_folder)
    assert error.code == "missing_file"
    assert str(copied_folder) in error.detail


def test_a_missing_tokenizer_is_refused(copied_folder: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (copied_folder / file).unlink()
    error = refusal(copied_folder)
    assert error.code in {"bad_config", "missing_file"}
    assert "tokenizer" in error.detail


@pytest.mark.parametrize("source", ["nowhere/at/all", "./nowhere", "/nowhere", "owner/not-in-the-cache"])
def test_missing_folders_and_hub_ids_are_named(source: str) -> None:
    error = refusal(source)
    assert error.code == "missing_file"
    assert source in error.detail


def test_truncated_weights_are_refused(copied_folder: Path) -> None:
    weights = copied_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert refusal(copied_folder).code == "missing_file"


def test_wrong_keys_are_refused_and_named(copied_folder: Path) -> None:
    weights = copied_folder / "model.safetensors"
    tensors = load_file(weights)
    name = "text_decoder.bert.encoder.layer.1.output.dense.weight"

    save_file({key: value for key, value in tensors.items() if key != name}, weights, metadata={"format": "pt"})
    assert (refusal(copied_folder).code, name in refusal(copied_folder).detail) == ("wrong_keys", True)

    save_file(tensors | {"text_decoder.extra": torch.ones(1)}, weights, metadata={"format": "pt"})
    assert "text_decoder.extra" in refusal(copied_folder).detail

    save_file(tensors | {name: tensors[name][:-1].clone()}, weights, metadata={"format": "pt"})
    assert refusal(copied_folder).code == "wrong_keys"

    buffers = {"text_decoder.bert.embeddings.position_ids": torch.arange(48).unsqueeze(0)}  # as old versions stored
    save_file(tensors | buffers, weights, metadata={"format": "pt"})
    BlipCaptioner.load(str(copied_folder))


@pytest.mark.parametrize("text", ["{}", "not json", '{"model_type": "no-such-model"}'])
def test_broken_configs_are_refused(copied_folder: Path, text: str) -> None:
    (copied_folder / "config.json").write_text(text)
    error = refusal(copied_folder)
    assert error.code in {"bad_config", "missing_file"}
    assert "config.json" in error.detail


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
@pytest.mark.parametrize(
    ("key", "size", "code"),
    [
        ("num_hidden_layers", 10_000_000, "bad_config"),
        ("num_hidden_layers", 10**30, "bad_config"),
        ("num_hidden_layers", 3, "wrong_keys"),
        ("hidden_size", 4_000_000, "wrong_keys"),
        ("intermediate_size", 10**9, "wrong_keys"),
    ],
)
def test_configs_that_ask_for_more_than_the_weights_are_refused(
    copied_folder: Path, part: str, key: str, size: int, code: str
) -> None:
    config = json.loads((copied_folder / "config.json").read_text())
    config[part][key] = size
    (copied_folder / "config.json").write_text(json.dumps(config))
    assert refusal(copied_folder).code == code


def test_other_configs_are_refused(copied_folder: Path, vit_gpt2_folder: Path) -> None:
    error = refusal(vit_gpt2_folder)
    assert (error.code, "'vision-encoder-decoder'" in error.detail) == ("bad_config", True)

    settings = json.loads((copied_folder / "preprocessor_config.json").read_text())
    settings["size"] = {"height": 16, "width": 16}
    (copied_folder / "preprocessor_config.json").write_text(json.dumps(settings))
    error = refusal(copied_folder)
    assert error.code == "bad_config"
    assert "(16, 16)" in error.detail
