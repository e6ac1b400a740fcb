"""Which addresses count as public (J116), whichever way they are written."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.tools.web.addresses import is_public, literal

NOT_PUBLIC = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254"),
    *("169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1"),
    *("192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16"),
    *("::", "::1", "::127.0.0.1", "::8.8.8.8", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1"),
    *("ff02::1", "ff0e::1", "2001:db8::1", "2001::1", "2001:20::1", "100::1", "3fff::1", "5f00::1", "64:ff9b:1::1"),
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:0:0"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    *("2002:c0a8:101::1", "::ffff:168.63.129.16", "64:ff9b::168.63.129.16"),
    *("200::1", "1000::1", "4000::1", "e000::1", "2001:1ff::1", "3fff:fff::1", "192.0.0.9", "192.0.0.170"),
]
PUBLIC = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.1.1",
        "100.63.0.1",
        "223.255.0.1",
    ),
    *("2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
    *("2001:200::1", "2002:808:808:ffff::1", "2620:4f:8000::1", "3ffe::1", "192.31.196.1"),
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_J116_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_J116_an_address_within_an_address_is_what_it_is(address: IPv4Address) -> None:
    for written in (
        f"::ffff:{address}",
        f"64:ff9b::{address}",
        f"2002:{int(address) >> 16:x}:{int(address) & 0xFFFF:x}::",
    ):
        assert is_public(ip_address(written)) == is_public(address)


def test_what_is_an_address_itself() -> None:
    assert literal("127.0.0.1") == ip_address("127.0.0.1")
    assert literal("[::1]") == literal("::1") == ip_address("::1")
    for name in ("localhost", "127.1", "0177.0.0.1", "2130706433", "0x7f.1", "1.2.3.4.example", ""):
        assert literal(name) is None  # the resolver says what these mean, and its word is checked
