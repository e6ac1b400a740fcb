"""Which network addresses are public: what the model may make us connect to (J116). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

# What `ipaddress` takes for public and is not, or not everywhere (IANA special-purpose registries, RFC 6890).
_NOT_PUBLIC: Final = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata service here
        "168.63.129.16/32",  # Azure's host agent, on an address that is public everywhere else
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata service
        "192.88.99.0/24",  # 6to4 relays
        "240.0.0.0/4",
    )
)
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(block)
    for block in (
        "64:ff9b:1::/48",  # NAT64 of the local network (RFC 8215)
        "100::/64",  # discard
        "2001::/23",  # protocol assignments, Teredo among them
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")  # IPv4 in IPv6 as it was first meant; deprecated


def is_public(address: Address) -> bool:
    """Whether the address is reachable from the Internet, whichever way it is written. An IPv4 address within an IPv6
    one counts as what it is: a translator on the way would take us there."""
    return all(_is_public(one) for one in _meant(address))


def literal(host: str) -> Address | None:
    """The address that a host's name itself is, where it is one."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _meant(address: Address) -> Iterator[Address]:
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)


def _is_public(address: Address) -> bool:
    if address.is_multicast or address.is_loopback or address.is_link_local or address.is_unspecified:
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in block for block in _NOT_PUBLIC)
    if address in _COMPATIBLE or any(address in block for block in _NOT_PUBLIC_6):
        return False
    return address.is_global
