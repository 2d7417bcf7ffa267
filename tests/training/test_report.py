"""The files that an evaluation writes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from models import card
from models.catalog import find_model
from models.errors import RequestError
from training.metrics.interface import Measurement
from training.report import Difference, Estimate, Evaluation, fixed, update_card


def measurement(name: str, value: float, scale: float = 1, scorer: str | None = None) -> Measurement:
    tokenizer = None if scorer else "ptb-python"
    return Measurement("m", name, value, "what it | means", scale, tokenizer, scorer, ("a note",))


EVALUATION = Evaluation(
    "modèle",
    {"split": "test", "decode": {"name": "beam"}, "images": 2},
    (measurement("cider", 0.5212, 100), measurement("r_at_1", 0.2, 100, "s1"), measurement("r_at_1", 0.3, 100, "s2")),
    ({"image_id": "1", "caption": "ein Mädchen\u2028"}, {"image_id": "2", "caption": "x"}),
)


def test_json_holds_everything_but_the_captions() -> None:
    body = json.loads(EVALUATION.to_json())
    assert body["label"] == "modèle"
    assert body["decode"] == {"name": "beam"}
    assert body["measurements"][0] == {
        "metric": "m",
        "name": "cider",
        "value": 0.5212,
        "definition": "what it | means",
        "table_scale": 100,
        "tokenizer": "ptb-python",
        "scorer": None,
        "notes": ["a note"],
    }
    assert "captions" not in body


def test_markdown_shows_scaled_values_with_scorer_and_definition() -> None:
    lines = EVALUATION.to_markdown().splitlines()
    assert "| cider x100 | 52.12 | ptb-python | what it \\| means; a note |" in lines
    assert "| r_at_1 x100 | 30.00 | s2 | what it \\| means; a note |" in lines
    assert '| decode | {"name": "beam"} |' in lines
    assert "| split | test |" in lines


def test_values_are_found_by_name_and_scorer() -> None:
    assert EVALUATION.value("cider") == 0.5212
    assert EVALUATION.value("r_at_1", "s2") == 0.3
    with pytest.raises(KeyError):
        EVALUATION.value("r_at_1", "s3")


def test_intervals_stand_beside_their_numbers() -> None:
    apart = Difference("first", 0.1, (0.05, 0.15), 0.004, "a test")
    estimates = {("r_at_1", "s2"): Estimate((0.25, 0.351), "percentile", apart)}
    with_intervals = replace(EVALUATION, estimates=estimates)
    assert "| r_at_1 x100 | 30.00 [25.00, 35.10] | s2 |" in with_intervals.to_markdown()
    assert "| r_at_1 x100 | 20.00 | s1 |" in with_intervals.to_markdown()
    plain, under_s2 = json.loads(with_intervals.to_json())["measurements"][1:]
    assert "interval" not in plain
    assert (under_s2["interval"], under_s2["method"]) == ([0.25, 0.351], "percentile")
    assert under_s2["difference"] == {
        "to": "first",
        "value": 0.1,
        "interval": [0.05, 0.15],
        "p": 0.004,
        "test": "a test",
    }


def test_card_records_are_grouped_by_scorer_and_tokenizer() -> None:
    records = [record.model_dump(exclude_none=True) for record in EVALUATION.card_measurements()]
    common = {"split": "test", "images": 2, "decoding": {"name": "beam", "options": {}}}
    assert records == [
        {**common, "values": {"cider": 0.5212}, "tokenizer": "ptb-python"},
        {**common, "values": {"r_at_1": 0.2}, "scorer": "s1"},
        {**common, "values": {"r_at_1": 0.3}, "scorer": "s2"},
    ]


def test_written_files_are_utf8_and_one_caption_per_line(tmp_path: Path) -> None:
    EVALUATION.write(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["captions.jsonl", "evaluation.json", "evaluation.md"]
    replace(EVALUATION, timing={"seconds_per_image": 0.5}).write(folder)
    assert json.loads((folder / "timing.json").read_text(encoding="utf-8")) == {"seconds_per_image": 0.5}
    assert "seconds_per_image" not in (folder / "evaluation.json").read_text(encoding="utf-8")
    rows = (folder / "captions.jsonl").read_bytes().decode("utf-8").split("\n")[:-1]
    assert [json.loads(row) for row in rows] == list(EVALUATION.captions)


def test_a_card_keeps_one_record_per_condition(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    unrelated = card.Measurement(split="val", images=2, values={"cider": 0.1})
    made = card.WeightsCard(id="model", family="fake", description="d", licence="l", measurements=[unrelated])
    (folder / "card.json").write_text(card.dump_card(made), encoding="utf-8")
    for _ in range(2):  # the second time replaces what the first put in
        update_card(find_model(str(folder)), EVALUATION)
    assert card.read_card(folder).measurements == [unrelated, *EVALUATION.card_measurements()]


def test_a_model_without_a_card_is_refused() -> None:
    with pytest.raises(RequestError, match=r"no card\.json"):
        update_card(find_model("fake"), EVALUATION)


@pytest.mark.parametrize("further", [{"distractors": {"train": 3}}, {"num_captions": 5}])
def test_numbers_that_a_card_cannot_explain_are_refused(tmp_path: Path, further: dict[str, object]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    made = card.WeightsCard(id="model", family="fake", description="d", licence="l")
    (folder / "card.json").write_text(card.dump_card(made), encoding="utf-8")
    with pytest.raises(RequestError, match="a card says nothing of"):
        update_card(find_model(str(folder)), replace(EVALUATION, context=EVALUATION.context | further))
    assert card.read_card(folder) == made


def test_nothing_is_shown_as_minus_zero() -> None:
    assert fixed(-0.0001, 2) == "0.00"
    assert (fixed(-0.0, 1, "+"), fixed(1.25, 1, "+"), fixed(-1.0, 1, "+")) == ("+0.0", "+1.2", "-1.0")
