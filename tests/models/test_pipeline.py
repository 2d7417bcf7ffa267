from pathlib import Path

import pytest
from PIL import Image

from models.card import WeightsCard, dump_card
from models.catalog import CaptionerEntry
from models.clip_scorer import load_scorer
from models.decoding import parse_decode
from models.errors import CheckpointError, RequestError, UnknownNameError
from models.pipeline import CaptionPipeline, load_captioner, load_pipeline
from tests.models.families.compact.tiny import save_compact
from tests.tiny_scorer import write_tiny_scorer

PICTURES = [Image.new("RGB", (40, 30), colour) for colour in ("red", "green", "blue")]
BEAM = parse_decode({"name": "beam"})
SAMPLE = parse_decode({"name": "sample"})


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> CaptionPipeline:
    folder = write_tiny_scorer(tmp_path_factory.mktemp("scorers") / "tiny")
    return load_pipeline("fake", scorer=f"local-dir:{folder}", device="cpu")


def _texts(pipeline: CaptionPipeline, pictures: list[Image.Image], **options: object) -> list[list[str]]:
    result = pipeline.caption(pictures, options.pop("strategy", BEAM), **options)  # type: ignore[arg-type]
    return [[caption.text for caption in captions] for captions in result.captions]


def test_each_picture_gets_its_own_captions_best_first(pipeline: CaptionPipeline) -> None:
    result = pipeline.caption(PICTURES, BEAM, num_captions=3)
    assert [len(captions) for captions in result.captions] == [3, 3, 3]
    assert len({captions[0].text for captions in result.captions}) == 3
    for caption in (caption for captions in result.captions for caption in captions):
        assert caption.finish_reason == "stop"
        assert caption.tokens == len(caption.text.split()) + 1  # the end token counts
        assert caption.logprob < 0
        assert (caption.clip_score, caption.scorer) == (None, None)
    assert result.timing_ms.keys() == {"encode", "decode", "score"}
    assert result.timing_ms["score"] == 0


def test_a_batch_gives_what_single_pictures_give(pipeline: CaptionPipeline) -> None:
    assert _texts(pipeline, PICTURES) == [_texts(pipeline, [picture])[0] for picture in PICTURES]


def test_no_pictures_are_no_error(pipeline: CaptionPipeline) -> None:
    assert pipeline.caption([], BEAM).captions == []


def test_a_caption_cut_at_the_limit_says_so(pipeline: CaptionPipeline) -> None:
    cut = pipeline.caption(PICTURES[:1], parse_decode({"name": "greedy", "options": {"max_tokens": 2}})).captions[0][0]
    assert (cut.finish_reason, cut.tokens, len(cut.text.split())) == ("length", 2, 2)


def test_seeds_travel_with_their_picture(pipeline: CaptionPipeline) -> None:
    seeds = [7, 8, 9]
    together = _texts(pipeline, PICTURES, strategy=SAMPLE, seeds=seeds)
    alone = [
        _texts(pipeline, [picture], strategy=SAMPLE, seeds=[seed])
        for picture, seed in zip(PICTURES, seeds, strict=True)
    ]
    assert together == [captions[0] for captions in alone]


def test_prompts_begin_the_captions(pipeline: CaptionPipeline) -> None:
    assert _texts(pipeline, PICTURES[:2], prompts=["a red dog", ""])[1] == _texts(pipeline, [PICTURES[1]])[0]


def test_scores_are_those_of_the_scorer(pipeline: CaptionPipeline) -> None:
    result = pipeline.caption(PICTURES, BEAM, num_captions=2, score=True)
    assert pipeline.scorer is not None
    texts = [[caption.text for caption in captions] for captions in result.captions]
    expected = pipeline.scorer.score(PICTURES, texts)
    found = [[caption.clip_score for caption in captions] for captions in result.captions]
    assert found == [pytest.approx(scores, abs=1e-5) for scores in expected]
    assert {caption.scorer for captions in result.captions for caption in captions} == {"tiny"}
    assert pipeline.score(PICTURES, texts) == [pytest.approx(scores, abs=1e-5) for scores in expected]


def test_only_chosen_pictures_are_scored(pipeline: CaptionPipeline) -> None:
    captions = pipeline.caption(PICTURES, BEAM, score=[False, True, False]).captions
    assert [captions[i][0].clip_score is not None for i in range(3)] == [False, True, False]
    assert captions[1][0].clip_score == pytest.approx(pipeline.score(PICTURES[1:2], [[captions[1][0].text]])[0][0])


def test_without_a_scorer_scores_are_refused() -> None:
    bare = load_pipeline("fake", scorer=None, device="cpu")
    assert bare.scorer_id is None
    for ask in (lambda: bare.caption(PICTURES, BEAM, score=True), lambda: bare.score(PICTURES, [[]] * 3)):
        with pytest.raises(RequestError, match="unsupported_option: score: no scorer is loaded"):
            ask()


def test_more_captions_than_beams_are_refused(pipeline: CaptionPipeline) -> None:
    with pytest.raises(RequestError, match="num_captions 4 is more than the 3"):
        pipeline.caption(PICTURES, BEAM, num_captions=4)


def test_a_checkpoint_of_the_models_folder_is_loaded_by_its_id(tmp_path: Path) -> None:
    save_compact(tmp_path / "tiny")
    pipeline = load_pipeline("tiny", models_dir=tmp_path, scorer=None, device="cpu")
    assert (pipeline.model_id, pipeline.card.family) == ("tiny", "compact")
    assert len(pipeline.caption(PICTURES, BEAM).captions) == 3


def test_a_scorer_cannot_caption(tmp_path: Path) -> None:
    folder = write_tiny_scorer(tmp_path / "clip")
    (folder / "card.json").write_text('{"kind": "scorer", "id": "clip", "description": "", "licence": ""}')
    assert load_scorer("clip", models_dir=tmp_path, device="cpu").scorer_id == "clip"
    with pytest.raises(UnknownNameError, match="'clip' is a scorer; a captioner is needed"):
        load_pipeline("clip", models_dir=tmp_path, scorer=None)


def test_an_unknown_family_or_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    card = WeightsCard(id="m", family="cubist", description="", licence="")
    with pytest.raises(UnknownNameError, match="no captioner family named 'cubist'; there are: blip, compact"):
        load_captioner(CaptionerEntry("m", tmp_path, card))
    (tmp_path / "m").mkdir()
    (tmp_path / "m/card.json").write_text(dump_card(card.model_copy(update={"family": "compact"})))
    with pytest.raises(CheckpointError, match="missing_file: .*config.json"):
        load_pipeline("m", models_dir=tmp_path, scorer=None)


def test_int8_is_for_families_that_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.device.cpu_has_int8", lambda: True)
    with pytest.raises(RequestError, match="family 'fake' cannot run in int8") as caught:
        load_pipeline("fake", scorer=None, device="cpu", dtype="int8")
    assert caught.value.code == "unsupported_option"
