"""The dial over HTTP in one process: a tiny spectrum, real weights, a real scorer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.catalog import find_captioner
from models.decoding import parse_decode
from models.errors import RequestError
from models.images import load_image
from models.mixing.mix import Mix
from models.mixing.writing import write_mix_card
from models.pipeline import load_pipeline
from serving.args import AppArgs, Limits
from serving.engine import Engine
from serving.model_pool import ModelPool, load_models
from serving.served_models import ServedModels
from tests.models.families.compact.tiny import tiny_captioner
from tests.models.mixing.tiny_space import save_tuned, write_space, write_tiny_spectrum
from tests.serving.support import b64, local_models, pictures

Scenario = Callable[[httpx.AsyncClient, Engine], Awaitable[None]]
WORDS = [8 + number / 4 for number in range(21)]
PICTURES = pictures(3)


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> AppArgs:
    root = write_space(tmp_path_factory.mktemp("space"))
    write_tiny_spectrum(root, words=WORDS)
    return AppArgs(models=("tiny-dial", "base", "fake"), models_dir=root, device="cpu", threads=1)


def run(args: AppArgs, scenario: Scenario) -> None:
    async def whole() -> None:
        async with local_models(load_models(args), args) as (client, engine):
            await scenario(client, engine)

    asyncio.run(whole())


def asked(**options: Any) -> dict[str, Any]:
    return {"images": [{"base64": b64(picture)} for picture in PICTURES], **options}


async def results(client: httpx.AsyncClient, **options: Any) -> list[dict[str, Any]]:
    response = await client.post("/v1/captions", json=asked(**options))
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def texts(found: list[dict[str, Any]]) -> list[list[str]]:
    return [[caption["text"] for caption in result["captions"]] for result in found]


async def refused(client: httpx.AsyncClient, status: int, code: str, **options: Any) -> str:
    response = await client.post("/v1/captions", json=asked(**options))
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    detail: str = response.json()["detail"]
    return detail


def offline(args: AppArgs, model: str, **coefficients: float) -> list[list[str]]:
    """The captions of a pipeline that was loaded there."""
    pipeline = load_pipeline(
        model, models_dir=args.models_dir, scorer=None, device="cpu", coefficients=coefficients or None
    )
    images = [load_image(picture).image for picture in PICTURES]
    found = pipeline.caption(images, parse_decode(None, pipeline.card.decoding)).captions
    return [[caption.text for caption in captions] for captions in found]


def test_each_point_gives_the_captions_of_the_model_there(args: AppArgs) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        concise = await results(client, descriptiveness=0)
        assert texts(concise) == offline(args, "base") == texts(await results(client, model="base"))
        half = await results(client, descriptiveness=0.5)
        assert texts(half) == offline(args, "tiny-dial", smile=1.0) == texts(await results(client))
        assert texts(await results(client, mix={"smile": 0.5, "contrastive": 2})) == texts(
            await results(client, descriptiveness=1)
        )
        assert texts(half) != texts(concise)

    run(args, scenario)


def test_answers_say_where_they_come_from(args: AppArgs) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        told = [
            (each["descriptiveness"], each["expected_words"]) for each in await results(client, descriptiveness=0.33)
        ]
        assert told == [(0.35, WORDS[7])] * 3
        by_words = (await results(client, target_words=9))[0]
        assert (by_words["descriptiveness"], by_words["expected_words"]) == (0.2, 9.0)
        for options in ({"mix": {"smile": 1}}, {"model": "fake"}):
            result = (await results(client, **options))[0]
            assert (result["descriptiveness"], result["expected_words"]) == (None, None)

    run(args, scenario)


def test_what_cannot_be_had_is_refused(args: AppArgs) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        detail = await refused(client, 422, "invalid_request", descriptiveness=0.5, target_words=9)
        assert detail == (
            "descriptiveness and target_words: at most one of descriptiveness, mix, target_words can be given"
        )
        await refused(client, 422, "invalid_request", descriptiveness=1.5)
        await refused(client, 422, "invalid_request", mix={"smile": 99})
        assert "there are: contrastive, smile" in await refused(client, 422, "unknown_name", mix={"glow": 1})
        for knob in ({"descriptiveness": 0.5}, {"mix": {"smile": 1}}, {"target_words": 9}, {"min_clip_score": 0.5}):
            assert await refused(client, 422, "unsupported_option", model="base", **knob)
        await refused(client, 404, "unknown_model", model="nowhere", mix={"smile": 1})

    run(args, scenario)


def test_reranking_puts_the_best_of_all_candidates_first(args: AppArgs) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        beam = {"name": "beam", "options": {"beams": 4, "max_tokens": 6}}
        everything = await results(client, decode=beam, num_captions=4, score=True)
        best = await results(client, decode=beam | {"rerank": "clip_score"}, num_captions=2)
        for all_four, two in zip(everything, best, strict=True):
            ranked = sorted(all_four["captions"], key=lambda caption: -caption["clip_score"])
            expected = pytest.approx([c["clip_score"] for c in ranked[:2]], abs=1e-6)
            assert [c["clip_score"] for c in two["captions"]] == expected
        assert any(a["captions"][0] != b["captions"][0] for a, b in zip(everything, best, strict=True))
        sampled = await results(client, decode={"name": "sample", "rerank": "clip_score"})
        assert [len(result["captions"]) for result in sampled] == [1, 1, 1]
        await refused(client, 422, "invalid_request", decode={"rerank": "clip_score"}, score=False)
        await refused(client, 422, "invalid_request", decode={"rerank": "beauty"})

    run(args, scenario)


def test_captions_below_the_floor_give_way_to_the_concise_end(args: AppArgs) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        far = await results(client, descriptiveness=1)
        concise = await results(client, descriptiveness=0)
        scores = [result["captions"][0]["clip_score"] for result in far]
        floor = (min(scores) + max(scores)) / 2  # some are below, some are not
        found = await results(client, descriptiveness=1, min_clip_score=floor)
        for result, before, safe in zip(found, far, concise, strict=True):
            low = before["captions"][0]["clip_score"] < floor
            assert result["fallback"] is low
            assert texts([result]) == texts([safe if low else before])
            assert result["descriptiveness"] == (0.0 if low else 1.0)
        assert {result["fallback"] for result in found} == {False, True}
        nothing_safer = await results(client, descriptiveness=0, min_clip_score=9)
        assert [result["fallback"] for result in nothing_safer] == [False] * 3
        bad = await client.post(
            "/v1/captions",
            json={**asked(min_clip_score=9), "images": [{"base64": "AAAA"}, {"base64": b64(PICTURES[0])}]},
        )
        assert [result["error"] is None for result in bad.json()["results"]] == [False, True]

    run(args, scenario)


def test_models_tell_their_spectrum(args: AppArgs) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        listed = {model["id"]: model for model in (await client.get("/v1/models")).json()["data"]}
        spectrum = listed["tiny-dial"]["spectrum"]
        assert spectrum["default"] == 0.5 and len(spectrum["grid"]) == 21
        assert spectrum["grid"][20] == {
            "descriptiveness": 1.0,
            "coefficients": {"smile": 0.5, "contrastive": 2.0},
            "expected_words": 13.0,
            "measures": {"clip_score": 1.2},
        }
        assert listed["tiny-dial"]["directions"] == ["contrastive", "smile"]
        assert (listed["base"]["spectrum"], listed["base"]["directions"]) == (None, [])

    run(args, scenario)


def test_mixes_are_shared_kept_and_bounded(args: AppArgs) -> None:
    async def scenario() -> None:
        models = load_models(args)
        variants = models["tiny-dial"].variants
        assert variants is not None
        pool = ModelPool(models, max_bytes=2 * variants.bytes_of_one)
        plain = pool["tiny-dial"]
        async with (
            pool.lease(pool.loaded("tiny-dial"), None) as as_it_is,
            pool.lease(pool.loaded("tiny-dial"), ()) as base,
        ):
            assert as_it_is is base is plain  # an anchor costs nothing
        smile, strong = (("smile", 1.0),), (("smile", 2.0),)
        async with (
            pool.lease(pool.loaded("tiny-dial"), smile) as first,
            pool.lease(pool.loaded("tiny-dial"), smile) as second,
        ):
            assert first is second and first.scorer is plain.scorer and first.card is plain.card
        for coefficients in (strong, (("smile", 3.0),)):
            async with pool.lease(pool.loaded("tiny-dial"), coefficients):
                pass
        assert pool._mixes.held_bytes == 2 * variants.bytes_of_one
        loaded = models["tiny-dial"]
        assert (loaded, smile) not in pool._mixes and (loaded, strong) in pool._mixes

    asyncio.run(scenario())


def test_a_stored_mix_can_be_mixed_anew(args: AppArgs) -> None:
    assert args.models_dir is not None
    root = args.models_dir
    mix = Mix("half", find_captioner("base", root), {"smile": find_captioner("smile", root)}, {"smile": 0.5})
    write_mix_card(root / "half", mix)
    own = args.model_copy(update={"models": ("half",)})

    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        assert texts(await results(client)) == offline(args, "half")
        assert texts(await results(client, mix={})) == offline(args, "base")
        assert texts(await results(client, mix={"smile": 1})) == offline(args, "tiny-dial", smile=1.0)

    run(own, scenario)


def test_a_request_that_was_accepted_gets_its_fallback_while_the_server_drains(args: AppArgs) -> None:
    full = args.model_copy(update={"limits": Limits(max_images=3, max_queue_images=3)})

    async def scenario(client: httpx.AsyncClient, engine: Engine) -> None:
        asking = asyncio.create_task(results(client, descriptiveness=1, min_clip_score=9))
        while not engine._scheduler.queued_images:
            await asyncio.sleep(0.001)
        assert await asyncio.to_thread(engine.drain, 20)
        assert [result["fallback"] for result in await asking] == [True] * 3
        assert engine._scheduler.queued_images == 0
        await refused(client, 503, "shutting_down")

    run(full, scenario)


def test_the_second_pass_of_a_request_is_of_the_model_that_it_began_with(args: AppArgs) -> None:
    async def taken_out(client: httpx.AsyncClient, engine: Engine) -> None:
        first_pass = engine._caption_at

        async def and_then(*given: Any) -> Any:
            answers = await first_pass(*given)
            engine._models.drop("tiny-dial")
            return answers

        engine._caption_at = and_then  # type: ignore[method-assign]
        found = await results(client, model="tiny-dial", descriptiveness=1, min_clip_score=2.5)
        assert [(result["fallback"], result["error"]) for result in found] == [(True, None)] * len(PICTURES)

    run(args, taken_out)


def test_two_folders_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / parent / "mine" for parent in "ab"]
    for path in paths:
        save_tuned(path, tiny_captioner(1), "mle")
    with pytest.raises(RequestError, match="/a/mine' and '.*/b/mine' are both called 'mine': leave out or rename one"):
        ServedModels.from_args(AppArgs(models=tuple(map(str, paths))))


def test_another_version_of_a_model_has_mixes_of_its_own(args: AppArgs) -> None:
    async def scenario() -> None:
        pool = ModelPool(load_models(args), max_bytes=1 << 30)
        smile = (("smile", 1.0),)
        async with pool.lease(pool.loaded("tiny-dial"), smile) as before:
            pool.put("tiny-dial", load_models(args)["tiny-dial"])
            assert pool._mixes.held_bytes == 0  # whoever uses the old one goes on with it
            async with pool.lease(pool.loaded("tiny-dial"), smile) as after:
                assert after is not before
        async with pool.lease(pool.loaded("tiny-dial"), smile) as again:
            assert again is after

    asyncio.run(scenario())
