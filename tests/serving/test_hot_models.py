"""Models that come and go under load, through the real application."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from models import cli
from models.decoding import parse_decode
from models.file_hashes import sha256_of
from models.images import load_image
from models.pipeline import load_pipeline
from tests.models.families.compact.tiny import tiny_captioner
from tests.models.mixing.tiny_space import save_tuned
from tests.serving.conftest import ADMIN_KEY
from tests.serving.support import pictures

ROUTE = "/v1/admin/models"
NOWHERE = "http://127.0.0.1:1"
KEY = {"authorization": f"Bearer {ADMIN_KEY}"}
[PICTURE] = pictures(1)


def write_version(served_dir: Path, name: str, seed: int) -> str:
    """A model in the folder, in the place of its last version, in one move; its caption of ``PICTURE``."""
    draft = served_dir / f".{name}-{seed}"
    save_tuned(draft, tiny_captioner(seed), "mle")
    card = draft / "card.json"
    card.write_text(card.read_text("utf-8").replace(draft.name, name), "utf-8")
    pipeline = load_pipeline(str(draft), scorer=None, device="cpu")
    caption = pipeline.caption([load_image(PICTURE).image], parse_decode(None, pipeline.card.decoding)).captions[0][0]
    link = served_dir / f".{name}-link"
    link.symlink_to(draft.name)
    os.replace(link, served_dir / name)
    return caption.text


@pytest.fixture
def hot(client: httpx.Client, served_dir: Path) -> Iterator[str]:
    """An id that is not served before or after the test."""
    yield "hot"
    client.delete(ROUTE, params={"model": "hot"}, headers=KEY)
    (served_dir / "hot").unlink(missing_ok=True)


def put(client: httpx.Client, model: Any, **headers: str) -> httpx.Response:
    return client.post(ROUTE, json={"model": model}, headers=headers or KEY)


def caption(client: httpx.Client, model: str) -> httpx.Response:
    return client.post(
        f"/v1/captions?model={model}&score=false", content=PICTURE, headers={"content-type": "image/png"}
    )


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["results"][0]["captions"][0]["text"]
    return text


def served(client: httpx.Client) -> list[str]:
    return [model["id"] for model in client.get("/v1/models").json()["data"]]


def test_a_new_folder_is_served_replaced_and_removed(client: httpx.Client, served_dir: Path, hot: str) -> None:
    before = served(client)
    assert caption(client, hot).status_code == 404
    first = write_version(served_dir, hot, 1)
    added = put(client, hot)
    assert (added.status_code, added.json()["id"], added.json()["default"]) == (201, hot, False)
    assert served(client) == [*before, hot] and text_of(caption(client, hot)) == first
    second = write_version(served_dir, hot, 2)
    assert second != first and text_of(caption(client, hot)) == first  # files alone change nothing
    assert put(client, hot).status_code == 200
    assert text_of(caption(client, hot)) == second
    assert client.delete(ROUTE, params={"model": hot}, headers=KEY).status_code == 204
    assert served(client) == before
    assert caption(client, hot).json()["code"] == "unknown_model"


def test_no_request_fails_of_a_new_version(client: httpx.Client, server: str, served_dir: Path, hot: str) -> None:
    versions = {write_version(served_dir, hot, 1)}
    put(client, hot)

    async def whole() -> list[tuple[int, str]]:
        answers, running = [], True
        headers = {"content-type": "image/png"}

        async with httpx.AsyncClient(base_url=server, timeout=60, trust_env=False) as http:

            async def ask() -> None:
                while running:
                    answer = await http.post(f"/v1/captions?model={hot}&score=false", content=PICTURE, headers=headers)
                    body = answer.json()
                    answers.append((answer.status_code, body["results"][0]["captions"][0]["text"]))

            clients = [asyncio.create_task(ask()) for _ in range(4)]
            for seed in (2, 3):
                versions.add(write_version(served_dir, hot, seed))
                answer = await http.post(ROUTE, json={"model": hot}, headers=KEY)
                assert answer.status_code == 200, answer.text
            running = False
            await asyncio.gather(*clients)
        return answers

    answers = asyncio.run(whole())
    assert {status for status, _ in answers} == {200}
    assert {text for _, text in answers} <= versions and len({text for _, text in answers}) > 1


def test_what_is_wrong_with_a_folder_is_said_and_nothing_changes(
    client: httpx.Client, served_dir: Path, hot: str, scorer: str
) -> None:
    before = served(client)
    first = write_version(served_dir, hot, 1)
    put(client, hot)
    write_version(served_dir, hot, 2)
    weights = next((served_dir / hot).glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    refused = put(client, hot)
    assert (refused.status_code, refused.json()["code"]) == (422, "hash_mismatch") and weights.name in refused.text
    (served_dir / hot / "card.json").write_text("{}", "utf-8")
    assert put(client, hot).json()["code"] == "bad_card"
    assert text_of(caption(client, hot)) == first and served(client) == [*before, hot]


@pytest.mark.parametrize("model", ["nowhere", "..", "../models", "org/name", "/etc", ".hot-1", "a\0b", "x" * 255])
def test_only_models_of_the_folder_can_be_named(client: httpx.Client, served_dir: Path, model: str) -> None:
    refused = put(client, model)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_model"), refused.text


@pytest.mark.parametrize("body", [{}, {"model": ""}, {"model": 3}, {"model": "hot", "path": "/"}, [], "hot"])
def test_other_bodies_are_refused(client: httpx.Client, body: object) -> None:
    assert client.post(ROUTE, json=body, headers=KEY).json()["code"] == "invalid_request"


def test_without_an_admin_key_nothing_is_done(client: httpx.Client, served_dir: Path, hot: str) -> None:
    write_version(served_dir, hot, 1)
    for headers in ({"x": "y"}, {"authorization": "Bearer " + "w" * 20}, {"x-api-key": "short"}):
        refused = put(client, hot, **headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert client.delete(ROUTE, params={"model": "fake"}, headers=headers).status_code == 401
        nameless = client.delete(ROUTE, headers=headers)
        assert (nameless.status_code, nameless.json()["code"]) == (401, "unauthorized")
    assert hot not in served(client)


def test_a_query_without_the_model_is_refused_as_all_else(client: httpx.Client) -> None:
    refused = client.delete(ROUTE, headers=KEY)
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["detail"] == "model: Field required" and refused.json()["request_id"]


def test_the_model_without_files_is_not_one_of_the_folder(client: httpx.Client, served_dir: Path) -> None:
    write_version(served_dir, "fake", 1)
    refused = put(client, "fake")
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_model")
    (served_dir / "fake").unlink()


def test_one_request_takes_out_one_model(client: httpx.Client) -> None:
    refused = client.delete(f"{ROUTE}?model=fake&model=nowhere", headers=KEY)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request") and "twice" in refused.text


def test_weights_of_which_no_caption_comes_change_nothing(client: httpx.Client, served_dir: Path, hot: str) -> None:
    first = write_version(served_dir, hot, 1)
    put(client, hot)
    write_version(served_dir, hot, 2)
    weights = served_dir / hot / "decoder.safetensors"
    save_file({name: torch.full_like(each, torch.nan) for name, each in load_file(weights).items()}, weights)
    card = served_dir / hot / "card.json"
    written = json.loads(card.read_text("utf-8"))
    written["parts"]["decoder"]["sha256"] = sha256_of(weights)
    card.write_text(json.dumps(written), "utf-8")
    refused = put(client, hot)
    assert (refused.status_code, refused.json()["code"]) == (422, "wrong_keys") and "NaN" in refused.text
    assert text_of(caption(client, hot)) == first


@pytest.mark.parametrize("status", [504, None])
def test_where_it_is_not_known_what_a_server_does_the_version_stays_and_the_way_on_is_told(
    status: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class GivesUp(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if status is not None:
                self.send_error(status)

        def log_message(self, format: str, *args: object) -> None:
            pass

    save_tuned(tmp_path / "mine", tiny_captioner(1), "mle")
    (tmp_path / "models").mkdir()
    monkeypatch.setenv("LIMNER_ADMIN_KEY", ADMIN_KEY)
    with ThreadingHTTPServer(("127.0.0.1", 0), GivesUp) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        where = ["--models-dir", str(tmp_path / "models"), "--server", f"http://127.0.0.1:{proxy.server_port}"]
        assert cli.run(["models", "install", str(tmp_path / "mine"), *where]) == 2
        proxy.shutdown()
    told = capsys.readouterr()
    assert "mine: version 1 is current" in told.out
    assert f"it may serve the version or not: 'limner models rollback mine --to 1 {' '.join(where)}' asks" in told.err
    assert (tmp_path / "models" / "mine").resolve().name == "0001"


def test_what_is_needed_cannot_go(client: httpx.Client) -> None:
    default = client.delete(ROUTE, params={"model": "fake"}, headers=KEY)
    assert (default.status_code, default.json()["code"]) == (422, "invalid_request")
    unknown = client.delete(ROUTE, params={"model": "nowhere"}, headers=KEY)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_model")
    assert client.delete(ROUTE, headers=KEY).status_code == 422


def test_the_command_line_installs_and_rolls_back_in_the_running_server(
    client: httpx.Client,
    server: str,
    served_dir: Path,
    hot: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = []
    for seed in (1, 2):
        save_tuned(tmp_path / str(seed), tiny_captioner(seed), "mle")
        words = [str(tmp_path / str(seed)), "--id", hot, "--models-dir", str(served_dir), "--server", server]
        for key in ("", "schlüssel-mit-umlaut", "two\nlines"):  # without a key that can be sent nothing is installed
            monkeypatch.setenv("LIMNER_ADMIN_KEY", key)
            assert cli.run(["models", "install", *words]) == 2
        monkeypatch.setenv("LIMNER_ADMIN_KEY", ADMIN_KEY)
        for address in ("127.0.0.1:8000", "ftp://127.0.0.1", "http://[::1"):  # nor where nobody can be asked
            assert cli.run(["models", "install", *words[:-1], address]) == 2
        assert cli.run(["models", "install", *words]) == 0
        monkeypatch.delenv("LIMNER_ADMIN_KEY")
        texts.append(text_of(caption(client, hot)))
    assert texts[0] != texts[1]
    where = ["--models-dir", str(served_dir)]
    monkeypatch.setenv("LIMNER_ADMIN_KEY", ADMIN_KEY)
    assert cli.run(["models", "rollback", hot, *where, "--server", server]) == 0
    assert f"{server} serves it" in capsys.readouterr().out
    assert text_of(caption(client, hot)) == texts[0]
    assert cli.run(["models", "versions", hot, *where]) == 0
    assert [line[0] for line in capsys.readouterr().out.splitlines()] == ["*", " "]
    monkeypatch.setenv("LIMNER_ADMIN_KEY", "w" * 20)
    store = sorted((served_dir / ".versions" / hot).iterdir())
    for words in (["rollback", hot, "--to", "2"], ["install", str(tmp_path / "2"), "--id", hot]):
        for address, why in ((server, "(401): this is no admin key of this server"), (NOWHERE, "does not answer")):
            assert cli.run(["models", *words, *where, "--server", address]) == 2  # and nothing has changed
            told = capsys.readouterr()
            assert why in told.err and "; nothing was changed" in told.err and not told.out
            assert (served_dir / hot).resolve() == store[0] and sorted(store[0].parent.iterdir()) == store
    monkeypatch.setenv("LIMNER_ADMIN_KEY", ADMIN_KEY)
    assert cli.run(["models", "rollback", hot, "--to", "2", *where, "--server", server]) == 0  # the same, with a key
    assert text_of(caption(client, hot)) == texts[1]
