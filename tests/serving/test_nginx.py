"""``deploy/nginx.conf`` in front of the running server."""

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from serving.args import Limits
from serving.errors import HTTP_STATUS, PROBLEM_TYPE
from serving.openai_errors import OPENAI_ROUTES
from serving.openai_schemas import OpenAIError
from serving.registry_deployment import _CHANGE_TIMEOUT_S
from serving.request_ids import usable_id
from tests.serving.conftest import BODY_TIMEOUT_S
from tests.serving.nginx import CONFIG, NAME, Nginx, running_nginx
from tests.serving.support import b64, png
from tests.support import needs_nginx

PNG = {"content-type": "image/png"}


@pytest.fixture(scope="module")
def nginx(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    needs_nginx.check()
    with running_nginx(server.removeprefix("http://"), tmp_path_factory.mktemp("nginx")) as running:
        yield running


@pytest.fixture
def https(nginx: Nginx) -> Iterator[httpx.Client]:
    with nginx.client() as client:
        yield client


def chat(stream: bool) -> dict[str, object]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(png())}"}}
    return {"model": "fake", "stream": stream, "messages": [{"role": "user", "content": [picture]}]}


def is_problem(answer: httpx.Response, status: int, code: str) -> bool:
    """Whether it is what limner itself would have answered."""
    body = answer.json()
    assert set(body) == {"type", "title", "status", "detail", "code", "request_id"}
    assert (answer.status_code, body["status"], body["code"], body["title"]) == (
        status,
        status,
        code,
        code.replace("_", " "),
    )
    assert answer.headers["content-type"] == PROBLEM_TYPE
    assert answer.headers.get_list("x-request-id") == [body["request_id"]]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert "strict-transport-security" in answer.headers
    return True


@needs_nginx
def test_a_caption_comes_over_https(https: httpx.Client) -> None:
    answer = https.post("/v1/captions", content=png(), headers={**PNG, "x-request-id": "a:1"})
    assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
    assert answer.json()["results"][0]["captions"][0]["text"]
    assert answer.json()["id"] == "a:1"
    for name in ("x-request-id", "x-content-type-options", "referrer-policy", "content-security-policy"):
        assert len(answer.headers.get_list(name)) == 1, name
    assert answer.headers.get_list("strict-transport-security") == ["max-age=31536000"]


@needs_nginx
def test_a_caption_comes_over_http_2(nginx: Nginx, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    said = nginx.curl(
        "/v1/captions",
        *("--http2", "--data-binary", f"@{tmp_path / 'a.png'}", "-H", "content-type: image/png"),
        *("-w", "\n%{http_version} %{http_code}"),
    )
    body, _, facts = said.rpartition("\n")
    assert facts == "2 200"
    assert json.loads(body)["results"][0]["captions"]


@needs_nginx
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_that_can_get_http_2(nginx: Nginx, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(nginx.ca))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", nginx.port), 10) as plain:
        with context.wrap_socket(plain, server_hostname=NAME) as secure:
            assert secure.selected_alpn_protocol() == "h2"


@needs_nginx
def test_old_tls_is_refused(nginx: Nginx) -> None:
    old = ssl.create_default_context(cafile=str(nginx.ca))
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", nginx.port), 10) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain, server_hostname="127.0.0.1")


@needs_nginx
def test_plain_http_is_sent_to_https(nginx: Nginx) -> None:
    answer = httpx.post(f"{nginx.plain_url}/v1/captions?model=fake", content=b"", trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (
        308,
        "https://limner.example.org/v1/captions?model=fake",
    )


@needs_nginx
def test_a_body_of_just_the_limit_reaches_limner_and_one_byte_more_does_not(https: httpx.Client) -> None:
    most = Limits().max_body_bytes
    answer = https.post("/v1/captions", content=b"a" * most, headers=PNG)
    assert (answer.status_code, answer.json()["code"]) == (400, "not_an_image")  # limner has read it
    assert is_problem(https.post("/v1/captions", content=b"a" * (most + 1), headers=PNG), 413, "body_too_large")
    assert "33554432" in https.post("/v1/captions", content=b"a" * (most + 1), headers=PNG).json()["detail"]


@needs_nginx
def test_chunked_bodies_pass_and_are_counted(https: httpx.Client) -> None:
    answer = https.post("/v1/captions", content=iter([png()[:20], png()[20:]]), headers=PNG)
    assert answer.status_code == 200
    large = https.post("/v1/captions", content=iter([b"a" * (8 << 20)] * 5), headers=PNG)
    assert is_problem(large, 413, "body_too_large")


@needs_nginx
def test_a_large_body_is_refused_in_openais_form_on_its_route(https: httpx.Client) -> None:
    for path in OPENAI_ROUTES:
        answer = https.post(path, content=b"a" * (Limits().max_body_bytes + 1))
        error = OpenAIError.model_validate_json(answer.content).error
        assert (answer.status_code, error.code, error.type) == (413, "body_too_large", "invalid_request_error")
        assert answer.headers["content-type"] == "application/json"


@needs_nginx
@pytest.mark.parametrize("path", ["/v1/captions", "/metrics", *OPENAI_ROUTES])
def test_a_large_body_is_refused_alike_over_http_2(nginx: Nginx, tmp_path: Path, path: str) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(Limits().max_body_bytes + 1)
    said = nginx.curl(
        path, "--http2", "--data-binary", f"@{tmp_path / 'large'}", "-w", "\n%{http_version} %{http_code}"
    )
    body, _, facts = said.rpartition("\n")
    assert facts == "2 413"
    refusal = json.loads(body)
    assert refusal.get("error", refusal)["code"] == "body_too_large"


@needs_nginx
def test_a_slow_sender_is_none_for_limner(https: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield png()[:20]
        time.sleep(BODY_TIMEOUT_S + 0.3)  # limner itself would have ended it by now
        yield png()[20:]

    assert https.post("/v1/captions", content=pieces(), headers=PNG).status_code == 200


@needs_nginx
def test_the_events_of_a_chat_arrive(https: httpx.Client) -> None:
    with https.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events[-1] == "[DONE]"
    words = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1]]
    assert "".join(words)


@needs_nginx
def test_each_event_of_a_chat_passes_as_it_comes(tmp_path: Path) -> None:
    seen = threading.Event()

    class TwoEvents(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"9\r\ndata: 1\n\n\r\n")
            second = b"data: 2\n\n" if seen.wait(20) else b"data: 0\n\n"  # 0: the first was held back
            self.wfile.write(b"9\r\n%s\r\n0\r\n\r\n" % second)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), TwoEvents) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        with running_nginx(f"127.0.0.1:{upstream.server_port}", tmp_path) as nginx, nginx.client() as client:
            with client.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as answer:
                events = []
                for line in filter(None, answer.iter_lines()):
                    events.append(line)
                    seen.set()
        upstream.shutdown()
    assert events == ["data: 1", "data: 2"]


def until_logged(nginx: Nginx, request_id: str) -> str:
    """The text of nginx's access log once it has the line of a request, which nginx writes when the answer is sent."""
    deadline = time.monotonic() + 10
    while True:
        text = (nginx.folder / "access.log").read_text("utf-8")
        whole = text[: text.rfind("\n") + 1].splitlines()
        if request_id in {json.loads(line)["request_id"] for line in whole}:
            return text
        assert time.monotonic() < deadline, request_id
        time.sleep(0.01)


@needs_nginx
@pytest.mark.parametrize("given", ["mine-1", "bad id", "a" * 129, 'x"}{'])
def test_limner_nginx_and_the_client_know_a_request_by_one_id(nginx: Nginx, https: httpx.Client, given: str) -> None:
    kept = usable_id(given) == given
    answered = https.post("/v1/captions", content=b"no picture", headers={**PNG, "x-request-id": given})
    refused = https.get("/metrics", headers={"x-request-id": given})
    for answer in (answered, refused):
        [request_id] = answer.headers.get_list("x-request-id")
        assert answer.json()["request_id"] == request_id
        assert (request_id == given) == kept
        until_logged(nginx, request_id)


@needs_nginx
def test_a_refusal_of_nginx_is_logged_with_the_method_that_was_asked(nginx: Nginx, https: httpx.Client) -> None:
    refused = https.post("/v1/captions", content=bytes(33 << 20), headers={**PNG, "x-request-id": "post-413"})
    assert refused.status_code == 413
    lines = map(json.loads, until_logged(nginx, "post-413").splitlines())
    assert [line["method"] for line in lines if line["request_id"] == "post-413"] == ["POST"]


@needs_nginx
@pytest.mark.parametrize("path", ["/metrics", "/metrics?a=b", "/%6Detrics", "//metrics", "/a/../metrics", "/-/routes"])
def test_nobody_reads_the_metrics_from_outside(nginx: Nginx, path: str) -> None:
    said = nginx.curl(path, "--path-as-is", "-w", "\n%{http_code} %{content_type}")
    body, _, facts = said.rpartition("\n")
    assert facts == f"403 {PROBLEM_TYPE}"
    assert json.loads(body)["code"] == "http_error"


@needs_nginx
def test_other_routes_pass_with_limners_own_refusals(https: httpx.Client) -> None:
    assert https.get("/readyz").json() == {"status": "ready"}
    assert is_problem(https.get("/no/such/route"), 404, "not_found")
    assert is_problem(https.get("/_problem"), 404, "not_found")
    assert is_problem(https.get("/v1/captions"), 405, "method_not_allowed")
    unreadable = https.get("/healthz", headers={"x-long": "a" * 20_000})
    assert is_problem(unreadable, 400, "http_error")


@needs_nginx
def test_json_is_compressed_where_the_client_takes_it(https: httpx.Client) -> None:
    assert https.get("/v1/models").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in https.get("/v1/models", headers={"accept-encoding": "identity"}).headers


@needs_nginx
def test_no_query_is_logged(nginx: Nginx, https: httpx.Client) -> None:
    https.post("/v1/captions?model=secret-model", content=png(), headers={**PNG, "x-request-id": "logged"})
    assert "secret-model" not in until_logged(nginx, "logged")


@needs_nginx
def test_a_server_that_is_down_or_silent_is_a_problem_document_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with running_nginx(address, tmp_path, **{"proxy_read_timeout 130s": "proxy_read_timeout 1s"}) as nginx:
            with nginx.client() as client:
                late = client.post("/v1/captions", content=png(), headers=PNG)
                assert is_problem(late, 504, "deadline_exceeded")
                silent.close()
                down = client.post("/v1/captions", content=png(), headers=PNG)
                assert is_problem(down, 502, "unavailable")
                assert down.headers["retry-after"] == "5"
                chatted = client.post("/v1/chat/completions", json=chat(stream=True))
                error = OpenAIError.model_validate_json(chatted.content).error
                assert (chatted.status_code, error.code, error.type) == (502, "unavailable", "server_error")
                assert chatted.headers["retry-after"] == "5"


def test_its_bounds_are_limners() -> None:
    text, limits = CONFIG.read_text("utf-8"), Limits()
    assert f"the body is larger than {limits.max_body_bytes} bytes" in text
    assert f"client_max_body_size {limits.max_body_bytes >> 20}m;" in text
    timeout, admins = re.findall(r"proxy_read_timeout (\d+)s;", text)
    assert int(admins) > _CHANGE_TIMEOUT_S  # of the registry, for models that load
    assert int(timeout) > limits.deadline_s + 5  # with the grace of the ingress


def test_its_codes_are_limners() -> None:
    [codes] = re.findall(r"map \$status \$problem_code \{(.*?)\}", CONFIG.read_text("utf-8"), re.DOTALL)
    by_status = dict(re.findall(r"(\d{3}|default) (\w+);", codes))
    assert by_status.pop("default") == "http_error"
    assert {code for code in by_status.values() if code not in HTTP_STATUS} == set()
    differing = {int(status): code for status, code in by_status.items() if HTTP_STATUS[code] != int(status)}
    assert differing == {502: "unavailable"}
