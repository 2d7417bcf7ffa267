"""The ledger: what came of every image of every experiment, kept in a database that outlives the server."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from models.errors import OverloadedError, UnknownNameError
from serving.experiments.arm_queries import read_arms
from serving.experiments.assignment import uniform
from serving.experiments.database import open_database
from serving.experiments.records import Outcome, Vote
from serving.experiments.statistics import ArmData
from serving.experiments.tables import OUTCOMES, VOTES

_ROWS_AT_ONCE = 500


@contextmanager
def open_ledger(url: str) -> Iterator["Ledger"]:
    """The ledger in the database at ``url`` (``sqlite:///FILE``, ``postgresql://...``). Raises as ``open_database``."""
    with open_database(url) as engine:
        yield Ledger(engine)


class Ledger:
    """Writes and reads; any thread may call. What a method returned from is committed, and survives a power cut.

    Raises:
        OverloadedError: ``unavailable`` when the database does not answer, from every method; nothing was confirmed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[engine.dialect.name]
        self._writing = threading.Lock()

    def record(self, outcomes: Sequence[Outcome]) -> frozenset[str]:
        """The ids that are in the ledger now: all of them. One that was there already is left as it is, unless it was
        a failure and this is not: a client that tries again under the same request id."""
        insert = self._insert(OUTCOMES)
        statement = insert.on_conflict_do_update(
            index_elements=[OUTCOMES.c.id],
            set_={column.name: insert.excluded[column.name] for column in OUTCOMES.c if not column.primary_key},
            where=OUTCOMES.c.error.is_not(None)
            & insert.excluded.error.is_(None)
            & (OUTCOMES.c.unit == insert.excluded.unit),
        )
        rows = [{"id": outcome.id, "draw": uniform("draw", outcome.id), **asdict(outcome)} for outcome in outcomes]
        if rows:
            with self._writing, self._transaction() as connection:
                for start in range(0, len(rows), _ROWS_AT_ONCE):
                    connection.execute(statement, rows[start : start + _ROWS_AT_ONCE])
        return frozenset(outcome.id for outcome in outcomes)

    def vote(self, vote: Vote) -> None:
        """Keep a vote, in place of an earlier one on the same result.

        Raises:
            UnknownNameError: ``unknown_vote_target``; no such result, or its arm is another.
        """
        found = select(OUTCOMES.c.arm).where(OUTCOMES.c.id == vote.outcome_id, OUTCOMES.c.error.is_(None))
        values = {"value": vote.value, "created_at_s": vote.created_at_s}
        keep = (
            self._insert(VOTES)
            .values(outcome_id=vote.outcome_id, **values)
            .on_conflict_do_update(index_elements=[VOTES.c.outcome_id], set_=values)
        )
        with self._writing, self._transaction() as connection:
            if connection.execute(found).scalar() != vote.arm:
                raise UnknownNameError(
                    "unknown_vote_target",
                    f"experiment {vote.experiment!r} has no caption of arm {vote.arm!r} for request_id "
                    f"{vote.request_id!r}, index {vote.index}; send them as the answer with the caption has them",
                )
            connection.execute(keep)

    def arm_data(self, experiment: str, labels: Sequence[str]) -> tuple[ArmData, ...]:
        """What the arms with these labels did so far, in their order."""
        with self._transaction() as connection:
            return read_arms(connection, experiment, labels)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            detail = f"the ledger's database does not answer ({type(error.orig).__name__}); try again later"
            raise OverloadedError("unavailable", detail) from error
