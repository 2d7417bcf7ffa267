"""``limner serve`` as people type it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from models.cli import run as limner
from models.cpus import usable_cores
from models.errors import RequestError
from serving import cli
from serving.args import KeyArgs, Limits
from tests.serving.conftest import free_port
from tests.serving.support import b64, pictures, png

ROOT = Path(__file__).parents[2]
MAIN = [sys.executable, "-m", "models.cli"]


def run(words: Sequence[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*MAIN, *words], cwd=cwd, env=environment, text=True, capture_output=True)


def test_serve_refuses_what_it_can_see_at_once(tmp_path: Path) -> None:
    refused = run(["serve", "--model", "nope"], tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: unknown_model: no model 'nope'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = run(["serve", "--model", "fake", "--no-scorer", "--port", port], tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: invalid_request: port {port} of 127.0.0.1 is in use")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["max_image=4"], "no limit 'max_image'. The limits: max_body_bytes \\(33554432\\), "),
        (["max_images"], "'max_images' is not key=value"),
        (["max_images=0"], "--limit max_images: Input should be greater than 0"),
        (["max_images=true"], "--limit max_images: Input should be a valid integer"),
        (["deadline_s=Infinity"], "--limit deadline_s: Input should be a finite number"),
        (["urls=yes"], "--limit urls: Input should be a valid boolean"),
        (["url_hosts=example.org"], "--limit hosts to fetch from are given, but urls is false"),
        (["max_images=300"], r"--limit max_queue_images \(256\) is below max_images \(300\)"),
    ],
)
def test_limits_that_cannot_be(words: list[str], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        cli._limits(words)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--api-keys", "missing"], "API keys: .*missing cannot be read"),
        (["--api-keys", "short"], "API keys: .*short, line 1 is not"),
        (["--api-keys", "short", "--images-per-minute", "0"], "images_per_minute: Input should be greater than 0"),
        (["--images-per-minute", "5"], "--images-per-minute is a rate of keys"),
        (["--cors-origin", "example.org"], "cors_origins: 'example.org' is no origin"),
        (["--host", "host.invalid"], "--host host.invalid --port 8000: "),
        (["--host", "192.0.2.1"], "--host 192.0.2.1 --port 8000: Cannot assign requested address"),
        (["--log-dir", "short"], "--log-dir short: no folder to write to: File exists"),
        (["--model", "fake"], "models: 'fake' and 'fake' are both called 'fake'"),
        (["--scorer", "dial"], "--scorer dial: this is a captioner; a scorer is needed"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("me: secret")
    app = typer.Typer()
    app.command()(cli.serve)
    scorer = () if "--scorer" in words else ("--no-scorer",)
    refused = CliRunner().invoke(app, ["--model", "fake", *scorer, *words]).exception
    assert isinstance(refused, RequestError) and re.search(why, str(refused)), refused
    assert "secret" not in str(refused)


def test_keys_come_from_the_environment_where_no_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIMNER_API_KEYS", raising=False)
    assert cli._keys(None, None) is None
    monkeypatch.setenv("LIMNER_API_KEYS", "me: 0123456789abcdef")
    assert cli._keys(None, 5.0) == KeyArgs(env="LIMNER_API_KEYS", images_per_minute=5.0)


def test_limits_take_the_place_of_the_defaults() -> None:
    assert cli._limits(["max_images=8", "deadline_s=2.5"]) == Limits(max_images=8, deadline_s=2.5)
    assert cli._limits([]) == Limits()
    hosts = ("example.org", ".pictures.test")
    assert cli._limits(["urls=true", "url_hosts=example.org,.pictures.test"]) == Limits(urls=True, url_hosts=hosts)


def stop_under_load(client: httpx.Client, process: "subprocess.Popen[str]") -> None:
    """SIGTERM while many images wait: all of them are captioned, and whoever comes later is sent elsewhere."""
    slow = {
        "images": [{"base64": b64(picture)} for picture in pictures(8)],
        "decode": {"name": "beam", "options": {"beams": 64}},
    }
    quick = {"images": [{"base64": b64(png())}]}
    with ThreadPoolExecutor(100) as clients:
        accepted = [clients.submit(client.post, "/v1/captions", json=slow) for _ in range(24)]
        while "limner_queue_images 0.0" in client.get("/metrics").text:
            assert not all(future.done() for future in accepted), "they never waited"
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        refused = None
        while refused is None:
            late = clients.submit(client.post, "/v1/captions", json=quick)
            done, _ = wait([late], timeout=0.1)
            if done and late.result().status_code != 200:
                refused = late.result()
            else:  # it came before the signal did
                accepted.append(late)
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
            503,
            "shutting_down",
            "5",
        )
        answers = [future.result() for future in accepted]
    assert [answer.status_code for answer in answers] == [200] * len(accepted)
    assert all(result["captions"] for answer in answers for result in answer.json()["results"])


def test_serve_refuses_at_once_what_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tone.yaml").write_text("experiments: [{name: tone, arms: [{label: a}, {label: b, model: nope}]}]")
    (tmp_path / "good.yaml").write_text("experiments: [{name: tone, arms: [{label: a}, {label: b}]}]")
    (tmp_path / "notes.db").write_text("no database")
    for words, told in (
        (["--experiments", "absent.yaml"], "bad_experiments: absent.yaml: cannot be read"),
        (["--experiments", "tone.yaml"], "bad_experiments: experiment 'tone', arm 'b': no model 'nope' is served"),
        (["--experiments", "good.yaml", "--ledger", "notes.db"], "invalid_request: ledger: is no address of a ledger"),
        (["--models-dir", "nowhere"], "invalid_request: --models-dir nowhere is no folder"),
        (["--device", "cdua"], "invalid_request: device: "),
        (["--captioners", "1000"], "invalid_request: --captioners 1000: each needs a core"),
        (["--limit", "max_queue_images=1000000000000"], "invalid_request: --limit max_queue_images: "),
        (["--experiments", "good.yaml", "--ledger", "sqlite:///notes.db"], "bad_ledger: the ledger sqlite:///notes.db"),
    ):
        assert limner(["serve", "--model", "fake", "--no-scorer", *words]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {told}")


def test_told_to_stop_while_it_starts_it_does(tmp_path: Path) -> None:
    """Ray's own handler of the signal is in force then; a supervisor would take another status for a failure."""
    process = subprocess.Popen(
        [*MAIN, "serve", "--model", "fake", "--no-scorer", "--device", "cpu", "--port", str(free_port())],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None and process.stderr.readline().startswith("starting with fake")
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_serve_until_told_to_stop(tmp_path: Path) -> None:
    port = str(free_port())
    key = "a-key-of-this-test-1"
    (tmp_path / "keys").write_text(f"tester: {key}\n")
    words = ["serve", "--model", "fake", "--no-scorer", "--device", "cpu", "--port", port]
    words += ["--api-keys", "keys", "--log-dir", "logs", "--captioners", str(captioners := min(2, usable_cores()))]
    process = subprocess.Popen(
        [*MAIN, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"limner is ready on http://127.0.0.1:{port} ")
        assert process.stdout.readline().startswith("try: curl ")
        headers = {"content-type": "image/png"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            refused = client.post("/v1/captions", content=png(), headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
            client.headers["x-api-key"] = key
            answer = client.post("/v1/captions", content=png(), headers=headers)
            assert answer.json()["results"][0]["captions"][0]["clip_score"] is None
            stop_under_load(client, process)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "starting with fake; this takes some seconds\n")
        stopped = [path.read_text() for path in (tmp_path / "logs").glob("limner_captioner_*.jsonl")]
        assert ["told to stop" in text for text in stopped] == [True] * captioners
        [log] = (tmp_path / "logs").glob("limner_ingress_*.jsonl")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line.get("client") for line in lines[:2]] == [None, "tester"]
        assert {line["request_id"] for line in lines[:2]} == {refused.json()["request_id"], answer.json()["id"]}
        assert key not in log.read_text()
    finally:
        process.kill()
        process.wait()
