import io

import numpy as np
import pytest
import torch
from PIL import Image

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.errors import RequestError
from models.families.fake import FakeCaptioner
from tests.models.families.tiny_models import images


@pytest.fixture
def captioner() -> FakeCaptioner:
    return FakeCaptioner()


def pixels_of(captioner: FakeCaptioner, pictures: list[Image.Image]) -> torch.Tensor:
    return torch.stack([captioner.preprocess(picture) for picture in pictures])


def captions(
    captioner: FakeCaptioner, pictures: list[Image.Image], name: str = "greedy", count: int = 1
) -> list[list[str]]:
    memory = captioner.encode(pixels_of(captioner, pictures))
    options = {"seed": 0} if name == "sample" else {}  # without one, two of three captions are now and then the same
    strategy = parse_decode({"name": name, "options": options})
    found = decode(captioner, memory, strategy, batch=len(pictures), num_captions=count)
    return [[captioner.detokenize(hypothesis.tokens) for hypothesis in hypotheses] for hypotheses in found]


def test_the_same_picture_gets_the_same_words_in_any_batch(captioner: FakeCaptioner) -> None:
    pictures = images(8)
    together = captions(captioner, pictures)
    assert together == [captions(FakeCaptioner(), [picture])[0] for picture in pictures]
    assert len({words for (words,) in together}) == 8

    stored = io.BytesIO()
    pictures[0].save(stored, "PNG")
    assert captions(captioner, [Image.open(stored)]) == together[:1]


@pytest.mark.parametrize("name", ["greedy", "beam", "sample"])
def test_captions_end_by_themselves_after_4_to_12_words(captioner: FakeCaptioner, name: str) -> None:
    found = captions(captioner, images(40), name)
    lengths = {len(words.split()) for (words,) in found}
    assert lengths <= set(range(4, 13))
    assert len(lengths) > 4


@pytest.mark.parametrize("name", ["beam", "diverse_beam", "sample"])
def test_captions_of_one_picture_differ(captioner: FakeCaptioner, name: str) -> None:
    for found in captions(captioner, images(5), name, count=3):
        assert len(set(found)) == 3


def test_a_small_change_of_the_picture_changes_the_caption(captioner: FakeCaptioner) -> None:
    array = np.array(images(1)[0])
    array[:10, :10] = 255 - array[:10, :10]
    assert captions(captioner, [Image.fromarray(array)]) != captions(captioner, images(1))


def test_prompts_change_what_follows(captioner: FakeCaptioner) -> None:
    memory = captioner.encode(pixels_of(captioner, images(1) * 3))
    prompts = ["", "a small dog", "something unheard-of"]
    found = decode(captioner, memory, parse_decode(None), batch=3, prompts=prompts)
    assert len({hypotheses[0].tokens for hypotheses in found}) == 3


def test_text_round_trips(captioner: FakeCaptioner) -> None:
    (ids,) = captioner.tokenize(["A red dog near every boat"], 4)
    assert captioner.detokenize(ids) == "a red dog near"


def test_has_no_null_memory(captioner: FakeCaptioner) -> None:
    with pytest.raises(RequestError) as caught:
        captioner.null_memory(1)
    assert caught.value.code == "unsupported_option"
