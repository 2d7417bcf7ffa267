import json
import re
from pathlib import Path

import pytest

from models import cli
from models.mixing.loading import read_weights
from tests.models.mixing.tiny_space import write_space


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_space(tmp_path_factory.mktemp("space"))


def _mix(space: Path, *words: str, name: str = "mixed", value: str = "0.5") -> int:
    sums = ["-d", "s=smile", "-c", f"s={value}"]
    return cli.run(["models", "mix", "base", *sums, "--out", str(space / name), "--models-dir", str(space), *words])


def _card(folder: Path) -> dict[str, object]:
    facts: dict[str, object] = json.loads((folder / "card.json").read_bytes())
    return facts


def test_weights_are_written_by_default(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _mix(space, "--direction", "c=contrastive", "--coefficient", "c=-1", name="full") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{space / 'full'}: weights (") and out.endswith(" MB)\n")
    card = _card(space / "full")
    assert (card["id"], card["kind"], card["description"]) == ("full", "weights", "base - 1 c + 0.5 s")
    read_weights(space / "full")


def test_models_of_the_folder_are_added_by_their_ids(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--base", "base", "--add", "smile=0.5", "--add", "contrastive=-1", "--models-dir", str(space)]
    assert cli.run(["models", "mix", *words, "--out", str(space / "added")]) == 0
    assert _card(space / "added")["description"] == "base - 1 contrastive + 0.5 smile"
    for base in ([], ["base", "--base", "base"]):
        assert cli.run(["models", "mix", *base, "--add", "smile=1", "--out", str(space / "x")]) == 2
        assert "name the base once" in capsys.readouterr().err


def test_a_card_alone(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _mix(space, "--card-only", "--id", "half", "--description", "half way", name="card") == 0
    assert ": a card, no weights (0.0 MB)" in capsys.readouterr().out
    card = _card(space / "card")
    assert (card["id"], card["kind"], card["description"]) == ("half", "mix", "half way")
    assert cli.run(["models", "show", "card", "--models-dir", str(space)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("base         base ") and line.endswith("… verified") for line in lines)
    assert any(line.startswith("direction    +0.5 s: smile ") and line.endswith("… verified") for line in lines)
    assert cli.run(["models", "list", "--json", "--models-dir", str(space)]) == 0
    listed = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed["card"] == {
        "id": "card",
        "kind": "mix",
        "family": "compact",
        "measured": None,
        "description": "half way",
    }


@pytest.mark.parametrize(("kind", "lost"), [("int8", (0, 1)), ("int4", (8, 14))])
def test_differences_tell_what_they_lose(
    space: Path, capsys: pytest.CaptureFixture[str], kind: str, lost: tuple[float, float]
) -> None:
    assert _mix(space, f"--{kind}", name="small", value="1") == 0
    told = re.search(rf"{kind} differences to base; (.*)% of the difference is lost", capsys.readouterr().out)
    assert told and lost[0] < float(told[1]) < lost[1]
    assert cli.run(["models", "show", "small", "--models-dir", str(space)]) == 0
    assert "decoder.safetensors" in capsys.readouterr().out


def test_a_mix_of_a_changed_model_is_not_shown(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _mix(space, "--card-only", name="stale") == 0
    card = (space / "stale/card.json").read_text(encoding="utf-8")
    sha256 = json.loads(card)["directions"]["s"]["sha256"]
    (space / "stale/card.json").write_text(card.replace(sha256, "0" * 64), encoding="utf-8")
    capsys.readouterr()
    assert cli.run(["models", "show", "stale", "--models-dir", str(space)]) == 2
    assert "hash_mismatch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--card-only", "--int8"], "--card-only, --int8 and --int4 are three ways to write a mix"),
        (["-c", "s=1"], "option 's' is given twice"),
        (["-c", "t=1"], "no direction 't'; there are: s"),
        (["-c", "t=1", "-d", "t=absent"], "no model 'absent'"),
        (["-d", "t=contrastive"], "direction 't' has no coefficient"),
        (["-d", "t=contrastive", "-c", "t=much"], "coefficient t=much is no number"),
        (["-d", "t=contrastive", "-c", "t=true"], "coefficient t=True is no number"),
        (["-d", "t=contrastive", "-c", "t=4.5"], "is not from -4 to 4"),
        (["-d", "contrastive"], "'contrastive' is not key=value"),
        (["-d", "t=fake", "-c", "t=1"], "'fake' is no checkpoint folder of limner's"),
    ],
)
def test_what_cannot_be_mixed_is_refused_in_one_line(
    words: list[str], message: str, space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _mix(space, *words, name="never") == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not (space / "never").exists()
