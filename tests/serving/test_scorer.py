"""The scorer in the running application: sampled captions are scored beside it, and no label is a client's word."""

import re

import httpx

from serving import metrics
from serving.caption_watch import is_sampled
from tests.serving.conftest import served_models
from tests.serving.support import await_metric, png

SCORED = 'limner_clip_score_count{model="fake"}'
SHARE = 0.1  # the default, which the session's server runs with


def request_ids(*, sampled: bool) -> list[str]:
    found = (f"scorer-test-{number}" for number in range(10_000))
    return [name for name in found if is_sampled(name, 0, SHARE) is sampled]


def caption(client: httpx.Client, request_id: str, **params: str) -> httpx.Response:
    headers = {"content-type": "image/png", "x-request-id": request_id}
    return client.post("/v1/captions", content=png(), headers=headers, params=params)


def test_a_sample_of_what_no_request_scores_is_scored(client: httpx.Client) -> None:
    await_metric(client, metrics.SCORER_UP, lambda value: value == 1)
    before = await_metric(client, SCORED, lambda _: True)
    picked = await_metric(client, metrics.SCORES_SAMPLED, lambda _: True)
    for request_id in (*request_ids(sampled=True)[:3], *request_ids(sampled=False)[:5]):
        answer = caption(client, request_id, score="false")
        assert answer.json()["results"][0]["captions"][0]["clip_score"] is None
    await_metric(client, SCORED, lambda value: value == before + 3)
    await_metric(client, metrics.SCORES_SAMPLED, lambda value: value == picked + 3)
    assert caption(client, request_ids(sampled=True)[3], score="true").status_code == 200
    await_metric(client, SCORED, lambda value: value == before + 4)
    assert await_metric(client, metrics.SCORES_SAMPLED, lambda _: True) == picked + 3  # not scored twice


def test_labels_never_hold_what_a_client_wrote(client: httpx.Client) -> None:
    word = "madeup4711"
    caption(client, word)
    client.get(f"/{word}")
    client.get("/v1/captions", params={word: word})
    client.request(word.upper(), "/v1/captions")
    client.post(f"/v1/captions/{word}", json={})
    body = {"images": [{"base64": "x"}]}
    for fields in ({"model": word}, {"decode": {"name": word}}, {"experiment": word, "unit": word}, {word: word}):
        assert client.post("/v1/captions", json={**body, **fields}).status_code >= 400
    assert client.post("/v1/score", json={**body, "captions": [[word]], "model": word}).status_code >= 400
    await_metric(client, 'limner_errors_total{code="unknown_model"}', lambda value: value > 0)
    text = client.get("/metrics").text
    assert word not in text.lower()
    assert set(re.findall(r'model="([^"]*)"', text)) <= {
        *served_models(),
        "hot",
    }  # served for a while by test_hot_models
