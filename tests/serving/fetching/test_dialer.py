"""Names are resolved once and only checked addresses are dialed."""

import asyncio
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import httpcore
import pytest

from models.errors import ImageError
from serving.fetching import dialer
from serving.fetching.addresses import IPAddress, is_public
from serving.fetching.dialer import CheckedDialer, SystemResolver
from tests.serving.fetching.support import Names, NoDial


def public(_host: str, address: IPAddress) -> bool:
    return is_public(address)


class Dialed:
    """Connects to nothing, except that it says so; addresses in ``dead`` do not answer."""

    def __init__(self, *dead: str) -> None:
        self.dead = dead
        self.dialed: list[str] = []
        self.stream = httpcore.AsyncMockStream([])

    async def __call__(self, address: IPAddress, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
        self.dialed.append(str(address))
        if str(address) in self.dead:
            raise httpcore.ConnectTimeout
        return self.stream


def connect(names: Names, dial: Any, host: str = "a.test") -> Any:
    return asyncio.run(CheckedDialer(names, dial, public).connect_tcp(host, 80))


def test_the_first_that_answers_is_dialed() -> None:
    dial = Dialed("1.0.0.1", "2606:4700::1")
    assert connect(Names(a_test="1.0.0.1 2606:4700::1 1.0.0.2 1.0.0.3"), dial) is dial.stream
    assert dial.dialed == ["1.0.0.1", "2606:4700::1", "1.0.0.2"]


def test_a_host_of_which_none_answers() -> None:
    dial = Dialed(*(f"1.0.0.{n}" for n in range(9)))
    with pytest.raises(httpcore.ConnectTimeout):
        connect(Names(a_test=" ".join(dial.dead)), dial)
    assert len(dial.dialed) == 4


@pytest.mark.parametrize("answer", ["10.0.0.1", "1.0.0.1 10.0.0.1", "10.0.0.1 1.0.0.1", "1.0.0.1 fe80::1%eth0", "::1"])
def test_one_bad_address_refuses_the_host(answer: str) -> None:
    dial = NoDial()
    with pytest.raises(ImageError, match="'a.test' is not on the public internet") as caught:
        connect(Names(a_test=answer), dial)
    assert caught.value.code == "url_refused"
    assert "10.0" not in caught.value.detail and "::" not in caught.value.detail
    assert dial.dialed == []


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ImageError, match="^url_failed: the host 'a.test' has no address"):
        connect(Names(), NoDial())
    with pytest.raises(ImageError, match="has no address"):
        connect(Names(a_test=""), NoDial())


def test_the_system_resolver_knows_every_spelling_of_an_address() -> None:
    """As ``getaddrinfo`` has it, which is what would be dialed; none of these asks a name server."""
    spellings = ("127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "::1", "::ffff:127.0.0.1", "localhost")

    async def found() -> list[Sequence[IPAddress]]:
        resolve = SystemResolver(threads=2)
        return [await resolve(spelling) for spelling in spellings]

    for spelling, addresses in zip(spellings, asyncio.run(found()), strict=True):
        assert addresses, spelling
        assert not any(map(is_public, addresses)), spelling


@pytest.mark.parametrize("host", ["a..test", "a" * 64 + ".test", "\x00", "." * 300])
def test_what_cannot_be_a_name(host: str) -> None:
    with pytest.raises(ImageError, match="has no address"):
        connect(SystemResolver(threads=1), NoDial(), host)  # type: ignore[arg-type]


def test_a_lookup_that_hangs_holds_up_only_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    addresses = [ip_address("1.0.0.1")]

    def look_up(host: str) -> list[IPAddress]:
        assert host != "slow.test" or go.wait(20)
        return addresses

    monkeypatch.setattr(dialer, "_look_up", look_up)

    async def scenario() -> None:
        resolve = SystemResolver(threads=2)
        slow = asyncio.ensure_future(resolve("slow.test"))
        assert list(await resolve("fast.test")) == addresses
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await slow
        assert list(await resolve("fast.test")) == addresses
        assert await asyncio.to_thread(lambda: 1) == 1
        go.set()

    asyncio.run(scenario())


def test_closing_closes_what_was_dialed() -> None:
    class Stream(httpcore.AsyncMockStream):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    dial = Dialed()
    dial.stream = Stream([])

    async def scenario() -> None:
        one = CheckedDialer(Names(a_test="1.0.0.1"), dial, public)
        await one.connect_tcp("a.test", 80)
        await one.aclose()

    asyncio.run(scenario())
    assert dial.stream.closed
