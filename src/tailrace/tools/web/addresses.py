"""Which network addresses are public: what the model may make us connect to (J116). Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

# The special-purpose registries of IANA (RFC 6890), written out: what the standard library's `is_global` says of a
# block differs between versions of Python, and this must not.
_NOT_PUBLIC: Final = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata service here
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host agent, on an address that is public everywhere else
        "169.254.0.0/16",  # link-local; the metadata service of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata service
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # all that IANA has given out
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether the address is reachable from the Internet, whichever way it is written. An IPv4 address within an IPv6
    one counts as what it is: a translator on the way would take us there."""
    return _is_public(_meant(address))


def literal(host: str) -> Address | None:
    """The address that a host's name itself is, where it is one."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _meant(address: Address) -> Address:
    """The IPv4 address within an IPv6 one (mapped, 6to4, NAT64), or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if (embedded := address.ipv4_mapped or address.sixtofour) is not None:
        return embedded
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC)
    return address in _GLOBAL_UNICAST and not any(address in block for block in _NOT_PUBLIC_6)
