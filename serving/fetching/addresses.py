"""Which IP addresses may be dialed for a client: global ones, or private ones of named hosts."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_UNICAST = IPv6Network("2000::/3")  # all that was ever handed out; the rest is local, reserved or multicast
_NAT64 = IPv6Network("64:ff9b::/96")

# Written down because what Python calls global differs between its versions (RFC 6890's registries, read anew).
_SPECIAL: tuple[IPNetwork, ...] = (
    *map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # global by its number, but inside Azure it is the host's own service
        ),
    ),
    *map(
        IPv6Network,
        (
            "2001::/23",  # Teredo, ORCHID, benchmarks, anycast of protocols
            "2001:db8::/32",
            "2002::/16",  # 6to4: an IPv4 address in another coat
            "3fff::/20",
        ),
    ),
)

_PRIVATE: tuple[IPNetwork, ...] = (
    *map(IPv4Network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")),
    IPv6Network("fc00::/7"),
)
_CLOUD_METADATA = frozenset({IPv4Address("100.100.100.200"), IPv6Address("fd00:ec2::254")})  # keys are to be had there


def is_private(address: IPAddress) -> bool:
    """Whether ``address`` may belong to another machine of a private network: neither this machine nor its link, nor
    where a cloud tells its machines their secrets."""
    return any(address in network for network in _PRIVATE) and address not in _CLOUD_METADATA


def is_public(address: IPAddress) -> bool:
    """Whether anybody on the internet could reach ``address`` as well. An IPv4 address inside an IPv6 one (mapped, or
    of NAT64's well-known prefix) is judged by itself; one in 6to4 or Teredo form is refused."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address.scope_id is not None or address not in _UNICAST:
            return False
    return address.is_global and not any(address in network for network in _SPECIAL)
