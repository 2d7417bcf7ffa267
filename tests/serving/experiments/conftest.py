"""Databases of both kinds, each empty."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.postgres import postgres_server
from tests.support import needs_postgres

_numbers = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server, with ``{}`` for the database."""
    needs_postgres.check()
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A new schema: as empty as a database, and made in no time."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
    return postgres.format("postgres") + f"&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/data/ledger.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
