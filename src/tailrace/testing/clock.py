"""An event loop over real sockets whose clock is driven: a deadline of 900 s passes in no time at all.

Owns when the clock may move. It stands still while code runs. When nothing is runnable and no I/O is ready it
jumps to the next timer, unless something can still happen without that timer firing:

- *due*: bytes, an end of stream or a connection are under way between two sockets of this loop. The kernel owes
  us an event, so the loop waits for it in real time and the clock stands still.
- *unsure*: a connection is being made, a writer is blocked, a thread that this loop did not start is alive. The
  loop gives them a moment of real time before it jumps.
- *outside*: a thread of an executor, a subprocess, a peer in another process. The loop cannot know when they
  answer, so until they have, the clock runs with the real one.

Nothing that runs on the loop has to know of it; it must never know what runs on it.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

T = TypeVar("T")
P = ParamSpec("P")

DUE_S = 1.0  # real time an event that must come is waited for; past it the books are wrong, and time goes on
UNSURE_S = 0.02  # real time given to what may still cause an event
DEADLOCK_S = 1.0  # real time without any event or timer after which the loop gives up
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - read from a listener, never bound here
EPOCH_S = 1000.0  # where the driven clock starts: not 0, so that a time of 0 shows up as a mistake


class Deadlock(RuntimeError):
    """Every task waits, and nothing that this loop knows of could wake one."""


Address = tuple[str, int]
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def _address(name: tuple[Any, ...]) -> Address:
    """Host and port; an IPv4 peer of a dual-stack listener as it knows itself."""
    return str(name[0]).removeprefix("::ffff:"), int(name[1])


class _CountedSocket(socket.socket):
    """A connected TCP socket that keeps count, so that both ends together tell what is still in the kernel."""

    sent = 0
    received = 0
    ended = False  # we will send no more: shut down or closed
    saw_end = False  # the peer's end, or a reset, was read
    peer: _CountedSocket | None = None
    remote: Address = ("", 0)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        count = super().send(data, flags)
        self.sent += count
        return count

    def sendmsg(self, *args: Any) -> int:
        count = super().sendmsg(*args)
        self.sent += count
        return count

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        with self._reading():
            data = super().recv(bufsize, flags)
        self._took(len(data))
        return data

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        with self._reading():
            count = super().recv_into(buffer, nbytes, flags)
        self._took(count)
        return count

    def shutdown(self, how: int, /) -> None:
        super().shutdown(how)
        self.ended = self.ended or how in (socket.SHUT_WR, socket.SHUT_RDWR)

    def close(self) -> None:
        self.ended = True
        super().close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (BlockingIOError, InterruptedError):
            raise
        except OSError:
            self.saw_end = True
            raise

    def _took(self, count: int) -> None:
        self.received += count
        self.saw_end = self.saw_end or count == 0


class _Traffic:
    """The books of one loop: its connected sockets in pairs, its listeners, and who else is at work."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[Address, Address], _CountedSocket] = {}
        self._listeners: set[socket.socket] = set()
        self.connecting = 0

    def count(self, plain: socket.socket) -> socket.socket:
        """The same connection as a socket that counts. Only TCP can have bytes under way: a Unix socket's are with
        the receiver by the time `send` returns."""
        if plain.family not in _INTERNET or plain.type != socket.SOCK_STREAM:
            return plain
        try:
            local, remote = _address(plain.getsockname()), _address(plain.getpeername())
        except OSError:  # reset before we looked: nothing more will come
            return plain
        counted = _CountedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        counted.setblocking(False)
        counted.remote = remote
        peer = self._sockets.get((remote, local))
        if peer is not None and peer.peer is None:
            counted.peer, peer.peer = peer, counted
        self._sockets[local, remote] = counted
        return counted

    def listen(self, listener: socket.socket) -> None:
        if listener.family in _INTERNET:
            self._listeners.add(listener)

    def unlisten(self, listener: socket.socket) -> None:
        self._listeners.discard(listener)

    def open_sockets(self) -> list[_CountedSocket]:
        for key in [key for key, counted in self._sockets.items() if counted.fileno() < 0]:
            del self._sockets[key]
        return list(self._sockets.values())

    def listens_on(self, remote: Address) -> bool:
        names = [_address(listener.getsockname()) for listener in self._listeners if listener.fileno() >= 0]
        return any(port == remote[1] and host in (remote[0], *WILDCARDS) for host, port in names)


def _is_due(counted: _CountedSocket, *, reads: bool, writes: bool) -> bool:
    """The kernel owes this socket an event: unread bytes, an unread end, or room that its peer just made."""
    peer = counted.peer
    if peer is None:
        return False
    if reads and not counted.saw_end and (peer.ended or peer.sent > counted.received):
        return True
    return writes and (peer.fileno() < 0 or counted.sent == peer.received)


class _DrivenSelector(selectors.DefaultSelector):
    """Decides, at the one place where an event loop waits, whether to wait or to move the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = EPOCH_S
        self.traffic = _Traffic()
        self.outside: Callable[[], bool] = lambda: False
        self.unsure: Callable[[], bool] = lambda: False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.outside():
            return self._wait_with_the_real_clock(timeout)
        due, unsure = self._expected()
        grace_s = DUE_S if due else UNSURE_S if unsure else 0.0
        if grace_s and (ready := super().select(grace_s)):
            return ready
        if timeout is None:
            return self._wait_for_anything()
        self.now += timeout
        return []

    def _wait_with_the_real_clock(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        ready = super().select(timeout)
        waited_s = time.monotonic() - began
        self.now += waited_s if ready or timeout is None else max(waited_s, timeout)
        return ready

    def _wait_for_anything(self) -> list[tuple[selectors.SelectorKey, int]]:
        if ready := super().select(None if self.unsure() else DEADLOCK_S):
            return ready
        raise Deadlock("every task waits, with no timer, no I/O under way and nothing outside to wait for")

    def _expected(self) -> tuple[bool, bool]:
        """Whether an event must come, and whether one may."""
        interest = {key.fd: key.events for key in self.get_map().values()}
        due, unsure = False, self.traffic.connecting > 0 or self.unsure()
        for counted in self.traffic.open_sockets():
            events = interest.get(counted.fileno(), 0)
            writes = bool(events & selectors.EVENT_WRITE)
            due = due or _is_due(counted, reads=bool(events & selectors.EVENT_READ), writes=writes)
            due = due or (counted.peer is None and not counted.saw_end)  # waits to be accepted by a listener of ours
            unsure = unsure or writes
        return due, unsure


class DrivenLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock jumps to the next timer as soon as nothing else can happen.

    Sockets are real and so are threads and subprocesses; only waiting for time takes none. Its limits: both ends
    of a TCP connection must be transports or streams of this loop to count as inside, as they are with asyncio,
    aiohttp, httpx on asyncio and the official SDKs' async clients; otherwise the clock runs with the real one while
    the connection is open. A thread of your own that will call back belongs in `with loop.outside():`.
    """

    _selector_class = _DrivenSelector

    def __init__(self) -> None:
        self._driven = self._selector_class()
        super().__init__(self._driven)
        self._driven.outside = self._is_outside_at_work
        self._driven.unsure = lambda: any(thread not in self._known_threads for thread in threading.enumerate())
        self._held = 0  # blocks of `outside()` that are open, and executor calls under way
        self._children: weakref.WeakSet[asyncio.SubprocessTransport] = weakref.WeakSet()
        self._known_threads = weakref.WeakSet(threading.enumerate())  # bystanders, and the executors' own

    def time(self) -> float:
        return self._driven.now

    @contextmanager
    def outside(self) -> Iterator[None]:
        """While open the clock runs with the real one: for work whose end this loop cannot see coming."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        in_thread = executor is None or isinstance(executor, ThreadPoolExecutor)  # else it must survive pickling
        work = functools.partial(self._work, func) if in_thread else func
        future = super().run_in_executor(executor, work, *args)
        self._held += 1
        future.add_done_callback(self._release)
        return future

    def _work(self, func: Callable[..., T], *args: Any) -> T:
        """In the executor's thread, which is known from then on: it is at work only while a call is under way."""
        self._known_threads.add(threading.current_thread())
        return func(*args)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self._driven.traffic.connecting += 1
        try:
            await super().sock_connect(sock, address)
        finally:
            self._driven.traffic.connecting -= 1

    def _release(self, _future: object) -> None:
        self._held -= 1

    def _is_outside_at_work(self) -> bool:
        if self._held or any(child.get_returncode() is None for child in self._children):
            return True
        traffic = self._driven.traffic
        return any(
            counted.peer is None and not counted.saw_end and not traffic.listens_on(counted.remote)
            for counted in traffic.open_sockets()
        )

    # asyncio's own seams: each is where one kind of transport is made, and none is public

    def _make_socket_transport(self, sock: socket.socket, *args: Any, **kwargs: Any) -> asyncio.Transport:
        counted = self._driven.traffic.count(sock)
        made: asyncio.Transport = super()._make_socket_transport(counted, *args, **kwargs)  # type: ignore[misc]
        return made

    def _make_ssl_transport(self, rawsock: socket.socket, *args: Any, **kwargs: Any) -> asyncio.Transport:
        counted = self._driven.traffic.count(rawsock)
        made: asyncio.Transport = super()._make_ssl_transport(counted, *args, **kwargs)  # type: ignore[misc]
        return made

    async def _make_subprocess_transport(self, *args: Any, **kwargs: Any) -> asyncio.SubprocessTransport:
        with self.outside():  # the child runs before its transport is ours to ask
            child: asyncio.SubprocessTransport = await super()._make_subprocess_transport(*args, **kwargs)  # type: ignore[misc]
        self._children.add(child)
        return child

    def _start_serving(self, protocol_factory: Any, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        self._driven.traffic.listen(sock)
        super()._start_serving(protocol_factory, sock, *args, **kwargs)  # type: ignore[misc]

    def _stop_serving(self, sock: socket.socket) -> None:
        self._driven.traffic.unlisten(sock)
        super()._stop_serving(sock)  # type: ignore[misc]

    async def _sock_sendfile_native(self, *_args: Any) -> int:
        raise asyncio.SendfileNotAvailableError("bytes that bypass the socket cannot be counted")


def run_driven(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a `DrivenLoop`."""
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        return runner.run(main)


def driven(test: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """Makes an async test a plain one that runs on a `DrivenLoop` of its own.

    Fixtures arrive as usual, but async fixtures belong to another loop: open what is async inside the test.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        async def main() -> T:
            return await test(*args, **kwargs)

        return run_driven(main())

    return run
