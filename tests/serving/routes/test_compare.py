"""``POST /v1/compare`` over a real engine in one process: arms, labels, refusals that name the arm, bad images."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jsonschema
import pytest

from serving.api import build_api
from serving.args import AppArgs, Limits
from serving.engine import Engine
from serving.metrics import REPORTS_LOST
from serving.model_pool import LoadedModel, load_models
from serving.reports import Reporter
from serving.served_models import ServedModels
from serving.services import Services
from tests.models.mixing.tiny_dial import write_dial
from tests.serving.support import GatedPipeline, LocalBackend, b64, client_of, local_app, pictures, png
from tests.tiny_scorer import write_tiny_scorer

Scenario = Callable[[httpx.AsyncClient], Awaitable[None]]
GREEDY = {"name": "greedy"}
TWO = [{"label": "beam"}, {"label": "greedy", "decode": GREEDY}]


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> AppArgs:
    root = write_dial(tmp_path_factory.mktemp("models"))
    scorer = write_tiny_scorer(tmp_path_factory.mktemp("scorer") / "tiny")
    return AppArgs(models=("fake", "dial", "smile"), models_dir=root, scorer=f"local-dir:{scorer}", device="cpu")


@pytest.fixture(scope="module")
def models(args: AppArgs) -> dict[str, LoadedModel]:
    return load_models(args)


@asynccontextmanager
async def application(models: dict[str, LoadedModel], args: AppArgs) -> AsyncIterator[httpx.AsyncClient]:
    reporter = Reporter("test", REPORTS_LOST)
    engine = Engine(models, args, reporter)
    services = Services(args, ServedModels.from_args(args), LocalBackend(engine, reporter), reporter)
    try:
        async with client_of(build_api(services)) as client:
            yield client
    finally:
        engine.close()


@pytest.fixture
def run(models: dict[str, LoadedModel], args: AppArgs) -> Callable[[Scenario], None]:
    async def whole(scenario: Scenario) -> None:
        async with application(models, args) as client:
            await scenario(client)

    return lambda scenario: asyncio.run(whole(scenario))


def body(*images: bytes | str, arms: Any = TWO, **fields: Any) -> dict[str, Any]:
    listed = [{"base64": b64(image) if isinstance(image, bytes) else image} for image in images]
    return {"images": listed, "arms": arms, **fields}


def check_problem(response: httpx.Response, status: int, code: str) -> str:
    found = response.json()
    assert (response.status_code, found["code"]) == (status, code), response.text
    return str(found["detail"])


def test_each_arm_answers_as_a_request_of_its_own(run: Callable[[Scenario], None]) -> None:
    arms: list[dict[str, Any]] = [
        {"label": "concise", "model": "dial", "descriptiveness": 0.0},
        {"label": "far", "model": "dial", "descriptiveness": 1.0, "decode": GREEDY},
        {"label": "mixed", "model": "dial", "mix": {"smile": 2.0}},
        {"label": "long", "model": "dial", "target_words": 13},
        {"label": "other", "model": "smile"},
        {"label": "plain"},
    ]

    async def scenario(client: httpx.AsyncClient) -> None:
        images = pictures(3)
        response = await client.post("/v1/compare", json=body(*images, arms=arms, num_captions=1))
        assert response.status_code == 200, response.text
        answer = response.json()
        assert list(answer) == ["id", "arms", "timing_ms"]
        assert answer["id"] == response.headers["x-request-id"]
        assert list(answer["timing_ms"]) == ["queue", "encode", "decode", "score", "total"]
        assert [arm["label"] for arm in answer["arms"]] == [arm["label"] for arm in arms]
        for arm, found in zip(arms, answer["arms"], strict=True):
            assert list(found) == ["label", "model", "results"]
            asked = {name: value for name, value in arm.items() if name != "label"}
            single = (await client.post("/v1/captions", json={"images": body(*images)["images"], **asked})).json()
            assert found["model"] == single["model"]
            for mine, its in zip(found["results"], single["results"], strict=True):
                for caption, other in zip(mine["captions"], its["captions"], strict=True):
                    assert caption.pop("clip_score") == pytest.approx(other.pop("clip_score"), abs=1e-4)
                    assert caption.pop("logprob") == pytest.approx(other.pop("logprob"), abs=1e-4)
                assert mine == its
        first = [arm["results"][0] for arm in answer["arms"]]
        assert [result["descriptiveness"] for result in first] == [0.0, 1.0, None, 0.75, None, None]
        assert [result["expected_words"] for result in first] == [10.0, 14.0, None, 13.0, None, None]
        assert len({result["captions"][0]["text"] for result in first}) >= 3

    run(scenario)


def test_arms_without_a_label_are_called_by_what_they_are(run: Callable[[Scenario], None]) -> None:
    arms = [
        {"model": "dial", "descriptiveness": 0.25},
        {"model": "dial", "descriptiveness": 0.25, "decode": {"name": "beam", "options": {"beams": 2}}},
        {"model": "dial", "mix": {"smile": 0.5, "contrastive": -1}},
        {"label": "fake (2)"},
        {},
        {"model": "fake"},
    ]

    async def scenario(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/compare", json=body(png(), arms=arms))).json()
        assert [arm["label"] for arm in answer["arms"]] == [
            *("dial@0.25", "dial@0.25 beam beams=2", "dial + 0.5 smile - 1 contrastive", "fake (2)", "fake", "fake (3)")
        ]
        assert [arm["model"] for arm in answer["arms"]] == ["dial", "dial", "dial", "fake", "fake", "fake"]

    run(scenario)


def test_a_form_asks_the_same(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        options = {"arms": TWO, "score": False}
        files = [("images", (f"{number}.png", image, "image/png")) for number, image in enumerate(pictures(2))]
        form = [*files, ("request", (None, json.dumps(options), "application/json"))]
        as_form = await client.post("/v1/compare", files=form)
        as_json = await client.post("/v1/compare", json=body(*pictures(2), score=False))
        assert as_form.json()["arms"] == as_json.json()["arms"]
        assert as_form.json()["arms"][0]["results"][1]["captions"][0]["clip_score"] is None
        without = await client.post("/v1/compare", files=files)
        assert "arms: Field required" in check_problem(without, 422, "invalid_request")
        raw = await client.post("/v1/compare", content=png(), headers={"content-type": "image/png"})
        check_problem(raw, 415, "unsupported_media_type")

    run(scenario)


@pytest.mark.parametrize(
    ("arms", "status", "code", "names"),
    [
        ([{}, {"label": "b", "model": "nope"}], 404, "unknown_model", "arm 'b': no model 'nope' is served here"),
        ([{}, {"model": "nope"}], 404, "unknown_model", "arm 'nope': "),
        ([{}, {"label": "b", "descriptiveness": 0.5}], 422, "unsupported_option", "arm 'b': descriptiveness: model"),
        (
            [{"label": "a", "model": "dial", "descriptiveness": 0.5, "mix": {"smile": 1}}, {}],
            *(422, "invalid_request", "arm 'a': descriptiveness and mix: at most one"),
        ),
        ([{"label": "a", "model": "dial", "mix": {"up": 1}}, {}], 422, "unknown_name", "arm 'a': no direction 'up'"),
        ([{"label": "a", "model": "dial", "mix": {"smile": 5}}, {}], 422, "invalid_request", "arm 'a': coefficient 5"),
        ([{}, {"label": "b", "decode": {"name": "best"}}], 422, "invalid_request", "arm 'b': no decoding strategy"),
        ([{}, {"label": "b", "decode": {"guidance": 2}}], 422, "unsupported_option", "arm 'b': decode.guidance 2"),
        ([{"label": "a"}, {"label": "a"}], 422, "invalid_request", "arms: the label 'a' is given twice"),
        ([{"label": ""}, {}], 422, "invalid_request", "arms.0.label"),
        ([{}], 422, "invalid_request", "arms: List should have at least 2"),
        ([{}] * 7, 422, "invalid_request", "arms: List should have at most 6"),
        ([{}, {"experiment": "x"}], 422, "invalid_request", "arms.1.experiment: there is no such field"),
        ([{}, {"descriptiveness": 1.5}], 422, "invalid_request", "arms.1.descriptiveness: Input should be less"),
    ],
)
def test_an_arm_that_cannot_be_had_refuses_the_whole_and_is_named(
    run: Callable[[Scenario], None], arms: Any, status: int, code: str, names: str
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        response = await client.post("/v1/compare", json=body(png(), arms=arms))
        assert names in check_problem(response, status, code)

    run(scenario)


def test_a_bad_image_fails_alone_in_every_arm_and_counts_once(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/compare", json=body(png(), "%%%", b"no picture"))).json()
        for arm in answer["arms"]:
            errors = [result["error"] and result["error"]["code"] for result in arm["results"]]
            assert errors == [None, "bad_base64", "not_an_image"]
            assert [len(result["captions"]) for result in arm["results"]] == [1, 0, 0]
        assert 'limner_errors_total{code="bad_base64"} 1.0' in (await client.get("/metrics")).text
        check_problem(await client.post("/v1/compare", json=body(b"no picture", "%%%")), 400, "not_an_image")

    run(scenario)


def test_images_times_arms_is_bounded(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/compare", json=body(*pictures(16)))).status_code == 200
        detail = check_problem(await client.post("/v1/compare", json=body(*pictures(17))), 422, "invalid_request")
        assert detail == "images: 17 x 2 arms is 34; at most 32 are allowed in one request"
        check_problem(await client.post("/v1/compare", json=body(*pictures(33))), 422, "invalid_request")

    run(scenario)


def test_arms_that_find_no_room_end_the_others() -> None:
    async def scenario() -> None:
        args = AppArgs(models=("fake",), limits=Limits(max_images=4, max_queue_images=4))
        pipeline = GatedPipeline()
        async with local_app(pipeline, args) as (client, engine):
            pipeline.gate.clear()
            one, two = ({"images": body(*pictures(count))["images"]} for count in (1, 2))
            held = [asyncio.create_task(client.post("/v1/captions", json=one))]
            await asyncio.to_thread(pipeline.arrived.wait, 10)
            held.append(asyncio.create_task(client.post("/v1/captions", json=two)))  # now that it cannot join the pass
            while engine._scheduler.queued_images < 2:
                await asyncio.sleep(0.005)
            detail = check_problem(await client.post("/v1/compare", json=body(*pictures(2))), 429, "queue_full")
            assert "arm" not in detail
            while engine._scheduler.queued_images > 2:  # the arm that had found room gives it back
                await asyncio.sleep(0.005)
            pipeline.gate.set()
            assert [(await task).status_code for task in held] == [200, 200]
            assert (await client.post("/v1/compare", json=body(*pictures(2)))).status_code == 200

    asyncio.run(scenario())


def test_over_the_running_server(client: httpx.Client) -> None:
    answer = client.post("/v1/compare", json=body(png(), "%%%", num_captions=1)).json()
    assert [arm["label"] for arm in answer["arms"]] == ["beam", "greedy"]
    for arm in answer["arms"]:
        good, bad = arm["results"]
        assert good["captions"][0]["clip_score"] is not None and bad["error"]["code"] == "bad_base64"
    refused = client.post("/v1/compare", json=body(png(), arms=[{}, {"label": "b", "decode": {"guidance": 2}}]))
    assert "arm 'b': " in check_problem(refused, 422, "unsupported_option")


def test_requests_and_answers_fit_their_schemas(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        document = (await client.get("/openapi.json")).json()
        route = document["paths"]["/v1/compare"]["post"]
        assert set(route["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
        form = route["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["required"] == ["images", "request"]
        for schema in ("CompareRequest", "ArmInput", "ArmOut", "CompareResponse"):
            for field, described in document["components"]["schemas"][schema]["properties"].items():
                assert field == "arms" or "description" in described, f"{schema}.{field}"
        request = body(png())
        answer = (await client.post("/v1/compare", json=request)).json()
        for name, value in (("CompareRequest", request), ("CompareResponse", answer)):
            schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
            jsonschema.validate(value, schema)

    run(scenario)
