"""``limner caption`` as people type it."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

from models.errors import LimnerError, RequestError, UnknownNameError
from serving import cli_caption
from tests.models.mixing.tiny_dial import write_dial
from tests.serving.support import b64, png

CASES = Path(__file__).parents[1] / "cases"


def caption(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(cli_caption.caption)
    words = ["--model", "fake", "--device", "cpu", *map(str, arguments)]
    result = CliRunner().invoke(app, words)
    if isinstance(result.exception, LimnerError):
        raise result.exception
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures, a text file, a hidden file and a picture in a folder within."""
    (tmp_path / "b.png").write_bytes(png("blue"))
    (tmp_path / "a").write_bytes(png("red"))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_bytes(png())
    (tmp_path / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "in.png").mkdir()
    (tmp_path / "in.png" / "c.png").write_bytes(png("green"))
    return tmp_path


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_for_each_picture_of_a_folder(folder: Path) -> None:
    result = caption(folder)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [name for name, _ in lines] == ["a", "b.png"]
    assert all(text for _, text in lines)
    assert (result.exit_code, result.stderr) == (0, "")


def test_folders_within_on_request_and_several_captions(folder: Path) -> None:
    result = caption(folder, "-r", "--num-captions", "2", "--option", "beams=2")
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["a", "b.png", "in.png/c.png"]
    assert all(len(line) == 3 for line in lines)


def test_each_caption_is_followed_by_its_score_where_it_was_asked_for(folder: Path, scorer: str) -> None:
    result = caption(folder / "b.png", "--num-captions", "2", "--option", "beams=2", "--score", "--scorer", scorer)
    [(name, first, first_score, second, second_score)] = [line.split("\t") for line in result.stdout.splitlines()]
    assert (name, first != second) == (str(folder / "b.png"), True)
    assert all(0 <= float(score) <= 2.5 for score in (first_score, second_score))


def test_failures_are_told_on_stderr_and_by_the_exit_status(folder: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"<html>")
    result = caption(folder, folder / "b.png", folder / "missing.png")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    broken, missing, total = result.stderr.splitlines()
    assert broken.startswith("error: not_an_image: ") and "broken.jpg" in broken
    assert missing.startswith("error: unreadable: ") and "missing.png" in missing
    assert total == "error: 2 of 5 pictures failed"


def test_json_rows_tell_failures_too(folder: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"")
    result = caption(folder, "--json")
    found = rows(result.stdout)
    assert [row["file_name"] for row in found] == ["a", "b.png", "broken.jpg"]
    assert found[2]["error"]["code"] == "empty" and found[2]["captions"] == []
    assert result.exit_code == 1


def test_a_row_is_a_result_of_the_server(client: httpx.Client, folder: Path, scorer: str) -> None:
    request = {"images": [{"base64": b64((folder / "b.png").read_bytes())}], "num_captions": 2}
    [expected] = client.post("/v1/captions", json=request).json()["results"]
    [row] = rows(caption(folder / "b.png", "--json", "--num-captions", "2", "--score", "--scorer", scorer).stdout)
    assert (row.pop("file_name"), row.pop("model")) == (str(folder / "b.png"), "fake")
    del expected["index"]
    for found, wanted in zip(row["captions"], expected["captions"], strict=True):
        assert found.pop("clip_score") == pytest.approx(wanted.pop("clip_score"), abs=1e-5)
    assert row == expected


def test_a_file_of_other_things_is_not_touched(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "captions.jsonl"
    out.write_text("from an earlier run")
    with pytest.raises(RequestError, match="holds something other than rows of captions"):
        caption(folder, "--out", out)
    assert out.read_text() == "from an earlier run"
    assert caption(folder, "--out", out, "--existing", "overwrite").exit_code == 0
    assert [row["file_name"] for row in rows(out.read_text())] == ["a", "b.png"]
    with pytest.raises(UnknownNameError):
        caption(folder, "--out", out, "--model", "nope")
    assert len(rows(out.read_text())) == 2


@pytest.mark.parametrize(
    "name",
    [b"two\nlines\t.png", "emoji \U0001f431.png".encode(), b"not utf-8 \xff\xfe.png", b"-v.png", b"back\\slash.png"],
)
def test_names_survive(tmp_path: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
        file.write(png())
    [line] = caption(tmp_path).stdout_bytes.splitlines()
    shown = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    assert line.split(b"\t")[0] == shown
    [row] = rows(caption(tmp_path, "--json").stdout)
    assert os.fsencode(row["file_name"]) == name


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--decode", "best"], "greedy, sample"),
        (["--option", "beams"], "not key=value"),
        (["--option", "beams=0"], "'beams'"),
        (["--num-captions", "4"], "num_captions 4"),
        (["--compare", "fake,fake", "--json", "--target-words", "9"], "compare: each arm says where it is"),
        (["--guidance", "11"], "decode.guidance is 11.0"),
        (["--guidance", "nan"], "decode.guidance is nan"),
        (["--guidance", "2"], "unsupported_option: decode.guidance 2: models of the family 'fake'"),
        (["--out", "/nowhere/at/all.jsonl"], "cannot be written"),
    ],
)
def test_arguments_that_cannot_be_used(folder: Path, arguments: list[str], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        caption(folder, *arguments)


def test_a_folder_is_no_file_to_write(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is a folder: name a file in it"):
        caption(folder, "--out", str(tmp_path))


def test_a_link_in_a_loop_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "loop.png").symlink_to("loop.png")
    found = caption(tmp_path)
    assert found.stdout.count("\n") == 1 and found.stdout.startswith("a.png\t")
    assert "loop.png" in found.stderr and "1 of 2 pictures failed" in found.stderr


def test_nothing_to_caption(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no pictures in"):
        caption(tmp_path)
    with pytest.raises(RequestError, match=r"'.*missing.png' does not exist"):
        caption(tmp_path / "missing.png")
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(RequestError, match="no pictures in"):
        caption(tmp_path)


def test_every_given_image_is_captioned_or_refused_and_none_harms_another() -> None:
    cases = json.loads((CASES / "images.json").read_text(encoding="utf-8"))["cases"]
    files = [CASES / case["file"] for case in cases]
    found = {row["file_name"]: row for row in rows(caption(*filter(Path.is_file, files), "--json").stdout)}
    assert len(found) > 50
    wrong = {}
    for case, file in zip(cases, files, strict=True):
        if (row := found.get(str(file))) is None:
            continue
        outcome = "caption" if row["error"] is None else f"error: {row['error']['code']}"
        wanted = [case["expect"], *case.get("also_ok", [])]
        if outcome not in wanted and "error" not in wanted:
            wrong[case["file"]] = (outcome, wanted)
    assert wrong == {}


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dial(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    ("words", "place", "expected_words", "same_as"),
    [
        ([], 0.25, 11.0, None),
        (["--descriptiveness", "0"], 0.0, 10.0, "base"),
        (["--descriptiveness", "0.52"], 0.5, 12.0, "smile"),
        (["--target-words", "12"], 0.5, 12.0, "smile"),
        (["--mix", "contrastive=1", "--mix", "smile=0"], None, None, "contrastive"),
    ],
)
def test_a_point_of_a_spectrum(
    folder: Path, models_dir: Path, words: list[str], place: float | None, expected_words: float | None, same_as: str
) -> None:
    arguments = [folder, "--json", "--models-dir", models_dir, "--option", "beams=2"]
    found = rows(caption(*arguments, "--model", "dial", *words).stdout)
    assert {row["descriptiveness"] for row in found} == {place}
    assert {row["expected_words"] for row in found} == {expected_words}
    if same_as is not None:
        own = rows(caption(*arguments, "--model", same_as).stdout)
        assert [row["captions"] for row in found] == [row["captions"] for row in own]


@pytest.mark.parametrize(
    ("words", "error", "why"),
    [
        (["--descriptiveness", "1.5"], RequestError, "is not from 0 to 1"),
        (
            ["--descriptiveness", "0.5", "--target-words", "9"],
            RequestError,
            "descriptiveness and target_words: at most",
        ),
        (["--mix", "up=1"], UnknownNameError, "no direction 'up'; there are: contrastive, smile"),
        (["--mix", "smile=5"], RequestError, "coefficient 5 of direction 'smile' is not from -4 to 4"),
        (["--mix", "smile=x"], RequestError, "coefficient smile=x is no number"),
        (["--mix", "smile"], RequestError, "'smile' is not key=value"),
        (["--model", "smile", "--descriptiveness", "0"], RequestError, "model 'smile' has no spectrum"),
        (["--model", "base", "--target-words", "9"], RequestError, "model 'base' has no spectrum"),
        (["--model", "base", "--mix", "smile=1"], RequestError, "mix: model 'base' has no directions"),
    ],
)
def test_points_that_there_are_not(
    folder: Path, models_dir: Path, words: list[str], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        caption(folder, "--models-dir", models_dir, "--model", "dial", *words)


def test_a_length_that_cannot_be_had_is_told(folder: Path, models_dir: Path) -> None:
    words = [folder, "--models-dir", models_dir, "--model", "dial", "--option", "beams=2", "--target-words"]
    told = {number: caption(*words, str(number)).stderr for number in (3, 11, 40)}
    assert told[3] == "note: --target-words 3: captions of 'dial' have 10 to 14 words on average; taken: 10\n"
    assert told[11] == "" and told[40].endswith("; taken: 14\n")


def test_captions_that_took_the_place_of_others_are_marked(folder: Path, models_dir: Path, scorer: str) -> None:
    words = [folder / "b.png", "--models-dir", models_dir, "--model", "dial", "--option", "beams=2", "--scorer", scorer]
    for floor, rest in (("2.5", ["fallback"]), ("0", [])):
        [line] = caption(*words, "--min-clip-score", floor).stdout.splitlines()
        [_, _, score, *last] = line.split("\t")
        assert 0 <= float(score) <= 2.5 and last == rest


def test_reranked_captions_are_those_with_the_best_scores(folder: Path, scorer: str) -> None:
    words = [folder / "b.png", "--json", "--option", "beams=4", "--scorer", scorer]
    [every] = rows(caption(*words, "--num-captions", "4", "--score").stdout)
    [best] = rows(caption(*words, "--num-captions", "2", "--rerank").stdout)
    scores = sorted((found["clip_score"] for found in every["captions"]), reverse=True)
    assert [found["clip_score"] for found in best["captions"]] == pytest.approx(scores[:2], abs=1e-5)
