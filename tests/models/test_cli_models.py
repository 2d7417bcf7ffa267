import json
from pathlib import Path

import pytest

from models import cli
from models.card import DataSource, Decoding, FilePart, Measurement, Named, ScorerCard, WeightsCard, dump_card
from models.file_hashes import sha256_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A models folder with a captioner and a scorer."""
    (tmp_path / "talker").mkdir()
    weights = tmp_path / "talker/decoder.safetensors"
    weights.write_bytes(b"weights")
    _write(
        tmp_path / "talker",
        WeightsCard(
            id="talker",
            family="compact",
            description="short captions",
            licence="research only",
            objective=Named(name="mle", options={"image_dropout": 0.1}),
            data=[DataSource(name="Flickr8k", split="train", images=6000, captions=30000, terms="research")],
            origin=["ImageNet weights"],
            seed=17,
            decoding=Decoding(name="beam", options={"no_stutter": 4}),
            measurements=[
                Measurement(split="val", images=1000, values={"cider": 0.5}),
                Measurement(
                    split="test",
                    images=1000,
                    values={"bleu4": 0.24, "cider": 0.604},
                    decoding=Decoding(name="beam", options={"beams": 3}, guidance=1.5),
                    tokenizer="java",
                ),
            ],
            parts={"decoder": FilePart(file=weights.name, sha256=sha256_of(weights))},
        ),
    )
    (tmp_path / "clip").mkdir()
    scorer = ScorerCard(id="clip", description="scores", licence="research only", score_range=(0.4, 0.9))
    _write(tmp_path / "clip", scorer)
    return tmp_path


def _write(folder: Path, card: WeightsCard | ScorerCard) -> None:
    (folder / "card.json").write_text(dump_card(card), encoding="utf-8")


def _rows(text: str) -> dict[str, str]:
    return {line.split()[0]: line for line in text.splitlines()}


def test_list_tells_kind_family_and_headline(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models", "list", "--models-dir", str(root)]) == 0
    rows = _rows(capsys.readouterr().out)
    assert rows["talker"].split(maxsplit=3)[1:3] == ["weights", "compact"]
    assert "cider 0.604 (test)" in rows["talker"] and rows["talker"].endswith("short captions")
    assert rows["clip"].split()[1:4] == ["scorer", "-", "-"]
    columns = {row.index(word) for row, word in ((rows["ID"], "DESCRIPTION"), (rows["talker"], "short"))}
    assert len(columns) == 1


def test_list_as_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models", "list", "--json", "--models-dir", str(root)]) == 0
    facts = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert facts["talker"] == {
        "id": "talker",
        "kind": "weights",
        "family": "compact",
        "measured": "cider 0.604 (test)",
        "description": "short captions",
    }
    assert facts["clip"]["family"] is None


def test_a_broken_model_does_not_hide_the_others(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "clip/card.json").write_text("{", encoding="utf-8")
    assert cli.run(["models", "list", "--models-dir", str(root)]) == 1
    out, err = capsys.readouterr()
    assert "talker" in out
    assert err.startswith("error: bad_card: ") and err.count("\n") == 1


def test_show_prints_the_card(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models", "show", "talker", "--models-dir", str(root)]) == 0
    text = capsys.readouterr().out
    for line in (
        "decoding     beam no_stutter=4",
        "licence      research only",
        "objective    mle image_dropout=0.1",
        "data         Flickr8k train: 6000 images, 30000 captions; research",
        "from         ImageNet weights",
        "seed         17",
        "measured     bleu4 0.24, cider 0.604 (test, 1000 images; beam beams=3 guidance=1.5; tokenizer java)",
        f"folder       {root / 'talker'}",
    ):
        assert f"{line}\n" in text
    assert "decoder.safetensors" in text and "verified" in text


def test_show_a_scorer(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models", "show", str(root / "clip")]) == 0
    text = capsys.readouterr().out
    assert "score        2.5 * max(cos, 0), prefix 'A photo depicts '\n" in text
    assert "range        0.400 to 0.900 on human captions\n" in text


def test_show_as_json_is_the_card(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models", "show", "talker", "--json", "--models-dir", str(root)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((root / "talker/card.json").read_bytes())


def test_show_refuses_damaged_weights(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "talker/decoder.safetensors").write_bytes(b"weightz")
    assert cli.run(["models", "show", "talker", "--models-dir", str(root)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: hash_mismatch: ") and "decoder.safetensors is damaged" in err
