"""A parent process that starts worker processes, replaces those that die, and ends all of them together.

Owns the processes and knows nothing of their work: `work` is called in each of them, after a fork. The parent runs no
event loop and starts no thread, so a fork is a clean copy at any time. Parent and worker are joined by a socket pair,
whose ends the kernel closes with their process: a worker whose parent is gone stops as if it had been told to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

log = logging.getLogger("tailrace.workers")
READY, DRAIN, QUIT = b"r", b"d", b"q"
STEADY_S: Final = 10.0  # a worker that has lived so long starts the pauses over
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
MAX_FAILED_STARTS: Final = 5  # in a row, while no worker serves
QUIT_S: Final = 5.0  # for workers to end at once; then they are killed
FAILED, INTERRUPTED = 1, 130
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP)


def usable_cores(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The processors that this process may use: its affinity, and a container's limit on processor time."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = quota_file.read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, round(int(quota) / int(period)))
    return max(1, cores)


class ParentLink:
    """A worker's connection to its parent. `index` counts the workers from 1; a replacement has the same one."""

    def __init__(self, index: int, connection: socket.socket) -> None:
        self.index = index
        self.told_to_stop = False  # with all other workers: the parent has said so, or is gone
        self._connection = connection

    def ready(self) -> None:
        """Tells the parent that this worker serves."""
        with suppress(OSError):  # the parent is gone: `listen` says so
            self._connection.send(READY)

    def listen(self, on_drain: Callable[[], object], on_quit: Callable[[], object]) -> None:
        """Calls `on_drain` when the parent asks the worker to stop or is gone, `on_quit` when it must end at once."""
        loop = asyncio.get_running_loop()
        self._connection.setblocking(False)

        def on_readable() -> None:
            try:
                told = self._connection.recv(16)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                told = b""
            if not told:
                loop.remove_reader(self._connection)
            self.told_to_stop = True
            on_drain()
            if QUIT in told:
                on_quit()

        loop.add_reader(self._connection, on_readable)


class _Slot:
    """The place of one worker: the process that fills it now, if any, and when the next one is due."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid = 0
        self.connection: socket.socket | None = None
        self.ready = False
        self.started_at = 0.0
        self.due_at: float | None = None
        self.short_lives = 0  # in a row

    def tell(self, command: bytes) -> None:
        if self.connection is not None:
            with suppress(OSError):  # it is dead, which its exit status says
                self.connection.send(command)


class WorkerProcesses:
    """`count` processes that each do `work`, which returns an exit code. `on_first_ready` is called once, in the
    parent, when the first worker serves; `on_death` whenever one has died, with its index. `grace_s` is how long
    workers have to end when they are told to stop."""

    def __init__(
        self,
        count: int,
        work: Callable[[ParentLink], int],
        *,
        grace_s: float,
        on_first_ready: Callable[[], None] = lambda: None,
        on_death: Callable[[int], None] = lambda _index: None,
    ) -> None:
        self._work = work
        self._grace_s = grace_s
        self._on_first_ready = on_first_ready
        self._on_death = on_death
        self._slots = [_Slot(index) for index in range(1, count + 1)]
        self._selector = selectors.DefaultSelector()
        self._serving = False  # a worker has been ready
        self._failed_starts = 0  # in a row
        self._asked_to_stop = 0  # times; a signal handler counts them
        self._stops_done = 0
        self._stop_by: float | None = None
        self._unclean = False
        self._code: int | None = None

    def run(self) -> int:
        """0 after an orderly stop, 130 where a second signal cut it short, 1 where no worker could be started. The
        first worker is started alone: what keeps all of them from starting is said once."""
        with _wakeups(self._on_signal) as wakeup:
            self._selector.register(wakeup, selectors.EVENT_READ)
            self._wakeup = wakeup
            self._start(self._slots[0])
            try:
                while self._code is None:
                    self._turn()
            finally:
                self._kill_all()
                self._selector.close()
        return self._code

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:  # the workers read their config again; one that starts reads it anyway
            for slot in self._slots:
                if slot.ready:
                    os.kill(slot.pid, signal.SIGHUP)
        elif number != signal.SIGCHLD:
            self._asked_to_stop += 1

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout_s()):
            if isinstance(key.data, _Slot):
                self._hear(key.data)
            else:
                with suppress(BlockingIOError):
                    self._wakeup.recv(4096)
        while self._stops_done < self._asked_to_stop:  # before the dead are counted: these end because they were told
            self._stops_done += 1
            self._stop()
        self._reap()
        now = time.monotonic()
        if self._stop_by is not None:
            self._finish_stop(now)
            return
        for slot in self._slots:
            if slot.due_at is not None and slot.due_at <= now:
                self._start(slot)

    def _timeout_s(self) -> float | None:
        due = [slot.due_at for slot in self._slots if slot.due_at is not None]
        if self._stop_by is not None:
            due = [self._stop_by]
        return max(0.0, min(due) - time.monotonic()) if due else None

    # ── workers come ─────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, slot: _Slot) -> None:
        slot.due_at = None
        slot.ready = False
        slot.started_at = time.monotonic()
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # a signal must not meet the parent's handlers
        try:
            pid = os.fork()
        except OSError as exc:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            ours.close()
            theirs.close()
            self._replace(slot, f"cannot be started: {exc.strerror}")
            return
        if pid == 0:
            ours.close()
            self._be_worker(ParentLink(slot.index, theirs), before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        ours.setblocking(False)
        slot.pid, slot.connection = pid, ours
        self._selector.register(ours, selectors.EVENT_READ, slot)

    def _be_worker(self, link: ParentLink, mask: Collection[int]) -> NoReturn:
        code = FAILED
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the worker has its own handler
            for end in (self._wakeup, *(slot.connection for slot in self._slots)):
                if end is not None:
                    end.close()  # the parent's ends: the others wait for them to close with the parent
            self._selector.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = self._work(link)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException:  # noqa: BLE001 - the top of the process: said, and the exit code is 1
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # the frames above are the parent's

    def _hear(self, slot: _Slot) -> None:
        """Reads what the worker says; its end of the connection closes with it."""
        if slot.connection is None:
            return
        with suppress(BlockingIOError):
            try:
                told = slot.connection.recv(16)
            except ConnectionError:
                told = b""
            if not told:
                self._disconnect(slot)
            elif READY in told:
                self._become_ready(slot)

    def _disconnect(self, slot: _Slot) -> None:
        if slot.connection is not None:
            self._selector.unregister(slot.connection)
            slot.connection.close()
            slot.connection = None

    def _become_ready(self, slot: _Slot) -> None:
        slot.ready = True
        self._failed_starts = 0
        log.info("worker %d serves (process %d)", slot.index, slot.pid)
        if not self._serving:
            self._serving = True
            self._on_first_ready()
            for other in self._slots[1:]:
                other.due_at = time.monotonic()

    # ── workers go ───────────────────────────────────────────────────────────────────────────────────────────

    def _reap(self) -> None:
        """Every dead child; as the first process of a container also those that it has inherited."""
        while self._code is None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            slot = next((slot for slot in self._slots if slot.pid == pid), None)
            if slot is not None:
                self._bury(slot, os.waitstatus_to_exitcode(status))

    def _bury(self, slot: _Slot, code: int) -> None:
        self._hear(slot)  # it may have said that it serves before it died
        self._disconnect(slot)
        pid, slot.pid = slot.pid, 0
        self._on_death(slot.index)
        if self._stop_by is not None:
            self._unclean = self._unclean or (slot.ready and code != 0)  # before it serves it has nothing to close
        elif not self._serving:
            if code <= 0:
                log.error("worker %d (process %d) %s before it served", slot.index, pid, _how(code))
            self._code = code if code > 0 else FAILED  # its own message says why
        else:
            self._replace(slot, f"(process {pid}) {_how(code)}")

    def _replace(self, slot: _Slot, how: str) -> None:
        """Makes the next start due: at once after a long life, else after a pause that grows."""
        now = time.monotonic()
        steady = slot.ready and now - slot.started_at >= STEADY_S
        slot.short_lives = 0 if steady else slot.short_lives + 1
        if not slot.ready:
            self._failed_starts += 1
        slot.ready = False
        if self._failed_starts >= MAX_FAILED_STARTS and not any(other.ready for other in self._slots):
            log.error("giving up: %d workers in a row ended before they served", self._failed_starts)
            self._code = FAILED
            return
        pause_s = 0.0 if steady else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(slot.short_lives - 1, 16))
        slot.due_at = now + pause_s
        when = f"in {pause_s:g} s" if pause_s else "now"
        log.warning("worker %d %s; another is started %s", slot.index, how, when)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def _stop(self) -> None:
        """The first call asks the workers to drain, a second one to end at once."""
        first = self._stop_by is None
        by = time.monotonic() + (self._grace_s if first else QUIT_S)
        for slot in self._slots:
            slot.due_at = None
            slot.tell(DRAIN if first else QUIT)
        self._stop_by = by if self._stop_by is None else min(by, self._stop_by)  # no signal makes it last longer

    def _finish_stop(self, now: float) -> None:
        left = [slot for slot in self._slots if slot.pid]
        if left and self._stop_by is not None and now >= self._stop_by:
            log.warning("killed, because they did not end in time: workers %s", ", ".join(str(s.index) for s in left))
            self._unclean = True
            self._kill_all()
            left = []
        if not left:
            self._code = INTERRUPTED if self._stops_done > 1 else FAILED if self._unclean else 0

    def _kill_all(self) -> None:
        for slot in self._slots:
            if slot.pid:
                with suppress(ProcessLookupError):
                    os.kill(slot.pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(slot.pid, 0)
                slot.pid = 0


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with the code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by the signal {-code}"


@contextmanager
def _wakeups(handler: Callable[[int, object], None]) -> Iterator[socket.socket]:
    """A socket that is readable after each signal, as a `select` that waits does not return for a signal alone."""
    readable, writable = socket.socketpair()
    readable.setblocking(False)
    writable.setblocking(False)
    handlers = {number: signal.signal(number, handler) for number in _HANDLED}
    fd = signal.set_wakeup_fd(writable.fileno(), warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(fd)
        for number, old in handlers.items():
            signal.signal(number, old)
        readable.close()
        writable.close()
