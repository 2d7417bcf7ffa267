"""The running server does what its OpenAPI document says, for requests that fit the document and such that do not."""

from typing import Any

import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from tests.fuzz.support import fuzz
from tests.serving.conftest import ADMIN_KEY
from tests.serving.support import b64, png

# What no schema can say - that the bytes are a picture, that a model has a spectrum - is refused with one of these.
_OF_MEANING = ["2xx", "400", "403", "404", "413", "415", "422"]
_CONFIG = {"checks": {"positive_data_acceptance": {"expected-statuses": _OF_MEANING}}}

_WITH_INPUT = [
    ("/v1/captions", "POST"),
    ("/v1/compare", "POST"),
    ("/v1/score", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/experiments/{name}/votes", "POST"),
    ("/v1/experiments/{name}", "GET"),
    ("/v1/admin/models", "POST"),
    ("/v1/admin/models", "DELETE"),
]
_KEY = {"x-api-key": ADMIN_KEY}
_WITHOUT_INPUT = ["/v1/models", "/v1/experiments", "/healthz", "/readyz", "/metrics"]
_PICTURE = {"base64": b64(png())}
_PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PICTURE['base64']}"}}
_SENSIBLE: dict[str, Any] = {
    "images": [_PICTURE],
    "captions": [["a picture"]],
    "messages": [{"role": "user", "content": [_PART]}],
    "model": "fake",
}


@pytest.fixture(scope="module")
def schema(server: str) -> Any:
    return schemathesis.openapi.from_url(f"{server}/openapi.json", config=SchemathesisConfig.from_dict(_CONFIG))


def test_every_operation_is_tested(schema: Any) -> None:
    described = {(found.ok().path, found.ok().method.upper()) for found in schema.get_all_operations()}
    assert described == {*_WITH_INPUT, *((path, "GET") for path in _WITHOUT_INPUT)}


@pytest.mark.parametrize("path", _WITHOUT_INPUT)
def test_what_takes_no_input(schema: Any, path: str) -> None:
    schema[path]["GET"].Case().call_and_validate()


@pytest.mark.parametrize(("path", "method"), _WITH_INPUT)
@fuzz(15, data=st.data(), sensible=st.booleans())
def test_what_fits_the_document(schema: Any, path: str, method: str, data: st.DataObject, sensible: bool) -> None:
    case = data.draw(schema[path][method].as_strategy(generation_mode=GenerationMode.POSITIVE))
    if sensible and not path.endswith("/votes"):  # there, each would wait for an outcome to come to the ledger
        _make_sensible(case)
    case.call_and_validate(headers=_key(path))


def test_streamed_answers_fit_the_document(schema: Any) -> None:
    url = f"data:image/png;base64,{b64(png())}"
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    for options in ({}, {"n": 2, "stream_options": {"include_usage": True}}):
        body = {"model": "fake", "messages": messages, "stream": True, "temperature": 0.5, **options}
        answer = (
            schema["/v1/chat/completions"]["POST"].Case(body=body, media_type="application/json").call_and_validate()
        )
        assert answer.headers["content-type"][0].startswith("text/event-stream")


@pytest.mark.parametrize("path", [path for path, method in _WITH_INPUT if method == "POST"])
@fuzz(15, data=st.data())
def test_what_does_not(schema: Any, path: str, data: st.DataObject) -> None:
    case = data.draw(schema[path]["POST"].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    case.call_and_validate(headers=_key(path))


def _key(path: str) -> dict[str, str]:
    return _KEY if path.startswith("/v1/admin/") else {}


def _make_sensible(case: Any) -> None:
    """With a real picture, a served model and an experiment that there is, so that the rest of the request counts."""
    if case.media_type == "application/json" and isinstance(case.body, dict):
        case.body |= {name: value for name, value in _SENSIBLE.items() if name in case.body}
    if case.path_parameters and "name" in case.path_parameters:
        case.path_parameters["name"] = "tone"
