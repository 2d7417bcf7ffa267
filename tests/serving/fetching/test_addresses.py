"""Which addresses may be dialed."""

from ipaddress import ip_address

import pytest

from serving.fetching.addresses import is_private, is_public

PUBLIC = ["1.1.1.1", "93.184.215.14", "172.32.0.1", "192.0.3.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1"]
PUBLIC_INSIDE = ["::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
HIDDEN = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
    *("192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1"),
    *("255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::127.0.0.1", "::1.1.1.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *("::ffff:0:127.0.0.1", "::ffff:0:1.1.1.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1.1.1.1", "100::1"),
    *("2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:20::1", "2001:db8::1"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::", "2002:101:101::", "3fff::1", "5f00::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "2606:4700::1111%eth0"),
]


@pytest.mark.parametrize("text", PUBLIC + PUBLIC_INSIDE)
def test_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", HIDDEN)
def test_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["10.1.2.3", "172.31.0.1", "192.168.1.7", "100.64.0.1", "fd12:3456::1"])
def test_private(text: str) -> None:
    assert is_private(ip_address(text))
    assert not is_public(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "0.0.0.0", "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1", "1.1.1.1"),
        *("::1", "fe80::1", "fd00:ec2::254", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "2606:4700::1111"),
    ],
)
def test_not_private(text: str) -> None:
    assert not is_private(ip_address(text))


def test_never_less_strict_than_python() -> None:
    for first in range(256):
        for rest in ("0.0.0", "0.0.1", "64.0.1", "88.99.1", "254.0.1", "255.255.255"):
            address = ip_address(f"{first}.{rest}")
            assert address.is_global and not address.is_multicast or not is_public(address)
