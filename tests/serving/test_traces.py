"""``limner serve`` with traces: what a receiver has of its requests once it has stopped."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.serving.conftest import ROOT, free_port
from tests.serving.otlp import Receiver, SpanSeen, receiving
from tests.serving.support import b64, pictures, png
from tests.tiny_scorer import write_tiny_scorer

PARENT = "00f067aa0ba902b7"
STAGES = ("open", "queue", "encode", "decode", "score")


def trace_id(number: int) -> str:
    return f"4bf92f3577b34da6a3ce929d0e0e4{number:03}"


@dataclass(frozen=True)
class Scene:
    """Requests, each in a trace of its own that its client began, and what the receiver has of them."""

    receiver: Receiver
    answers: dict[str, httpx.Response]

    def trace(self, name: str) -> list[SpanSeen]:
        return self.receiver.trace(trace_id(list(self.answers).index(name)))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Sends nothing before it stops, so that all there is has been sent by then."""
    folder = tmp_path_factory.mktemp("traces")
    with pytest.MonkeyPatch.context() as patch, receiving() as receiver:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        port = free_port()
        command = [sys.executable, "-m", "models.cli", "serve", "--model", "fake", "--port", str(port)]
        command += ["--scorer", f"local-dir:{write_tiny_scorer(folder / 'tiny')}", "--sample-share", "0"]
        command += ["--trace-endpoint", receiver.url, "--log-dir", str(folder / "logs")]
        with serving(command) as url:
            answers = ask(url)
        yield Scene(receiver, answers)


@contextmanager
def serving(command: Sequence[str]) -> Iterator[str]:
    """Its address while the block runs; then it is told to stop, and has."""
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            assert ready.startswith("limner is ready on "), ready
            yield ready.split()[4]
        finally:
            process.terminate()
            assert process.wait(60) == 0


def ask(url: str) -> dict[str, httpx.Response]:
    data = b64(png())
    content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]
    chat = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": content}]}
    image = {"base64": data}
    requests: dict[str, tuple[str, dict[str, object]]] = {
        "caption": ("/v1/captions", {"images": [{"base64": b64(each)} for each in pictures(2)], "score": True}),
        "chat": ("/v1/chat/completions", chat),
        "compare": ("/v1/compare", {"images": [image], "arms": [{}, {"decode": {"name": "greedy"}}]}),
        "score": ("/v1/score", {"images": [image], "captions": [["a dog"]]}),
        "bad picture": ("/v1/captions", {"images": [{"base64": "AAAA"}]}),
        "wrong": ("/v1/captions", {"images": []}),
    }
    answers = {}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        for number, (name, (path, body)) in enumerate(requests.items()):
            headers = {"traceparent": f"00-{trace_id(number)}-{PARENT}-01", "x-request-id": f"r-{number}"}
            answers[name] = client.post(path, json=body, headers=headers)
    return answers


def children(span: SpanSeen, spans: list[SpanSeen]) -> list[SpanSeen]:
    return [each for each in spans if each.parent_id == span.span_id]


def test_every_request_is_one_trace_through_both_processes(scene: Scene) -> None:
    assert scene.answers["caption"].status_code == 200
    request, job, *stages = spans = scene.trace("caption")
    assert (request.name, request.parent_id) == ("POST /v1/captions", PARENT)
    assert (job.name, job.parent_id) == ("captioner.caption", request.span_id)
    assert job.within(request)
    assert {each.name for each in stages} == set(STAGES)
    assert children(job, spans) == stages
    assert all(each.within(job) for each in stages)
    for each in stages:  # one begins where the one before it ended; two images may have had a turn each
        before = [other for other in stages if STAGES.index(other.name) == STAGES.index(each.name) - 1]
        assert each.name == STAGES[0] or any(abs(other.end_ns - each.start_ns) <= 1 for other in before)
    services = {each.service["service.instance.id"] for each in (request, job)}
    assert len(services) == 2  # the ingress and the captioner
    assert {each.service["service.name"] for each in spans} == {"limner"}


def test_it_says_what_was_asked_and_what_came_of_it(scene: Scene) -> None:
    request, job, *_ = scene.trace("caption")
    captions = [each for result in scene.answers["caption"].json()["results"] for each in result["captions"]]
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/captions",
        "http.response.status_code": 200,
        "limner.request_id": "r-0",
        "limner.model": "fake",
        "limner.images": 2,
    }
    assert job.attributes["limner.request_id"] == "r-0"
    assert job.attributes["limner.tokens"] == sum(each["tokens"] for each in captions)
    assert not any(each.failed for each in scene.trace("caption"))


def test_a_streamed_chat_has_its_trace(scene: Scene) -> None:
    assert "data: [DONE]" in scene.answers["chat"].text
    request, job, *stages = scene.trace("chat")
    assert (request.name, request.attributes["http.response.status_code"]) == ("POST /v1/chat/completions", 200)
    assert (job.name, job.parent_id) == ("captioner.caption", request.span_id)
    assert {"queue", "encode", "decode"} <= {each.name for each in stages}


def test_the_arms_of_a_comparison_are_two_jobs_of_one_request(scene: Scene) -> None:
    request, *others = scene.trace("compare")
    jobs = children(request, others)
    assert [job.name for job in jobs] == ["captioner.caption"] * 2
    for job in jobs:
        assert job.within(request)
        assert "decode" in {each.name for each in children(job, others)}


def test_given_captions_are_scored_in_one_stage(scene: Scene) -> None:
    assert scene.answers["score"].status_code == 200
    _, job, *stages = scene.trace("score")
    assert job.name == "captioner.score"
    assert {each.name for each in stages} == {"open", "queue", "score"}


def test_failures_are_told_where_they_happen(scene: Scene) -> None:
    request, job = scene.trace("bad picture")
    assert (request.attributes["error.type"], request.attributes["http.response.status_code"]) == ("not_an_image", 400)
    assert job.attributes["limner.images_failed"] == 1
    [refused] = scene.trace("wrong")
    assert (refused.attributes["error.type"], refused.attributes["http.response.status_code"]) == (
        "invalid_request",
        422,
    )
    assert not (request.failed or refused.failed)  # the client's fault


def test_no_caption_is_sent(scene: Scene) -> None:
    texts = [each["text"] for each in scene.answers["caption"].json()["results"][0]["captions"]]
    assert texts
    assert not any(text.encode() in scene.receiver.raw for text in texts)


def test_probes_are_not_in_it(scene: Scene) -> None:
    assert len({span.trace_id for span in scene.receiver.spans}) == len(scene.answers)
