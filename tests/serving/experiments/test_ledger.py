"""The ledger, alike on both databases."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from sqlalchemy import func, select

from models.errors import UnknownNameError
from serving.experiments.ledger import Ledger, open_ledger
from serving.experiments.records import MAX_CAPTION_CHARS, Vote
from serving.experiments.tables import OUTCOMES
from tests.import_graph import ROOT
from tests.serving.experiments.support import outcome


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    with open_ledger(database_url) as ledger:
        yield ledger


def ids(ledger: Ledger) -> Counter[str]:
    with ledger._engine.begin() as connection:
        return Counter(connection.execute(select(OUTCOMES.c.id)).scalars())


def vote(value: Literal[1, -1] = 1, arm: str = "a", request_id: str = "r1", index: int = 0) -> Vote:
    return Vote("tone", arm, request_id, index, value, 2000.0)


def test_what_is_confirmed_is_there_once(ledger: Ledger) -> None:
    made = [outcome(request_id=f"r{number}") for number in range(1200)]
    assert ledger.record(made) == {each.id for each in made}
    assert ledger.record([*made[:7], outcome(request_id="new")]) == {each.id for each in made[:7]} | {"tone/new/0"}
    assert ledger.record([outcome(request_id="twice")] * 2) == {"tone/twice/0"}
    assert ledger.record([]) == frozenset()
    assert ids(ledger) == {each.id: 1 for each in made} | {"tone/new/0": 1, "tone/twice/0": 1}


def test_a_second_report_changes_nothing(ledger: Ledger) -> None:
    ledger.record([outcome()])
    ledger.record([outcome(clip_score=0.1, caption="another")])
    [arm] = ledger.arm_data("tone", ["a"])
    assert (arm.unit_scores.tolist(), arm.captions) == ([0.7], ("A dog runs on grass.",))


def test_a_failure_gives_way_to_the_caption_of_a_second_try(ledger: Ledger) -> None:
    failed = outcome(error="deadline_exceeded", clip_score=None, words=None, latency_ms=None, caption="")
    for made in (failed, outcome(), failed):  # the last came late: it takes nothing back
        ledger.record([made])
    ledger.vote(vote())
    [arm] = ledger.arm_data("tone", ["a"])
    assert (arm.unit_scores.tolist(), arm.captions) == ([0.7], ("A dog runs on grass.",))


def test_every_text_can_be_kept(ledger: Ledger) -> None:
    texts = ["a\0b", "\ud800", "ünïcode \U0001f436", "'; DROP TABLE limner_outcomes; --", "", "x" * 5000]
    ledger.record([outcome(request_id=f"r{number}", caption=text) for number, text in enumerate(texts)])
    [arm] = ledger.arm_data("tone", ["a"])
    assert set(arm.captions) == {"a\\0b", "\\ud800", *texts[2:5], "x" * MAX_CAPTION_CHARS}


def test_votes_replace_one_another(ledger: Ledger) -> None:
    ledger.record([outcome(), outcome(index=1), outcome(index=2)])
    for each in (vote(1), vote(-1), vote(1, index=1), vote(-1, index=2)):
        ledger.vote(each)
    [arm] = ledger.arm_data("tone", ["a"])
    assert (arm.votes_up, arm.votes_down) == (1, 2)


@pytest.mark.parametrize("wrong", [vote(arm="b"), vote(request_id="r2"), vote(index=1), vote(index=9)])
def test_a_vote_needs_its_result(ledger: Ledger, wrong: Vote) -> None:
    ledger.record([outcome(), outcome(index=9, error="truncated", caption="")])
    with pytest.raises(UnknownNameError, match=f"'{wrong.request_id}', index {wrong.index}") as caught:
        ledger.vote(wrong)
    assert caught.value.code == "unknown_vote_target"
    [arm] = ledger.arm_data("tone", ["a"])
    assert (arm.votes_up, arm.votes_down) == (0, 0)


def test_many_threads_may_write_and_read(ledger: Ledger) -> None:
    def work(thread: int) -> None:
        for number in range(10):
            made = outcome(request_id=f"r{thread}-{number}")
            ledger.record([made, outcome(request_id="shared", index=number)])
            ledger.vote(vote(request_id=made.request_id))
            ledger.arm_data("tone", ["a"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    [arm] = ledger.arm_data("tone", ["a"])
    assert (arm.images, arm.votes_up) == (90, 80)


def test_it_survives_a_restart(database_url: str) -> None:
    with open_ledger(database_url) as ledger:
        ledger.record([outcome()])
        ledger.vote(vote())
    with open_ledger(database_url) as ledger:
        [arm] = ledger.arm_data("tone", ["a"])
        assert (arm.images, arm.votes_up) == (1, 1)


@pytest.mark.parametrize("after_lines", [1, 40])
def test_a_killed_process_loses_nothing_that_was_confirmed(database_url: str, after_lines: int) -> None:
    command = [sys.executable, "-m", "tests.serving.experiments.writer", database_url]
    writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(after_lines)]
    writer.kill()  # SIGKILL, in the middle of whatever it does
    confirmed = {recorded for line in [*lines, *writer.stdout] if line.endswith("\n") for recorded in line.split()}
    writer.stdout.close()
    writer.wait()
    with open_ledger(database_url) as ledger:
        kept = ids(ledger)
        assert len(confirmed) >= 20 * after_lines
        assert confirmed <= kept.keys()
        assert set(kept.values()) == {1}
        per_request = select(func.count()).select_from(OUTCOMES).group_by(OUTCOMES.c.request_id)
        with ledger._engine.begin() as connection:
            assert set(connection.execute(per_request).scalars()) == {20}  # no batch is there in part
