"""Images by URL on every route, over a real engine and from a real server; nothing leaves this machine."""

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import openai
import pytest

from serving.args import AppArgs, Limits
from serving.engine import Engine
from serving.fetching.fetcher import UrlFetcher
from serving.fetching.url_images import UrlImages
from serving.messages import ScoredImage, ScoreJob, ScoreReply
from tests.serving.fetching.support import (
    LOOPBACK,
    PICTURE,
    Answer,
    Connection,
    Names,
    NoDial,
    Web,
    redirect,
    response,
    silent,
    web,
)
from tests.serving.support import GatedPipeline, b64, local_app, png
from tests.serving.test_api import begin, check_problem
from tests.support import CASES

RECIPES: dict[str, dict[str, Any]] = {
    recipe["name"]: recipe
    for recipe in json.loads((CASES / "http.json").read_text(encoding="utf-8"))["cases"]
    if recipe["name"].startswith(("url_", "fetch_"))
}
BLUE = response(png("blue"), content_type="image/png")


class Here:
    """The application with URLs allowed, and the only server it can fetch from."""

    def __init__(self, client: httpx.AsyncClient, engine: Engine, server: Web, images: UrlImages) -> None:
        self.client = client
        self.engine = engine
        self.server = server
        self.images = images

    async def ask(self, *images: str | bytes, **fields: Any) -> httpx.Response:
        listed = [
            {"url": self.server.url(image)} if isinstance(image, str) else {"base64": b64(image)} for image in images
        ]
        return await self.client.post("/v1/captions", json={"images": listed, **fields})


Scenario = Callable[[Here], Awaitable[None]]


def run(scenario: Scenario, pages: Mapping[str, Answer], **given: Any) -> None:
    async def whole() -> None:
        limits = Limits(urls=True, **given)
        names = Names(pictures_test="127.0.0.1", inside_test="10.0.0.1")
        images = UrlImages(limits, UrlFetcher(limits, resolve=names, also_allowed=LOOPBACK).fetch)
        args = AppArgs(models=("fake",), limits=limits)
        async with web(pages) as server, local_app(GatedPipeline(), args, images) as (client, engine):
            await scenario(Here(client, engine, server, images))

    asyncio.run(whole())


def texts(answer: httpx.Response) -> list[list[str]]:
    return [[caption["text"] for caption in result["captions"]] for result in answer.json()["results"]]


def test_a_picture_by_url_is_captioned_as_if_it_had_been_sent() -> None:
    async def scenario(here: Here) -> None:
        by_url = await here.ask("/red.png", png("blue"), "/blue.png", "/red.png")
        assert by_url.status_code == 200, by_url.text
        assert texts(by_url) == texts(await here.ask(png("red"), png("blue"), png("blue"), png("red")))
        assert sorted(here.server.paths) == ["/blue.png", "/red.png"]  # each once

    run(scenario, {"/red.png": PICTURE, "/blue.png": BLUE})


def test_a_bad_url_among_good_images_fails_alone() -> None:
    async def scenario(here: Here) -> None:
        answer = await here.ask("/missing.png", png(), "/inside", "/text", "/red.png")
        assert answer.status_code == 200
        errors = [result["error"] for result in answer.json()["results"]]
        assert [error and error["code"] for error in errors] == [
            "url_failed",
            None,
            "url_refused",
            "not_an_image",
            None,
        ]
        assert errors[0]["detail"] == "'pictures.test' answered 404 instead of a picture"
        assert "10.0" not in answer.text
        metrics = (await here.client.get("/metrics")).text
        assert 'limner_errors_total{code="url_failed"} 1.0' in metrics
        assert 'limner_errors_total{code="url_refused"} 1.0' in metrics

    run(scenario, {"/red.png": PICTURE, "/inside": redirect("http://inside.test/"), "/text": response(b"words")})


def test_when_every_image_is_bad_the_first_decides() -> None:
    async def scenario(here: Here) -> None:
        check_problem(await here.ask("/missing.png", "/inside"), 400, "url_failed")
        check_problem(await here.ask("/inside", "/missing.png"), 403, "url_refused")
        check_problem(await here.ask("/large"), 413, "too_large")
        check_problem(await here.ask("/empty"), 400, "empty")

    pages = {"/inside": redirect("http://inside.test/"), "/large": response(bytes(5000)), "/empty": response()}
    run(scenario, pages, max_image_bytes=4000)


def test_the_other_routes() -> None:
    async def scenario(here: Here) -> None:
        images = [{"url": here.server.url("/red.png")}, {"url": here.server.url("/missing.png")}]
        arms = [{"decode": {"name": "greedy"}}, {"decode": {"name": "beam"}}]
        compared = await here.client.post("/v1/compare", json={"images": images, "arms": arms})
        for arm in compared.json()["arms"]:
            assert [bool(result["captions"]) for result in arm["results"]] == [True, False]
            assert arm["results"][1]["error"]["code"] == "url_failed"
        assert sorted(here.server.paths) == ["/missing.png", "/red.png"]  # once for all arms
        jobs: list[ScoreJob] = []

        async def score(job: ScoreJob) -> ScoreReply:  # there is no scorer here
            jobs.append(job)
            return ScoreReply(
                tuple(
                    ScoredImage((0.5,), "s") if isinstance(one, bytes) else ScoredImage(error=one) for one in job.images
                )
            )

        here.engine.score = score  # type: ignore[method-assign]
        scored = await here.client.post("/v1/score", json={"images": images, "captions": [["a"], ["a"]]})
        assert [result["clip_scores"] for result in scored.json()["results"]] == [[0.5], []]
        assert scored.json()["results"][1]["error"]["code"] == "url_failed"
        assert jobs[0].images[0] == png("red")

    run(scenario, {"/red.png": PICTURE})


def test_openais_own_client() -> None:
    async def scenario(here: Here) -> None:
        theirs = openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", max_retries=0, http_client=here.client)

        async def create(*paths: str, **fields: Any) -> Any:
            parts: Any = [{"type": "image_url", "image_url": {"url": here.server.url(path)}} for path in paths]
            return await theirs.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": parts}], **fields
            )

        answer = await create("/red.png", "/blue.png")
        lines = answer.choices[0].message.content.splitlines()
        assert [[line] for line in lines] == texts(await here.ask(png("red"), png("blue")))
        streamed = [chunk.choices[0].delta.content or "" async for chunk in await create("/red.png", stream=True)]
        assert "".join(streamed) == lines[0]
        with pytest.raises(openai.BadRequestError, match="image 2 of 2: 'pictures.test' answered 404") as failed:
            await create("/red.png", "/missing.png")
        assert (failed.value.code, failed.value.param) == ("url_failed", "messages")
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await create("/inside")
        assert refused.value.code == "url_refused"

    run(scenario, {"/red.png": PICTURE, "/blue.png": BLUE, "/inside": redirect("http://inside.test/")})


def test_what_is_refused_anyway_fetches_nothing() -> None:
    async def scenario(here: Here) -> None:
        check_problem(await here.ask("/red.png", model="nope"), 404, "unknown_model")
        check_problem(await here.ask("/red.png", mix={"smile": 1}), 422, "unsupported_option")
        check_problem(await here.ask("/red.png", "/red.png", "/red.png"), 422, "invalid_request")
        assert here.server.asked == []

    run(scenario, {"/red.png": PICTURE}, max_images=2)


@pytest.mark.parametrize("route", ["captions", "compare", "score", "chat/completions"])
def test_a_client_that_leaves_ends_its_fetches(route: str) -> None:
    async def scenario(here: Here) -> None:
        url = here.server.url("/silent")
        part = {"type": "image_url", "image_url": {"url": url}}
        fields: dict[str, dict[str, Any]] = {
            "captions": {"images": [{"url": url}]},
            "compare": {"images": [{"url": url}], "arms": [{}, {"decode": {"name": "greedy"}}]},
            "score": {"images": [{"url": url}], "captions": [["a"]]},
            "chat/completions": {"model": "fake", "messages": [{"role": "user", "content": [part]}]},
        }
        leave, ended = await begin(here.client, f"/v1/{route}", json.dumps(fields[route]).encode())
        await here.server.until(lambda web: len(web.asked) == 1)
        assert here.images.under_way == 1
        leave()
        assert await ended == []
        await here.server.until(lambda web: web.open == 0)
        assert here.images.under_way == 0
        assert (
            f'limner_requests_total{{route="/v1/{route}",status="499"}} 1.0' in (await here.client.get("/metrics")).text
        )

    run(scenario, {"/silent": silent})


def test_a_fetch_takes_no_place_of_the_captioner() -> None:
    async def scenario(here: Here) -> None:
        waiting = asyncio.create_task(here.ask("/silent", png()))
        await here.server.until(lambda web: len(web.asked) == 1)
        assert here.engine._scheduler.queued_images == 0
        assert (await here.ask(png(), png())).status_code == 200
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(scenario, {"/silent": silent}, max_images=2, max_queue_images=2)


def test_the_deadline_of_a_request_counts_from_its_arrival() -> None:
    async def scenario(here: Here) -> None:
        detail = check_problem(await here.ask("/silent", png()), 504, "deadline_exceeded")["detail"]
        assert detail == "not answered within 0.3 s, fetching its images by url included"

    run(scenario, {"/silent": silent}, deadline_s=0.3)


def test_a_fetch_that_takes_too_long_fails_alone() -> None:
    async def scenario(here: Here) -> None:
        [slow, good] = (await here.ask("/silent", png())).json()["results"]
        assert slow["error"] == {
            "code": "url_failed",
            "detail": "'pictures.test' did not send the picture within 0.2 s",
        }
        assert good["captions"]

    run(scenario, {"/silent": silent}, url_timeout_s=0.2)


def test_more_urls_than_may_wait_are_429() -> None:
    async def scenario(here: Here) -> None:
        waiting = asyncio.create_task(here.ask("/silent?1", "/silent?2"))
        await here.server.until(lambda web: len(web.asked) == 2)
        answer = await here.ask("/red.png")
        check_problem(answer, 429, "queue_full")
        assert int(answer.headers["retry-after"]) > 0
        assert (await here.ask(png())).status_code == 200
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(scenario, {"/red.png": PICTURE, "/silent?1": silent, "/silent?2": silent}, max_images=2, max_queue_images=2)


def test_the_document_tells_of_it() -> None:
    async def scenario(here: Here) -> None:
        document = (await here.client.get("/openapi.json")).json()
        for route in ("/v1/captions", "/v1/compare", "/v1/score", "/v1/chat/completions"):
            answers = document["paths"][route]["post"]["responses"]
            assert "`url_failed`" in answers["400"]["description"]
            assert "`url_refused`" in answers["403"]["description"]
        schemas = document["components"]["schemas"]
        assert "fetched where the server allows it" in schemas["ImageInput"]["properties"]["url"]["description"]
        assert "fetched where the server allows it" in schemas["ImageUrl"]["properties"]["url"]["description"]

    run(scenario, {})


# The given recipes


async def only_with_a_name(connection: Connection) -> None:
    await connection.send(
        PICTURE if connection.headers["user-agent"].startswith("limner/") else response(status="403 No")
    )


BOMB = gzip.compress(bytes(10_000_000))
FETCHES: dict[str, tuple[Answer, set[int], str]] = {
    "fetch_redirect_loop": (redirect("/"), {400}, "redirects"),
    "fetch_length_lie_small": (response(png(), content_length="40"), {400}, ""),
    "fetch_redirect_private": (redirect("http://inside.test/"), {403}, "not on the public internet"),
    "fetch_wrong_type": (response(png(), content_type="text/plain"), {200}, ""),
    "fetch_length_lie_big": (response(png(), content_length="4000"), {400}, "broke off"),
    "fetch_user_agent": (only_with_a_name, {200}, ""),
    "fetch_html_200": (response(b"<html></html>", content_type="text/html"), {400}, "web page"),
    "fetch_gzip_bomb": (response(BOMB, content_encoding="gzip"), {400}, "compressed"),
}


def test_every_recipe_of_a_fetch_is_here() -> None:
    assert set(FETCHES) == {name for name in RECIPES if name.startswith("fetch_")}


@pytest.mark.parametrize("name", FETCHES)
def test_fetches(name: str) -> None:
    page, statuses, told = FETCHES[name]
    want = {int(found) for found in re.findall(r"\d{3}", RECIPES[name]["want"])}
    assert not want or statuses <= want

    async def scenario(here: Here) -> None:
        answer = await here.ask("/")
        assert answer.status_code in statuses, answer.text
        assert told in answer.text

    run(scenario, {"/": page})


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("url_")])
def test_urls_that_must_not_be_fetched(name: str) -> None:
    """As in ``test_http_cases.py``, but on a server that fetches."""

    async def whole() -> None:
        limits, dial = Limits(urls=True), NoDial()
        images = UrlImages(limits, UrlFetcher(limits, dial=dial).fetch)
        async with local_app(GatedPipeline(), AppArgs(models=("fake",), limits=limits), images) as (client, _):
            url = RECIPES[name]["json"]["url"]
            answer = await client.post("/v1/captions", json={"images": [{"url": url}]})
        check_problem(answer, 403, "url_refused")
        assert dial.dialed == []

    asyncio.run(whole())
