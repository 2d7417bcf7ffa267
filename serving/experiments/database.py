"""Opens the ledger's database: SQLite as one file that one process owns, or PostgreSQL; and checks what is in it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DatabaseError, SQLAlchemyError

from models.errors import ExperimentError, MissingDependencyError
from serving.experiments.tables import METADATA, SCHEMA, SCHEMA_VERSION

_FORMS = "use sqlite:///FILE or postgresql://USER@HOST/DATABASE"
_BUSY_TIMEOUT_S = 10
_CONNECT_TIMEOUT_S = 10


@contextmanager
def open_database(url: str) -> Iterator[Engine]:
    """The engine of a database that holds the ledger's tables, made where there are none yet.

    Raises:
        ExperimentError: ``bad_ledger``; it cannot be reached, is in use, damaged, or written by another version.
        MissingDependencyError: PostgreSQL without its driver.
    """
    parsed = _parsed(url)
    lock = _lock(parsed) if parsed.get_backend_name() == "sqlite" else None
    engine = _engine(parsed)
    try:
        try:
            with engine.begin() as connection:
                _check(connection, _shown(parsed))
        except SQLAlchemyError as error:
            raise _refusal(_shown(parsed), _reason(error)) from error
        yield engine
    finally:
        engine.dispose()
        if lock is not None:
            lock.close()


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ExperimentError("bad_ledger", f"the ledger's address is no database URL; {_FORMS}") from None
    match parsed.get_backend_name():
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return parsed.set(database=str(Path(parsed.database).expanduser()))
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
    raise _refusal(_shown(parsed), f"cannot hold a ledger; {_FORMS}")


def _lock(url: URL) -> TextIO:
    """A lock file that this process holds until it closes it or dies: SQLite's file has one owner."""
    path = Path(f"{url.database}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w", encoding="utf-8")
    except OSError as error:
        raise _refusal(_shown(url), f"cannot be written ({error.strerror}); name another file") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        detail = "another process has it open; use one server for each file, or PostgreSQL"
        raise _refusal(_shown(url), detail) from None
    return lock


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine
    try:  # one moment's view for all queries of a transaction, as SQLite has it
        return create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=True,
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        )
    except ImportError as error:
        raise MissingDependencyError(
            "missing_dependency", "a ledger in PostgreSQL needs psycopg: pip install 'limner[postgres]'"
        ) from error


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver would begin transactions in its own way; see "begin" above
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _check(connection: Connection, shown: str) -> None:
    """Make the tables, or see that they are whole and of this version."""
    if connection.dialect.name == "sqlite":
        problem = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if problem != "ok":
            raise _refusal(shown, f"is damaged ({problem}); restore a copy or name another file")
    found = inspect(connection)
    there = {name for name in METADATA.tables if found.has_table(name)}
    if not there:
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))
        return
    version = connection.execute(select(SCHEMA.c.version)).scalar() if SCHEMA.name in there else None
    if version is not None and version != SCHEMA_VERSION:
        detail = (
            f"has tables of version {version}, this limner those of {SCHEMA_VERSION}; use the version that wrote it"
        )
        raise _refusal(shown, detail)
    lacking = [
        f"{table.name}.{column.name}"
        for table in METADATA.sorted_tables
        for column in table.columns
        if table.name not in there or column.name not in {entry["name"] for entry in found.get_columns(table.name)}
    ]
    if version is None or lacking:
        detail = f"is incomplete (lacks {', '.join(lacking) or 'a version'}); restore a copy or name another database"
        raise _refusal(shown, detail)


def _reason(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DatabaseError) else error
    return f"cannot be used: {cause}"


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _refusal(shown: str, problem: str) -> ExperimentError:
    return ExperimentError("bad_ledger", f"the ledger {shown} {' '.join(problem.split())}")
