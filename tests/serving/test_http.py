"""The routes of the running server: forms of request, fields of answers, partial failure, refusals, probes."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.support import b64, pictures, png
from tests.support import CASES

PNG = {"content-type": "image/png"}
IMAGE_CASES = json.loads((CASES / "images.json").read_text(encoding="utf-8"))["cases"]
GREEDY = {"name": "greedy", "options": {"max_tokens": 6}}


def ask(client: httpx.Client, *images: bytes | dict[str, str], **fields: Any) -> httpx.Response:
    listed = [{"base64": b64(image)} if isinstance(image, bytes) else image for image in images]
    return client.post("/v1/captions", json={"images": listed, **fields})


def check_problem(response: httpx.Response, status: int, code: str) -> str:
    """The detail."""
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), response.text
    assert body["request_id"] == response.headers["x-request-id"]
    return str(body["detail"])


def test_an_answer_has_the_fields_of_the_interface_and_no_others(client: httpx.Client) -> None:
    body = ask(client, png(), num_captions=2).json()
    assert list(body) == ["id", "model", "results", "timing_ms"]
    assert body["model"] == "fake"
    [result] = body["results"]
    captions = result.pop("captions")
    assert result == {
        "index": 0,
        "descriptiveness": None,
        "expected_words": None,
        "fallback": False,
        "experiment": None,
        "notes": [],
        "error": None,
    }
    assert len(captions) == 2
    for caption in captions:
        assert list(caption) == ["text", "logprob", "tokens", "finish_reason", "clip_score", "scorer"]
        assert caption["text"] and caption["logprob"] < 0 and caption["finish_reason"] == "stop"
        assert caption["tokens"] == len(caption["text"].split()) + 1
        assert 0 <= caption["clip_score"] <= 2.5 and caption["scorer"]
    assert list(body["timing_ms"]) == ["queue", "encode", "decode", "score", "total"]
    assert body["timing_ms"]["total"] >= sum(body["timing_ms"][stage] for stage in ("encode", "decode", "score"))


def test_the_three_forms_give_the_same_captions(client: httpx.Client) -> None:
    options = {"model": "fake", "decode": GREEDY, "num_captions": 1, "score": False}
    as_json = ask(client, png(), **options)
    form = {"images": ("a.png", png(), "image/png"), "request": (None, json.dumps(options), "application/json")}
    as_form = client.post("/v1/captions", files=form)
    query = {**options, "decode": json.dumps(GREEDY), "score": "false"}
    as_raw = client.post("/v1/captions", params=query, content=png(), headers=PNG)
    assert as_json.json()["results"] == as_form.json()["results"] == as_raw.json()["results"]
    assert as_json.json()["results"][0]["captions"][0]["clip_score"] is None


def test_many_images_of_a_form_keep_their_order(client: httpx.Client) -> None:
    images = pictures(5)
    files = [("images", ("same.png", image, "image/png")) for image in images]
    found = client.post("/v1/captions", files=files).json()["results"]
    assert [result["index"] for result in found] == list(range(5))
    for result, other in zip(found, ask(client, *images).json()["results"], strict=True):
        ((mine,), (its,)) = (result["captions"], other["captions"])
        assert mine["text"] == its["text"]
        assert mine["clip_score"] == pytest.approx(its["clip_score"], abs=1e-4)  # batches may form differently


def test_notes_say_what_was_done_to_a_picture(client: httpx.Client, case_images: Path) -> None:
    [result] = ask(client, (case_images / "animated.webp").read_bytes()).json()["results"]
    assert any("frame" in note for note in result["notes"])


def test_a_bad_image_among_good_ones_fails_alone(client: httpx.Client) -> None:
    response = ask(client, png(), {"base64": "%%%"}, {"url": "http://example.com/"}, b"no picture", png("blue"))
    assert response.status_code == 200
    results = response.json()["results"]
    assert [result["error"] and result["error"]["code"] for result in results] == [
        None,
        "bad_base64",
        "url_refused",
        "not_an_image",
        None,
    ]
    assert [len(result["captions"]) for result in results] == [1, 0, 0, 0, 1]
    assert set(results[1]["error"]) == {"code", "detail"}


def test_when_every_image_is_bad_the_first_decides(client: httpx.Client) -> None:
    check_problem(ask(client, {"url": "x"}, b"no picture"), 403, "url_refused")
    check_problem(ask(client, b"no picture", {"url": "x"}), 400, "not_an_image")


@pytest.mark.parametrize(
    "case", json.loads((CASES / "images.json").read_text(encoding="utf-8"))["cases"], ids=lambda c: c["file"]
)
def test_every_given_image_is_captioned_or_refused_but_never_a_server_error(
    client: httpx.Client, case: dict[str, Any]
) -> None:
    path = CASES / case["file"]
    if not path.is_file():
        pytest.skip("described, but not among the given files")
    response = client.post(
        "/v1/captions", content=path.read_bytes(), headers={"content-type": "application/octet-stream"}
    )
    assert response.status_code < 500, response.text
    outcomes = [case["expect"], *case.get("also_ok", [])]
    outcome = "caption" if response.status_code == 200 else f"error: {response.json()['code']}"
    assert outcome in outcomes or any(given == "error" for given in outcomes), (outcome, outcomes)


@pytest.mark.parametrize(
    ("fields", "code", "names"),
    [
        ({"descriptiveness": 0.5}, "unsupported_option", "descriptiveness: model 'fake' has no spectrum"),
        ({"mix": {"smile": 0.5}}, "unsupported_option", "mix: model 'fake' has no directions"),
        ({"target_words": 14}, "unsupported_option", "target_words"),
        ({"min_clip_score": 0.5}, "unsupported_option", "min_clip_score"),
        ({"decode": {"name": "beam", "guidance": 1.5}}, "unsupported_option", "decode.guidance 1.5: models of the"),
        (
            {"decode": {"guidance": 10.5}},
            "invalid_request",
            "decode.guidance: Input should be less than or equal to 10",
        ),
        ({"decode": {"guidance": -1}}, "invalid_request", "decode.guidance: Input should be greater"),
        ({"decode": {"guidance": "2"}}, "invalid_request", "decode.guidance: Input should be a valid number"),
        ({"decode": {"name": "beam", "rerank": "beauty"}}, "invalid_request", "decode.rerank"),
        ({"decode": {"name": "best"}}, "invalid_request", "beam, diverse_beam, greedy, sample"),
        ({"decode": {"name": "greedy", "options": {"beams": 3}}}, "invalid_request", "'beams'"),
        ({"decode": {"name": "beam", "options": {"beams": 65}}}, "invalid_request", "65"),
        (
            {"decode": {"options": {"beams": 10}}, "num_captions": 7},
            "invalid_request",
            "7 x beams 10 is 70; at most 64",
        ),
        ({"decode": GREEDY, "num_captions": 2}, "invalid_request", "num_captions 2"),
        ({"num_captions": 0}, "invalid_request", "num_captions: Input should be greater"),
        ({"num_captions": "2"}, "invalid_request", "num_captions: Input should be a valid integer"),
        ({"score": "yes"}, "invalid_request", "score"),
        ({"extra": 1}, "invalid_request", "extra: there is no such field; there are: model, descriptiveness, "),
        ({"images": []}, "invalid_request", "images"),
        ({"images": [{}]}, "invalid_request", "images.0: give exactly one of base64 and url"),
        ({"images": [{"base64": 5}]}, "invalid_request", "images.0.base64"),
        ({"images": "abc"}, "invalid_request", "images: Input should be a valid list"),
        ({"images": [{"base64": "AA=="}] * 33}, "invalid_request", "images: 33 given, at most 32"),
    ],
)
def test_what_cannot_be_had_is_422_and_named(
    client: httpx.Client, fields: dict[str, Any], code: str, names: str
) -> None:
    response = client.post("/v1/captions", json={"images": [{"base64": b64(png())}], **fields})
    assert names in check_problem(response, 422, code)


def test_unknown_names_are_404(client: httpx.Client) -> None:
    assert "there are: fake" in check_problem(ask(client, png(), model="nope"), 404, "unknown_model")
    assert "'x'" in check_problem(ask(client, png(), experiment="x"), 404, "unknown_experiment")
    check_problem(client.get("/nowhere"), 404, "not_found")
    surrogate = json.dumps({"images": [{"base64": "AA=="}], "model": "\ud800"})
    response = client.post("/v1/captions", content=surrogate, headers={"content-type": "application/json"})
    check_problem(response, 404, "unknown_model")


@pytest.mark.parametrize(
    ("query", "code", "status"),
    [
        ({"num_captions": "two"}, "invalid_request", 422),
        ({"model": "dial", "target_words": "9" * 400}, "invalid_request", 422),
        ({"decode": "{"}, "malformed_json", 400),
        ({"decode": "[]"}, "invalid_request", 422),
        ({"decode": '{"guidance": "2"}'}, "invalid_request", 422),
        ({"nonsense": "1"}, "invalid_request", 422),
        ([("model", "fake"), ("model", "fake")], "invalid_request", 422),
    ],
)
def test_wrong_queries_of_a_raw_body(client: httpx.Client, query: Any, code: str, status: int) -> None:
    check_problem(client.post("/v1/captions", params=query, content=png(), headers=PNG), status, code)


def test_options_in_the_query_of_other_bodies_are_refused(client: httpx.Client) -> None:
    asked = {"images": [{"base64": b64(png())}], "captions": [["a dog"]], "messages": []}
    for path in ("/v1/captions", "/v1/score", "/v1/compare"):
        answer = client.post(path, params={"model": "fake"}, json=asked)
        assert "model: in the query only beside a raw image" in check_problem(answer, 422, "invalid_request")
    answer = client.post("/v1/chat/completions", params={"model": "fake"}, json=asked)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "model"


def test_a_picture_without_its_type_is_told_so_beside_options_too(client: httpx.Client) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}  # what curl --data-binary says
    answer = client.post("/v1/captions", params={"num_captions": 2}, content=png(), headers=kind)
    assert "-H 'content-type: image/jpeg'" in check_problem(answer, 415, "unsupported_media_type")


def test_compressed_bodies_are_415(client: httpx.Client) -> None:
    headers = {**PNG, "content-encoding": "gzip"}
    check_problem(
        client.post("/v1/captions", content=gzip.compress(png()), headers=headers), 415, "unsupported_media_type"
    )


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_other_content_types_are_415(client: httpx.Client, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    check_problem(client.post("/v1/captions", content=png(), headers=headers), 415, "unsupported_media_type")
    check_problem(client.post("/v1/score", content=b"{}", headers=headers), 415, "unsupported_media_type")


def test_methods(client: httpx.Client) -> None:
    for method, path in (("PUT", "/v1/captions"), ("DELETE", "/v1/models"), ("POST", "/metrics"), ("GET", "/v1/score")):
        check_problem(client.request(method, path), 405, "method_not_allowed")


def test_bodies_over_the_limit_are_413_also_without_a_length(client: httpx.Client) -> None:
    def chunks() -> Any:
        for _ in range(34):
            yield bytes(1 << 20)

    check_problem(client.post("/v1/captions", content=chunks(), headers=PNG), 413, "body_too_large")
    check_problem(client.post("/v1/captions", content=bytes(21 << 20), headers=PNG), 413, "too_large")


def test_scores_of_given_captions(client: httpx.Client) -> None:
    images = [{"base64": b64(png("red"))}, {"base64": "%%%"}, {"base64": b64(png("blue"))}]
    request = {"images": images, "captions": [["a dog", "a cat"], ["x"], []]}
    body = client.post("/v1/score", json=request).json()
    assert [len(result["clip_scores"]) for result in body["results"]] == [2, 0, 0]
    assert [result["error"] and result["error"]["code"] for result in body["results"]] == [None, "bad_base64", None]
    [caption] = ask(client, png("red")).json()["results"][0]["captions"]
    again = client.post("/v1/score", json={"images": images[:1], "captions": [[caption["text"]]]}).json()["results"][0]
    assert again["clip_scores"][0] == pytest.approx(caption["clip_score"], abs=1e-5)
    assert again["scorer"] == caption["scorer"]


def test_scores_that_cannot_be_given(client: httpx.Client) -> None:
    images = [{"base64": b64(png())}]
    response = client.post("/v1/score", json={"images": images, "captions": []})
    assert "1 images but 0 lists" in check_problem(response, 422, "invalid_request")
    response = client.post("/v1/score", json={"images": images, "captions": [["a"] * 65]})
    assert "at most 64" in check_problem(response, 422, "invalid_request")
    check_problem(client.post("/v1/score", json={"images": [{"url": "x"}], "captions": [["a"]]}), 403, "url_refused")
    response = client.post("/v1/score", json={"images": images, "captions": [["a"]], "model": "nope"})
    check_problem(response, 404, "unknown_model")


def test_models_in_the_list_shape(client: httpx.Client) -> None:
    body = client.get("/v1/models").json()
    assert body["object"] == "list"
    fake = body["data"][0]
    assert (fake["id"], fake["object"], fake["owned_by"], fake["default"]) == ("fake", "model", "limner", True)
    assert {"created", "objective", "lambda", "spectrum", "measurements", "licence", "data"} <= set(fake)


def test_every_served_model_captions_a_picture(client: httpx.Client) -> None:
    for model in client.get("/v1/models").json()["data"]:
        body = ask(client, png(size=(64, 48)), model=model["id"]).json()
        assert body["model"] == model["id"]
        assert body["results"][0]["captions"][0]["text"]


def test_probes(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    for path in ("/healthz", "/readyz"):
        asked = client.head(path)
        assert (asked.status_code, asked.content) == (200, b"")
    assert "/v1/captions" in client.get("/").text


def metric(client: httpx.Client, sample: str) -> float:
    found = [line for line in client.get("/metrics").text.splitlines() if line.startswith(sample + " ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def test_metrics_count_what_happened(client: httpx.Client) -> None:
    samples = {
        'limner_requests_total{route="/v1/captions",status="200"}': 1,
        'limner_request_duration_seconds_count{route="/v1/captions",status="200"}': 1,
        'limner_errors_total{code="bad_base64"}': 1,
        'limner_captions_total{model="fake",strategy="beam"}': 4,
        'limner_stage_duration_seconds_count{stage="queue"}': 2,
    }
    time.sleep(1)  # reports of earlier tests arrive
    before = {sample: metric(client, sample) for sample in samples}
    assert ask(client, png(), png("blue"), {"base64": "%"}, num_captions=2).status_code == 200
    wanted = {sample: before[sample] + more for sample, more in samples.items()}
    give_up = time.monotonic() + 10
    while (found := {sample: metric(client, sample) for sample in samples}) != wanted and time.monotonic() < give_up:
        time.sleep(0.1)
    assert found == wanted
    assert metric(client, "limner_queue_images") == 0
    assert metric(client, "limner_batch_images_count") > 0
