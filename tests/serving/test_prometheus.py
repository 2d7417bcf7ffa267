"""A real Prometheus scrapes the running server; promtool checks metrics, rules and dashboard."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.serving.conftest import free_port
from tests.serving.support import await_metric, png
from tests.serving.test_dashboards import dashboard_expressions
from tests.support import needs_prometheus

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = DEPLOY / "rules.yml"


@pytest.fixture(scope="module")
def prometheus(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The HTTP API of a Prometheus that runs with limner's own configuration, only faster."""
    needs_prometheus.check()
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [server.removeprefix("http://")]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    port = free_port()
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30, trust_env=False) as api:
            yield api
    finally:
        process.terminate()
        process.wait(20)
        assert b"error" not in log.read_bytes().lower()


def query(api: httpx.Client, expression: str) -> list[dict[str, Any]]:
    answer = api.get("/query", params={"query": expression})
    if answer.status_code == 503:  # it reads what it stored before
        return []
    assert answer.json()["status"] == "success", answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def await_series(api: httpx.Client, expression: str) -> list[dict[str, Any]]:
    """What the expression gives, once it gives anything."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            if found := query(api, expression):
                return found
        except httpx.TransportError:  # it still starts
            pass
        time.sleep(0.2)
    raise AssertionError(f"{expression} has no series")


def promtool(*arguments: str, given: bytes = b"") -> None:
    done = subprocess.run(["promtool", *arguments], input=given, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@needs_prometheus
def test_it_scrapes_a_running_server(prometheus: httpx.Client, client: httpx.Client) -> None:
    answer = client.post("/v1/captions", content=png(), headers={"content-type": "image/png"}, params={"score": "true"})
    assert answer.status_code == 200
    assert client.post("/v1/captions", json={"images": []}).status_code == 422
    await_metric(client, 'limner_clip_score_count{model="fake"}', lambda count: count > 0)
    for expression in (
        'limner_requests_total{route="/v1/captions", status="200"} > 0',
        'limner_request_duration_seconds_bucket{route="/v1/captions"} > 0',
        'limner_stage_duration_seconds_sum{stage="decode"} > 0',
        'limner_captions_total{model="fake"} > 0',
        'limner_errors_total{code="invalid_request"} > 0',
        'limner_caption_words_sum{model="fake"} > 0',
        'limner_clip_score_count{model="fake"} > 0',
        'limner_clip_score_drift_alarm{model="fake"} == 0',
        'limner_caption_repetition_ratio{model="fake"} >= 0',
        "limner_batch_images_count > 0",
        "limner_queue_images >= 0",
        "limner_queue_limit_images > 0",
        "limner_scorer_up == 1",
        'up{job="limner"} == 1',
    ):
        await_series(prometheus, expression)


@needs_prometheus
def test_its_rules_are_evaluated_without_error(prometheus: httpx.Client) -> None:
    await_series(prometheus, 'up{job="limner"} == 1')
    give_up = time.monotonic() + 30
    while True:
        groups = prometheus.get("/rules").json()["data"]["groups"]
        health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        if health and set(health.values()) == {"ok"}:
            break
        assert time.monotonic() < give_up, health
        time.sleep(0.2)
    assert {
        rule["alert"] for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]
    } == {*health}


@needs_prometheus
@pytest.mark.parametrize("expression", dashboard_expressions())
def test_it_understands_the_dashboard(prometheus: httpx.Client, expression: str) -> None:
    await_series(prometheus, 'up{job="limner"}')
    filled = expression.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$model", ".*")
    assert "$" not in filled
    query(prometheus, filled)


@needs_prometheus
def test_promtool_finds_nothing_wrong(client: httpx.Client) -> None:
    promtool("check", "metrics", given=client.get("/metrics").content)
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(DEPLOY / "prometheus.yml"))


@needs_prometheus
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", str(Path(__file__).with_name("rules_test.yml")))
