"""Pictures in company: who joins is captioned as if alone, who leaves is forgotten, scores come for several at once."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from PIL import Image

from models.caption_session import Ask, Captioned, Manner
from models.decoding import parse_decode
from models.pipeline import CaptionPipeline, load_pipeline
from tests.models.families.tiny_models import images
from tests.tiny_scorer import write_tiny_scorer

SAMPLE = parse_decode({"name": "sample", "options": {"temperature": 1.3}})
MANNER = Manner(SAMPLE)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> CaptionPipeline:
    folder = write_tiny_scorer(tmp_path_factory.mktemp("scorers") / "tiny")
    return load_pipeline("fake", scorer=f"local-dir:{folder}", device="cpu")


class Guests:
    """Pictures that join three at a time after two steps, and some that leave."""

    def __init__(self, asks: Sequence[Ask], gone: Sequence[int] = ()) -> None:
        self.waiting, self.gone = list(asks), list(gone)
        self.steps = 0
        self.results: dict[int, Captioned] = {}
        self.order: list[list[int]] = [[]]

    def joining(self, under_way: int) -> Sequence[Ask]:
        self.steps += 1
        self.order.append([])
        if self.steps % 2 or not under_way:
            return []
        joined, self.waiting = self.waiting[:3], self.waiting[3:]
        return joined

    def leaving(self) -> Sequence[int]:
        gone, self.gone = self.gone, []
        return gone

    def done(self, number: int, result: Captioned) -> None:
        assert number not in self.results
        self.results[number] = result
        self.order[-1].append(number)


def alone(pipeline: CaptionPipeline, picture: Image.Image, seed: int, score: bool = False) -> tuple[str, float | None]:
    ((caption,),) = pipeline.caption([picture], SAMPLE, seeds=[seed], score=score).captions
    return caption.text, caption.clip_score


def test_everybody_gets_what_they_get_alone(pipeline: CaptionPipeline) -> None:
    pictures = images(11)
    guests = Guests([Ask(MANNER, picture, seed=seed) for seed, picture in enumerate(pictures[4:], 4)], gone=[1])
    mine = [Ask(MANNER, picture, seed=seed) for seed, picture in enumerate(pictures[:4])]
    own = pipeline.caption_asks(mine, guests)
    assert sorted(guests.results) == [0, 2, 3, *range(4, 11)]
    for number, result in guests.results.items():
        assert result.captions[0].text == alone(pipeline, pictures[number], number)[0]
        assert result.decode_ms > 0 and result.encode_ms > 0 and result.score_ms == 0
    assert [len(captions) for captions in own.captions] == [1, 0, 1, 1]  # the second left
    assert {result.part for number, result in guests.results.items() if number < 4} == {0}
    assert guests.results[4].part == guests.results[6].part == 1
    assert sum(map(bool, guests.order)) > 2  # told as they were done, not all at the end


def test_pictures_in_company_are_captioned_each_in_its_own_manner(pipeline: CaptionPipeline) -> None:
    pictures = images(15)
    manners = [
        MANNER,
        Manner(parse_decode({"name": "greedy"})),
        Manner(parse_decode({"name": "beam", "options": {"beams": 4}}), num_captions=2),
        Manner(parse_decode({"name": "sample"}), num_captions=2, rerank=True),
    ]
    chosen = [manners[number % 4] for number in range(15)]
    asks = [
        Ask(manner, picture, seed=seed) for seed, (manner, picture) in enumerate(zip(chosen, pictures, strict=True))
    ]
    guests = Guests(asks[5:], gone=[3])
    pipeline.caption_asks(asks[:5], guests)
    assert sorted(guests.results) == [number for number in range(15) if number != 3]
    for number, result in guests.results.items():
        manner = chosen[number]
        (alone,) = pipeline.caption(
            [pictures[number]],
            manner.strategy,
            num_captions=manner.num_captions,
            rerank=manner.rerank,
            seeds=[number],
        ).captions
        assert [caption.text for caption in result.captions] == [caption.text for caption in alone]
        assert all((caption.clip_score is not None) == manner.rerank for caption in result.captions)


def test_pictures_of_all_manners_are_encoded_together() -> None:
    pipeline = load_pipeline("concise", scorer=None, device="cpu")
    manners = [Manner(parse_decode({"name": "beam", "options": {"beams": beams}})) for beams in (1, 2, 3)]
    asks = [Ask(manners[number % 3], picture) for number, picture in enumerate(images(6))]
    alone = [pipeline.caption_asks([ask]).captions[0][0].text for ask in asks]
    captioner: Any = pipeline.captioner
    sizes: list[int] = []

    def counted(encode: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        def counting(pixels: torch.Tensor) -> torch.Tensor:
            sizes.append(len(pixels))
            return encode(pixels)

        return counting

    captioner.encode, captioner.encode_stem = counted(captioner.encode), counted(captioner.encode_stem)
    assert [captions[0].text for captions in pipeline.caption_asks(asks).captions] == alone
    assert sizes == [6]


def test_scores_in_company_are_those_alone(pipeline: CaptionPipeline) -> None:
    pictures = images(14)
    guests = Guests(
        [Ask(MANNER, picture, seed=seed, score=seed % 2 == 0) for seed, picture in enumerate(pictures[2:], 2)]
    )
    mine = [Ask(MANNER, picture, seed=seed, score=seed == 0) for seed, picture in enumerate(pictures[:2])]
    pipeline.caption_asks(mine, guests)
    assert sorted(guests.results) == list(range(14))
    for number, result in guests.results.items():
        (caption,) = result.captions
        text, score = alone(pipeline, pictures[number], number, score=number % 2 == 0)
        assert caption.text == text
        assert caption.clip_score == (None if score is None else pytest.approx(score, abs=1e-5))
        assert (result.score_ms > 0) == (number % 2 == 0)


def test_pixels_that_are_ready_are_taken(pipeline: CaptionPipeline) -> None:
    red, blue = (Image.new("RGB", (20, 20), colour) for colour in ("red", "blue"))
    asks = [Ask(MANNER, blue, pipeline.captioner.preprocess(red), seed=1), Ask(MANNER, blue, seed=1)]
    found = pipeline.caption_asks(asks).captions
    assert found == pipeline.caption([red, blue], SAMPLE, seeds=[1, 1]).captions
