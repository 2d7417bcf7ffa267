"""limner's own log: JSON, one object a line, whatever is in it."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from serving.args import LogArgs

_OURS = ("serving", "models", "opentelemetry")  # which tells when a receiver of traces does not answer
_MOST_BYTES = 64 << 20
_KEPT_FILES = 4

access_logger = logging.getLogger("serving.access")
"""A line for every request; ``access_fields`` is its ``extra``."""


def access_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The ``extra`` of a record whose line has these fields; None is left out."""
    return {"fields": {name: value for name, value in fields.items() if value is not None}}


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", the fields of the record, "exception"}``. Escapes keep a record on its
    line, whatever a client wrote."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII: a lone surrogate cannot break it, nor U+2028 a reader


def start_logging(args: LogArgs, process: str) -> None:
    """Send what limner logs in this process to its file in ``args.folder``, or to the standard error. Ray replaces
    ``sys.stderr`` in its workers and may drop what is written there, so it is the process's own that is meant."""
    handler: logging.Handler = logging.StreamHandler(sys.__stderr__)
    if args.folder is not None:
        folder = args.folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        file = Path(folder, f"limner_{process}.jsonl")
        handler = RotatingFileHandler(file, maxBytes=_MOST_BYTES, backupCount=_KEPT_FILES, encoding="utf-8", delay=True)
    handler.setFormatter(JsonLines())
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    access_logger.disabled = not args.access
