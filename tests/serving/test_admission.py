"""What a request is charged, and what its log line learns."""

from types import SimpleNamespace

import pytest
from starlette.requests import Request

from models.errors import OverloadedError
from serving import metrics
from serving.admission import admit
from serving.api_keys import ApiClient, ApiKeys
from serving.reports import Reporter


def request_of(reporter: Reporter, keys: ApiKeys | None, **state: str) -> Request:
    services = SimpleNamespace(keys=keys, reporter=reporter)
    return Request({"type": "http", "app": SimpleNamespace(state=SimpleNamespace(services=services)), "state": state})


def test_holders_of_keys_are_charged_and_counted_until_it_is_too_much() -> None:
    reporter, keys = Reporter("test", metrics.REPORTS_LOST), ApiKeys([ApiClient("alice", b"", 4)], clock=lambda: 0.0)
    admit(request_of(reporter, keys, client="alice"), "fake", 3)
    refused = request_of(reporter, keys, client="alice")
    with pytest.raises(OverloadedError, match="rate_limited"):
        admit(refused, "fake", 2)
    assert (refused.state.model, refused.state.images) == ("fake", 2)  # its log line says what was asked
    assert reporter._pending.counts == {(metrics.CLIENT_IMAGES, ("alice",)): 3}


def test_without_keys_nobody_is() -> None:
    reporter = Reporter("test", metrics.REPORTS_LOST)
    for _ in range(10):
        admit(request_of(reporter, None), "fake", 32)
    assert not reporter._pending.counts
