import json
from pathlib import Path

import pytest

from models.card import (
    Card,
    DataSource,
    Decoding,
    DeltaPart,
    Direction,
    FilePart,
    Measurement,
    MixCard,
    Named,
    PinnedPart,
    Reference,
    ScorerCard,
    SharedPart,
    WeightsCard,
    dump_card,
    read_card,
)
from models.errors import CheckpointError

CARD = WeightsCard(
    id="concise",
    family="compact",
    description="short captions",
    licence="research only",
    objective=Named(name="mle", options={"image_dropout": 0.1}),
    data=[DataSource(name="Flickr8k", split="train", images=6000, captions=30000, terms="research")],
    measurements=[Measurement(split="test", images=1000, values={"CIDEr": 60.5}, decoding=Decoding(name="beam"))],
    parts={
        "vision": SharedPart(model="base", part="vision"),
        "decoder": FilePart(file="decoder.safetensors", sha256="0" * 64),
    },
    files={"config.json": "1" * 64},
)
SCORER = ScorerCard(id="scorer", description="scores", licence="research only", score_range=(0.4, 0.9))

MIX = MixCard(
    id="descriptive",
    family="compact",
    description="longer captions",
    licence="research only",
    base=Reference(model="concise", sha256="2" * 64),
    directions={"smile": Direction(model="smile", sha256="3" * 64, coefficient=-0.25)},
)
DELTA = CARD.model_copy(
    update={
        "parts": {
            "decoder": DeltaPart(
                file="decoder.safetensors",
                sha256="4" * 64,
                base=PinnedPart(model="concise", part="decoder", sha256="5" * 64),
            )
        }
    }
)


@pytest.mark.parametrize("card", [CARD, SCORER, MIX, DELTA])
def test_a_card_survives_its_file(card: Card, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(dump_card(card), encoding="utf-8")
    assert read_card(tmp_path) == card


def test_the_file_is_plain_json_for_people() -> None:
    text = dump_card(CARD.model_copy(update={"description": "Größe"}))
    assert text.endswith("}\n")
    assert "Größe" in text
    facts = json.loads(text)
    assert (facts["format"], facts["kind"]) == (1, "weights")
    assert facts["parts"]["vision"] == {"model": "base", "part": "vision"}
    assert "seed" not in facts  # what is not known is left out


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"format": 2}, "format"),
        ({"kind": "pickle"}, "weights|scorer"),
        ({"family": None}, "family"),
        ({"unknown": 1}, "unknown"),
        ({"parts": {"vision": {"file": "x"}}}, "parts.vision"),
        ({"seed": "one"}, "seed"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], where: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps(json.loads(dump_card(CARD)) | change), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"bad_card: .*card.json is no valid card: .*({where})"):
        read_card(tmp_path)


@pytest.mark.parametrize("coefficient", [4.01, -5, "much", None])
def test_a_coefficient_beyond_the_bound_is_refused(coefficient: object, tmp_path: Path) -> None:
    facts = json.loads(dump_card(MIX))
    facts["directions"]["smile"]["coefficient"] = coefficient
    (tmp_path / "card.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"bad_card: .*directions\.smile\.coefficient"):
        read_card(tmp_path)


def test_differences_must_say_to_which_file(tmp_path: Path) -> None:
    facts = json.loads(dump_card(DELTA))
    del facts["parts"]["decoder"]["base"]["sha256"]
    (tmp_path / "card.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(CheckpointError, match="bad_card: .*parts.decoder"):
        read_card(tmp_path)


def test_guidance_is_written_where_there_is_some(tmp_path: Path) -> None:
    assert "guidance" not in dump_card(CARD)
    guided = CARD.model_copy(update={"decoding": Decoding(name="beam", guidance=1.5)})
    assert json.loads(dump_card(guided))["decoding"] == {"name": "beam", "options": {}, "guidance": 1.5}
    (tmp_path / "card.json").write_text(dump_card(guided), encoding="utf-8")
    assert read_card(tmp_path) == guided


@pytest.mark.parametrize("guidance", [-1, 11, "much", None])
def test_guidance_beyond_the_bound_is_refused(guidance: object, tmp_path: Path) -> None:
    facts = json.loads(dump_card(CARD)) | {"decoding": {"name": "beam", "guidance": guidance}}
    (tmp_path / "card.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"bad_card: .*decoding\.guidance"):
        read_card(tmp_path)


def test_a_mix_tells_its_coefficients() -> None:
    assert MIX.coefficients == {"smile": -0.25}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"kind": "weights"'])
def test_what_is_no_json_object_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="bad_card"):
        read_card(tmp_path)


def test_an_absent_card_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing_file: .*card.json cannot be read: No such file"):
        read_card(tmp_path)


def test_a_value_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        Measurement(split="test", images=1, values={"perplexity": float("inf")})
