"""API keys: whose they are, and what each client may spend. Only their digests are kept."""

import hmac
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic

from models.errors import OverloadedError, RequestError
from serving.args import KeyArgs
from serving.token_bucket import TokenBucket

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]{16,256}")  # what RFC 6750 allows; shorter ones can be guessed
_DIGEST = re.compile(r"sha256:[0-9a-fA-F]{64}")
_FORM = "'name: key', or 'name: sha256:' and the digest of the key; images per minute may follow after a space"


@dataclass(frozen=True)
class ApiClient:
    """One holder of a key. ``name`` stands for it in logs and metrics."""

    name: str
    digest: bytes
    images_per_minute: float | None = None
    """None: no limit."""


class ApiKeys:
    """Tells clients by their keys, and keeps each to its rate, in this process."""

    def __init__(self, clients: Sequence[ApiClient], clock: Callable[[], float] = monotonic) -> None:
        self._clients = tuple(clients)
        self._buckets = {
            client.name: TokenBucket(client.images_per_minute, clock)
            for client in clients
            if client.images_per_minute is not None
        }

    def name_of(self, key: str) -> str | None:
        """The name of the client whose key this is. Every key is compared, each in constant time."""
        given = sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = [client.name for client in self._clients if hmac.compare_digest(client.digest, given)]
        return found[0] if found else None

    def charge(self, name: str, images: int) -> None:
        """Count images against the rate of a client.

        Raises:
            OverloadedError: ``rate_limited``; nothing is counted then.
        """
        bucket = self._buckets.get(name)
        wait_s = bucket.spend(images) if bucket is not None else None
        if wait_s is not None:
            raise OverloadedError(
                "rate_limited",
                f"the key {name!r} has used up its images per minute; {images} more are too many",
                wait_s,
            )


def read_api_keys(args: KeyArgs, environment: Mapping[str, str] = os.environ) -> tuple[ApiClient, ...]:
    """The clients that a file and an environment variable name, at least one.

    Raises:
        RequestError: ``invalid_request`` with the place of what is wrong; never with a key.
    """
    clients: list[ApiClient] = []
    if args.file is not None:
        clients += _parse(str(args.file), _text_of(args.file), args.images_per_minute)
    if args.env is not None:
        if args.env not in environment:
            raise _refuse(f"the environment variable {args.env}", "is not set")
        clients += _parse(args.env, environment[args.env], args.images_per_minute)
    names, digests = [client.name for client in clients], [client.digest for client in clients]
    if not clients:
        raise _refuse(str(args.file or args.env), f"names no key; each line is {_FORM}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _refuse(str(args.file or args.env), f"the name {twice[0]!r} stands twice; each key needs its own")
    if len(set(digests)) < len(digests):
        raise _refuse(str(args.file or args.env), "two names have the same key")
    return tuple(clients)


def _text_of(file: Path) -> str:
    try:
        return file.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise _refuse(str(file), f"cannot be read ({why})") from None


def _parse(source: str, text: str, default_rate: float | None) -> list[ApiClient]:
    """One client per line, or between commas; blank lines and what follows ``#`` are left out."""
    clients = []
    for number, line in enumerate(text.splitlines(), start=1):
        for entry in filter(None, map(str.strip, line.partition("#")[0].split(","))):
            client = _client(entry, default_rate)
            if client is None:
                raise _refuse(
                    f"{source}, line {number}", f"is not {_FORM}; a key has 16 to 256 letters, digits or ._~+/=-"
                )
            clients.append(client)
    return clients


def _client(entry: str, default_rate: float | None) -> ApiClient | None:
    name, _, rest = entry.partition(":")
    words = rest.split()
    if not (_NAME.fullmatch(name.strip()) and 1 <= len(words) <= 2):
        return None
    if _DIGEST.fullmatch(words[0]):
        digest = bytes.fromhex(words[0].removeprefix("sha256:"))
    elif _KEY.fullmatch(words[0]):
        digest = sha256(words[0].encode()).digest()
    else:
        return None
    rate = _rate(words[1]) if len(words) == 2 else default_rate
    return None if rate is not None and math.isnan(rate) else ApiClient(name.strip(), digest, rate)


def _rate(word: str) -> float:
    """A positive number; NaN where it is none."""
    try:
        rate = float(word)
    except ValueError:
        return math.nan
    return rate if 0 < rate < math.inf else math.nan


def _refuse(where: str, problem: str) -> RequestError:
    return RequestError("invalid_request", f"API keys: {where} {problem}")
