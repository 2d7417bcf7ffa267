"""Keys: how they are written down, whose they are, what their holders may spend."""

from hashlib import sha256
from pathlib import Path

import pytest

from models.errors import OverloadedError, RequestError
from serving.api_keys import ApiClient, ApiKeys, read_api_keys
from serving.args import KeyArgs

ALICE, BOB = "alice-0123456789ABCDEF", "bob~0123456789/+=._-"


def digest(key: str) -> bytes:
    return sha256(key.encode()).digest()


def read(text: str, **args: float) -> tuple[ApiClient, ...]:
    return read_api_keys(KeyArgs(env="KEYS", **args), {"KEYS": text})  # type: ignore[arg-type]


def test_a_line_for_each_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who may ask\n\nalice: {ALICE}   # a person\n bob : sha256:{digest(BOB).hex().upper()} 90.5\r\n")
    assert read_api_keys(KeyArgs(file=file)) == (
        ApiClient("alice", digest(ALICE)),
        ApiClient("bob", digest(BOB), 90.5),
    )


def test_a_variable_may_hold_them_in_one_line_and_both_sources_add_up(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"carol: {'c' * 16}")
    args = KeyArgs(file=file, env="KEYS", images_per_minute=5)
    found = read_api_keys(args, {"KEYS": f"alice:{ALICE},bob:{BOB} 7"})
    assert [(client.name, client.images_per_minute) for client in found] == [("carol", 5), ("alice", 5), ("bob", 7)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no key"),
        ("# nothing\n", "names no key"),
        (f"alice: {ALICE}\nbob", "line 2 is not 'name: key'"),
        ("alice: short", "16 to 256"),
        (f"two words: {ALICE}", "line 1 is not"),
        (f"alice: {ALICE} fast", "line 1 is not"),
        (f"alice: {ALICE} nan", "line 1 is not"),
        (f"alice: {ALICE} inf", "line 1 is not"),
        (f"alice: {ALICE} 0", "line 1 is not"),
        (f"alice: {ALICE} 1 2", "line 1 is not"),
        ("alice: sha256:abc", "line 1 is not"),
        (f"ali\u0107e: {ALICE}", "line 1 is not"),
        (f"alice: {ALICE}\nalice: {BOB}", "the name 'alice' stands twice"),
        (f"alice: {ALICE}\nbob: sha256:{digest(ALICE).hex()}", "two names have the same key"),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_a_key(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        read(text)
    assert ALICE not in str(caught.value) and "short" not in str(caught.value)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="missing cannot be read"):
        read_api_keys(KeyArgs(file=tmp_path / "missing"))
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="not UTF-8"):
        read_api_keys(KeyArgs(file=tmp_path / "latin"))
    with pytest.raises(RequestError, match="variable KEYS is not set"):
        read_api_keys(KeyArgs(env="KEYS"), {})
    with pytest.raises(ValueError, match="give file or env"):
        KeyArgs()


def test_names_are_found_by_whole_keys() -> None:
    keys = ApiKeys(read(f"alice: {ALICE}\nbob: {BOB}"))
    assert (keys.name_of(ALICE), keys.name_of(BOB)) == ("alice", "bob")
    for other in ("", ALICE[:-1], ALICE + "x", ALICE.lower(), f"sha256:{digest(ALICE).hex()}", "\udcff", "\u20ac"):
        assert keys.name_of(other) is None


def test_each_client_has_a_rate_of_its_own() -> None:
    keys = ApiKeys(read(f"alice: {ALICE} 2\nbob: {BOB} 2\ncarol: {'c' * 16}"), clock=lambda: 0.0)
    keys.charge("alice", 2)
    with pytest.raises(OverloadedError) as caught:
        keys.charge("alice", 1)
    assert (caught.value.code, caught.value.retry_after_s) == ("rate_limited", 30)
    keys.charge("bob", 2)
    for _ in range(100):
        keys.charge("carol", 32)
