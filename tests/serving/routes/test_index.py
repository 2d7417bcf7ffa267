"""GET / and GET /page/{name}: who gets what, with which headers."""

import asyncio

import httpx

from serving.api_keys import ApiKeys, read_api_keys
from serving.args import AppArgs, KeyArgs
from serving.page_files import CONTENT_TYPES
from tests.serving.support import GatedPipeline, local_app

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def get(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def scenario() -> httpx.Response:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",))) as (client, _):
            return await client.get(path, headers=headers)

    return asyncio.run(scenario())


def test_browsers_get_the_page_and_others_text() -> None:
    page, text = get("/", BROWSER), get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert "curl" in text.text and "/v1/captions" in text.text
    assert page.headers["vary"] == text.headers["vary"] == "accept"


def test_the_text_says_where_the_key_goes() -> None:
    async def scenario() -> None:
        keys = ApiKeys(read_api_keys(KeyArgs(env="K"), {"K": "alice: the-key-of-alice-1"}))
        async with local_app(GatedPipeline(), AppArgs(models=("fake",)), keys=keys) as (client, _):
            assert " -H 'x-api-key: KEY' <this address>/v1/captions" in (await client.get("/")).text

    asyncio.run(scenario())
    assert "x-api-key" not in get("/").text


def test_heads_are_those_of_the_answers() -> None:
    async def scenario() -> None:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",))) as (client, _):
            for path in ("/", "/page/style.css"):
                head, answer = await client.head(path), await client.get(path)
                assert (head.status_code, head.headers["content-type"]) == (200, answer.headers["content-type"])

    asyncio.run(scenario())


def test_the_page_may_reach_its_own_server_only() -> None:
    policy = get("/", BROWSER).headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules.pop("img-src") == "'self' data: blob:"
    assert rules.pop("default-src") == "'self'"
    assert set(rules.values()) == {"'none'"}


def test_files_come_with_their_types_and_are_not_sent_twice() -> None:
    for name, content_type in CONTENT_TYPES.items():
        first = get(f"/page/{name}")
        assert (first.status_code, first.headers["content-type"]) == (200, content_type)
        assert first.headers["x-content-type-options"] == "nosniff"
        assert first.headers["cache-control"] == "no-cache"
    again = get("/page/app.js", {"if-none-match": f'"other", W/{get("/page/app.js").headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    page = get("/", BROWSER)
    assert get("/", BROWSER | {"if-none-match": page.headers["etag"]}).status_code == 304


def test_no_other_file_is_found() -> None:
    for path in ("/page/index.html", "/page/nope.js", "/page/..%2fcli.py", "/page/%2e%2e/cli.py", "/page/"):
        answer = get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
