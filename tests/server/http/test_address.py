"""Where a server listens: names with several addresses, and names that are none."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tailrace.errors import ConfigError
from tailrace.server.http.address import Address

HERE = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
NOT_HERE = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))


def resolve(monkeypatch: pytest.MonkeyPatch, *found: tuple[Any, ...]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: list(found))


def test_an_address_that_the_machine_has_not_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without IPv6 whose hosts file names ::1 for localhost."""
    resolve(monkeypatch, NOT_HERE, HERE)
    shared = Address("localhost", 0).share(2)
    [listener] = shared._sockets
    assert listener.family == socket.AF_INET
    assert shared.url() == f"http://localhost:{listener.getsockname()[1]}"
    listener.close()


def test_a_name_that_has_no_address_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NOT_HERE)
    with pytest.raises(ConfigError, match=r"cannot listen on elsewhere\.example:80: "):
        Address("elsewhere.example", 80).share(2)


async def test_what_is_no_name_is_said_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"server\.host: 'x\.\.y' is no name of a host"):
        Address("x..y", 0).share(2)
    with pytest.raises(ConfigError, match=r"server\.host: 'x\.\.y' is no name of a host"):
        await Address("x..y", 0).listen(asyncio.Protocol)
