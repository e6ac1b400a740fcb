"""Where a server listens: names with several addresses, and names that are none."""

from __future__ import annotations

import asyncio
import errno
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
    with pytest.raises(ConfigError) as refused:
        Address("elsewhere.example", 80).share(2)
    assert str(refused.value) == "server.host: cannot listen on elsewhere.example:80: this machine has no such address"


NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_RIGHT = OSError(errno.EACCES, "error while attempting to bind on address ('127.0.0.1', 80): permission denied")
WHY = {
    "x.invalid": "host: cannot listen on x.invalid:80: no address is known for this name (Name or service not known)",
    "unix:/run/x": "host: unix:/run/x is no address; the server listens on TCP alone",
    "127.0.0.1": "port: cannot listen on 127.0.0.1:80: this user may not use it; choose one above 1023 with --port",
}


@pytest.mark.parametrize(("host", "found"), [("x.invalid", NO_NAME), ("unix:/run/x", NO_NAME), ("127.0.0.1", NO_RIGHT)])
async def test_why_an_address_cannot_be_bound_is_said_in_words(
    host: str, found: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_server(*_: object, **__: object) -> None:
        raise found

    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", create_server)
    with pytest.raises(ConfigError) as refused:
        await Address(host, 80).listen(asyncio.Protocol)
    assert str(refused.value) == f"server.{WHY[host]}"


async def test_what_is_no_name_is_said_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"server\.host: 'x\.\.y' is no name of a host"):
        Address("x..y", 0).share(2)
    with pytest.raises(ConfigError, match=r"server\.host: 'x\.\.y' is no name of a host"):
        await Address("x..y", 0).listen(asyncio.Protocol)
