"""Where a server listens: at an address of its own, or at one whose sockets several processes share.

Sockets that are shared belong to the parent of the processes: a connection that waits for a worker outlives it, and
any other worker may take it. Each worker accepts one connection a turn of its loop: accepting all that wait gives most
of a burst to one worker (670 of 800 connections to one of two). SO_REUSEPORT would leave some to a worker that hangs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

log = logging.getLogger("tailrace.server")
BACKLOG: Final = 1024
PAUSE_S: Final = 1.0  # without file descriptors or memory for one more connection
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_SUCH_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
Connect = Callable[[], asyncio.Protocol]


class Listening(Protocol):
    """What listens. `asyncio.Server` is one."""

    @property
    def sockets(self) -> Sequence[socket.socket | TransportSocket]: ...

    def close(self) -> None:
        """Accepts no more connections; those that there are stay open."""


class Address:
    """A host and a port. The port 0 is any free one."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def url(self, port: int) -> str:
        """As it is shown, with the port that was bound."""
        shown = self.host or "0.0.0.0"  # noqa: S104 - only shown
        return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    async def listen(self, connect: Connect) -> Listening:
        """Raises `ConfigError` where the address cannot be bound."""
        try:
            return await asyncio.get_running_loop().create_server(
                connect, self.host or None, self.port, backlog=BACKLOG
            )
        except (OSError, UnicodeError) as exc:
            raise self._refused(exc) from exc

    def _refused(self, exc: OSError | UnicodeError) -> ConfigError:
        if isinstance(exc, UnicodeError):
            return ConfigError(f"{self.host!r} is no name of a host", key="server.host")
        if "/" in self.host:
            return ConfigError(f"{self.host} is no address; the server listens on TCP alone", key="server.host")
        key, reason = _reason(exc)
        return ConfigError(f"cannot listen on {self.host}:{self.port}: {reason}", key=key)

    def share(self, workers: int) -> SharedAddress:
        """Binds the address now, for so many processes. Raises `ConfigError` where it cannot be bound."""
        sockets: list[socket.socket] = []
        missing: OSError | None = None
        try:
            found = socket.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, name in dict.fromkeys(found):
                try:
                    sockets.append(_bound(family, name))
                except OSError as exc:
                    if exc.errno not in _NO_SUCH_FAMILY:
                        raise
                    missing = exc  # a name may have an address of IPv6 where the machine has none
            if missing is not None and not sockets:
                raise missing
        except (OSError, UnicodeError) as exc:
            for listener in sockets:
                listener.close()
            raise self._refused(exc) from exc
        return SharedAddress(self, sockets, workers)


def _reason(exc: OSError) -> tuple[str, str]:
    """The setting that is at fault, and why. The event loop's own message repeats the address."""
    if exc.errno == errno.EADDRINUSE:
        return "server.port", "another program uses it; choose another with --port"
    if exc.errno == errno.EACCES:
        return "server.port", "this user may not use it; choose one above 1023 with --port"
    if exc.errno == errno.EADDRNOTAVAIL:
        return "server.host", "this machine has no such address"
    if isinstance(exc, socket.gaierror):
        return "server.host", f"no address is known for this name ({exc.strerror})"
    return "server.port", exc.strerror or str(exc)


def _bound(family: int, name: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(name)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class SharedAddress:
    """Sockets that are bound already and that `workers` processes accept from."""

    def __init__(self, address: Address, sockets: Sequence[socket.socket], workers: int) -> None:
        self._address = address
        self._sockets = sockets
        self._accepting: _Accepting | None = None
        self.workers = workers

    def url(self, port: int | None = None) -> str:
        return self._address.url(port if port is not None else self._sockets[0].getsockname()[1])

    async def listen(self, connect: Connect) -> Listening:
        self._accepting = _Accepting(self._sockets, connect)
        return self._accepting

    def leave_to_others(self) -> None:
        """From now on the other processes accept every new connection."""
        if self._accepting is not None:
            self._accepting.close()


class _Accepting:
    """Accepts one connection a turn from each socket, so that other processes have their share of a burst."""

    def __init__(self, sockets: Sequence[socket.socket], connect: Connect) -> None:
        self.sockets = sockets
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._closed = False
        for listener in sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # another process was first, or the client has gone again
        except OSError as exc:
            if exc.errno not in _NO_ROOM:
                raise
            log.warning("no connection is accepted for %g s: %s", PAUSE_S, exc.strerror)
            self._loop.remove_reader(listener)
            self._loop.call_later(PAUSE_S, self._accept_again, listener)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a token is not held back for the next one
        opening = self._loop.create_task(self._open(connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connect, connection)
        except OSError:
            connection.close()  # the client has gone

    def _accept_again(self, listener: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        self._closed = True
        for listener in self.sockets:
            self._loop.remove_reader(listener)
