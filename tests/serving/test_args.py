"""Arguments of the application."""

from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from models.device import pick_device, pick_dtype
from models.errors import RequestError
from serving.args import DTYPES, AppArgs, Limits, MonitorArgs
from serving.drift import ScoreBaseline
from serving.validation import explain

HOSTS_THAT_ARE_NONE: list[Any] = [
    [],
    "",
    "http://example.org",
    "example.org/",
    "example.org:80",
    "*.org",
    "a b",
    [1],
    1,
]
TWICE = [{"name": "tone", "arms": [{"label": "a"}, {"label": "b"}]}] * 2


def test_defaults_are_those_of_the_design() -> None:
    limits = AppArgs().limits
    assert (limits.max_body_bytes, limits.max_image_bytes) == (32 << 20, 20 << 20)
    assert (limits.max_image_px, limits.max_images, limits.max_rows) == (64_000_000, 32, 64)


def test_they_survive_json_as_a_config_file_has_it() -> None:
    monitor = MonitorArgs(sample_share=0.5, baselines={"fake": ScoreBaseline(mean=1, sd=0.2)})
    args = AppArgs(
        models=("fake", "/a/folder"),
        scorer=None,
        limits=Limits(max_images=4),
        monitor=monitor,
        experiments=TWICE[:1],
    )
    assert AppArgs.model_validate_json(args.model_dump_json()) == args


@pytest.mark.parametrize("kind", [AppArgs, Limits, MonitorArgs])
def test_every_field_is_described(kind: type[BaseModel]) -> None:
    assert [name for name, field in kind.model_fields.items() if not field.description] == []


def test_a_sample_is_scored_where_there_are_a_scorer_and_a_share() -> None:
    assert AppArgs().scores_a_sample
    assert AppArgs().monitor.sample_share == 0.1
    assert not AppArgs(scorer=None).scores_a_sample
    assert not AppArgs(monitor=MonitorArgs(sample_share=0)).scores_a_sample


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": []},
        {"model": "fake"},
        {"threads": 0},
        {"threads": 10**9},
        {"decode_threads": 10**9},
        {"models": [""]},
        {"device": "cdua"},
        {"device": "cuda:x"},
        {"dtype": "fp31"},
        {"ledger": ""},
        {"ledger": "mysql://host/name"},
        {"monitor": {"scorer_device": "gpu"}},
        {"api_keys": {"env": ""}},
        {"tracing": {"endpoint": "http://host:99999"}},
        {"tracing": {"endpoint": "http://host:port"}},
        {"tracing": {"endpoint": "http://:4318"}},
        {"tracing": {"endpoint": "http://[::1"}},
        {"limits": {"max_queue_images": 10**12}},
        {"limits": {"deadline_s": 1e308}},
        {"limits": {"max_images": 300}},
        {"target_pass_s": 0},
        {"limits": {"deadline_s": float("inf")}},
        {"experiments": TWICE},
        {"limits": {"url_hosts": ["example.org"]}},
        {"limits": {"url_internal_hosts": ["store.lan"]}},
        {"limits": {"urls": True, "url_internal_hosts": [".lan"]}},
        *({"limits": {"urls": True, "url_hosts": hosts}} for hosts in HOSTS_THAT_ARE_NONE),
        {"monitor": {"sample_share": 1.5}},
        {"monitor": {"drift": {"threshold": 3}}},
        {"monitor": {"baselines": {"fake": {"mean": 1, "sd": 0}}}},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        AppArgs.model_validate(wrong)
    assert str(caught.value.errors()[0]["loc"][:1]) in (str(tuple(wrong)), "()")  # it names the option


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_devices_are_those_of_the_models(device: str) -> None:
    assert AppArgs(device=device).device == device
    with suppress(RequestError):  # this machine may lack it, which is another matter
        pick_device(device)


def test_dtypes_are_those_of_the_models() -> None:
    with pytest.raises(RequestError) as caught:
        pick_dtype("none", pick_device("cpu"))
    assert caught.value.detail.endswith("there are: " + ", ".join(DTYPES))


def test_a_ledger_that_is_refused_is_not_repeated_since_it_may_hold_a_password() -> None:
    with pytest.raises(ValidationError) as caught:
        AppArgs(ledger="mysql://me:secret@host/name")
    assert "secret" not in explain(caught.value)


def test_an_arm_that_reranks_needs_a_scorer() -> None:
    arms = [{"label": "a"}, {"label": "b", "decode": {"name": "sample", "rerank": "clip_score"}}]
    experiments = [{"name": "tone", "arms": arms}]
    assert AppArgs.model_validate({"experiments": experiments}).experiments[0].arms[1].decode is not None
    with pytest.raises(ValidationError) as caught:
        AppArgs.model_validate({"experiments": experiments, "scorer": None})
    assert "experiment 'tone': arm 'b' reranks by clip_score, which needs a scorer" in explain(caught.value)


def test_images_by_url_are_off_unless_asked_for() -> None:
    limits = Limits()
    assert (limits.urls, limits.url_hosts, limits.url_timeout_s) == (False, None, 10)


@pytest.mark.parametrize("hosts", ["Example.org,.pictures.test", ["example.org", ".pictures.test"]])
def test_hosts_as_the_command_line_and_as_a_file_say_them(hosts: Any) -> None:
    limits = Limits.model_validate({"urls": True, "url_hosts": hosts}, strict=True)
    assert limits.url_hosts == ("example.org", ".pictures.test")
    assert Limits.model_validate_json(limits.model_dump_json()) == limits
