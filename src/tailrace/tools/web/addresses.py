"""Which network addresses are public: what the model may make us connect to (J116). Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Final

import msgspec

Address = IPv4Address | IPv6Address

_BLOCKS: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, list[str]])
_NOT_PUBLIC: Final = tuple(map(IPv4Network, _BLOCKS["ipv4"]))
_NOT_PUBLIC_6: Final = tuple(map(IPv6Network, _BLOCKS["ipv6"]))
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # all that IANA has given out
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
