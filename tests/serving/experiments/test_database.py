"""Databases that cannot be a ledger are refused in one sentence."""

import sqlite3
import sys
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from models.errors import ExperimentError, MissingDependencyError
from serving.experiments.database import open_database
from serving.experiments.ledger import open_ledger
from tests.serving.experiments.support import outcome


def refusal(url: str) -> str:
    with pytest.raises(ExperimentError) as caught, open_database(url):
        pass
    assert caught.value.code == "bad_ledger"
    assert "\n" not in caught.value.detail
    return caught.value.detail


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ledger.db", "is no database URL; use sqlite:///FILE or postgresql://"),
        ("sqlite://", "cannot hold a ledger; use sqlite:///FILE"),
        ("sqlite:///:memory:", "cannot hold a ledger"),
        ("mysql://u:secret@h/d", r"mysql://u:***@h/d cannot hold a ledger"),
        ("sqlite:////proc/ledger.db", "cannot be written"),
    ],
)
def test_addresses_that_are_of_no_use(url: str, told: str) -> None:
    assert told in refusal(url)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    detail = refusal(f"postgresql://u:secret@/d?host={tmp_path}")
    assert "cannot be used: connection" in detail
    assert "secret" not in detail


def test_postgres_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'limner\[postgres\]'"):
        with open_database("postgresql://u@/d"):
            pass


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database at all" * 100)
    assert "file is not a database" in refusal(f"sqlite:///{tmp_path}/ledger.db")


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        ledger.record([outcome(request_id=f"r{number}") for number in range(2000)])
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 8192] = b"\xa5" * 8192
    path.write_bytes(content)
    detail = refusal(f"sqlite:///{path}")
    assert "is damaged" in detail or "malformed" in detail


def test_one_file_has_one_owner(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_database(url):
        assert "another process has it open" in refusal(url)
    with open_database(url):
        pass


def test_sqlite_writes_ahead_and_through(tmp_path: Path) -> None:
    with open_database(f"sqlite:///{tmp_path}/ledger.db") as engine, engine.begin() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2]


def test_home_folders_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_database("sqlite:///~/deep/ledger.db"):
        pass
    assert sqlite3.connect(tmp_path / "deep" / "ledger.db").execute("SELECT * FROM limner_schema").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE limner_schema SET version = 2", "has tables of version 2, this limner those of 1"),
        ("DELETE FROM limner_schema", "is incomplete (lacks a version)"),
        ("DROP TABLE limner_schema", "is incomplete (lacks limner_schema.version)"),
        ("DROP TABLE limner_votes", "is incomplete (lacks limner_votes.outcome_id, limner_votes.value"),
        ("ALTER TABLE limner_outcomes RENAME COLUMN unit TO user_id", "is incomplete (lacks limner_outcomes.unit)"),
    ],
)
def test_tables_of_another_make_are_left_alone(database_url: str, change: str, told: str) -> None:
    with open_database(database_url) as engine, engine.begin() as connection:
        connection.execute(text(change))
    assert told in refusal(database_url)


@pytest.mark.postgres
def test_other_tables_beside_the_ledgers_do_not_matter(postgres_url: str) -> None:
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE votes (x int)"))
    engine.dispose()
    with open_ledger(postgres_url) as ledger:
        assert ledger.record([outcome()]) == {outcome().id}


@pytest.mark.postgres
def test_the_password_of_postgres_may_come_from_the_environment(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq reads ``PGPASSWORD``, or the file that ``PGPASSFILE`` names, so no configuration need hold it."""
    with psycopg.connect(postgres.format("postgres"), autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'spruce'")
        connection.execute("CREATE SCHEMA guarded AUTHORIZATION guarded")
        [file] = connection.execute("SHOW hba_file").fetchone() or ()
        rules = Path(file).read_text("utf-8")
        Path(file).write_text(f"local all guarded scram-sha-256\n{rules}", "utf-8")
        connection.execute("SELECT pg_reload_conf()")
    url = postgres.format("postgres").replace("//limner@", "//guarded@")
    monkeypatch.setenv("PGPASSWORD", "birch")
    await_refusal(url)
    assert "password authentication failed" in refusal(url)
    monkeypatch.setenv("PGPASSWORD", "spruce")
    with open_ledger(url) as ledger:
        assert ledger.record([outcome()])
    monkeypatch.delenv("PGPASSWORD")
    (tmp_path / "pgpass").write_text("*:*:*:guarded:spruce\n", "utf-8")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    with open_ledger(url) as ledger:
        assert ledger.record([outcome(request_id="another")])


def await_refusal(url: str, within_s: float = 30) -> None:
    """Return when the server has read its rules again, which it does some time after it is told to."""
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.05)
    raise AssertionError("any password is right")
