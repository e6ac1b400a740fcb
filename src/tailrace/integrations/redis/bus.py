"""The connection of one process to Redis: sends what it has committed, reads what others have.

Owns two connections, one that writes and one that waits; each is made again by itself, after pauses that grow. What
cannot be sent is dropped: the other processes read it from storage. A process waits on two streams alone: one that
names the runs that grew, for all processes, and one that tells this process that it watches another run.

An entry of a run's stream is one group commit of that run. Its id is the last seq and a zero, `<seq>-0`, so Redis
itself refuses what is late or doubled, and a reader goes on after the seq it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count, islice
from typing import TypeAlias, cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError, ResponseError

from tailrace.errors import JournalError
from tailrace.events import Entry, RunFinished, from_json
from tailrace.integrations.redis.address import client_of, said, shown
from tailrace.journal.bus import BusListener, Committed
from tailrace.ports import Batch
from tailrace.values.validation_words import decoding_problem

log = logging.getLogger("tailrace.journal")
KEPT_BATCHES = 256  # about so many of a run stay in its stream; a viewer that is further behind reads storage
KEPT_GROWN = 4096  # at least so many commits are named; a process further behind reads every run that it watches
READ_STREAMS = 512  # streams named in one read
KEPT_S = 3600  # how long the stream of a run that does not grow is kept
KEPT_AFTER_END_S = 60  # the same once the run has ended
EXPIRY_EVERY = 16  # entries: with every batch it would cost a third more CPU to send one (62 in place of 47 µs)
MAX_OUTBOX = 4096  # batches that wait to be sent
PIPELINE = 512  # batches sent at once
REPLY_TIMEOUT_S = 5.0
BLOCK_S = 5.0  # how long a read waits on the server; a connection that is silent for longer is made again
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
PREFIX = b"tailrace"
GROWN = PREFIX + b":grown"
MAX_BYTES = 256 * 1024  # of one entry: viewers read a longer one from storage
FIRST, ATTEMPTS, EVENTS, RUNS = b"first", b"attempts", b"events", b"runs"
Fields: TypeAlias = dict[bytes, bytes]
_Reply: TypeAlias = list[tuple[bytes, list[tuple[bytes, Fields]]]]  # of XREAD: per stream, per entry
_Places: TypeAlias = dict[bytes | str | memoryview, int | bytes | str | memoryview]


def stream_of(run_id: str) -> bytes:
    return b"%b:run:%b" % (PREFIX, run_id.encode())


def run_of(stream: bytes) -> str:
    return stream[len(PREFIX) + len(b":run:") :].decode()


def grown_fields(run_ids: Iterable[str]) -> Fields:
    """What is written when these runs have grown."""
    return {RUNS: b",".join(run_id.encode() for run_id in dict.fromkeys(run_ids))}


def grown_in(fields: Fields) -> list[bytes]:
    """The streams of the runs that are named."""
    return [stream_of(run_id.decode()) for run_id in fields.get(RUNS, b"").split(b",") if run_id]


def id_of(seq: int) -> bytes:
    return b"%d-0" % seq


def seq_of(stream_id: bytes) -> int:
    return int(stream_id.partition(b"-")[0])


def fields_of(batch: Batch) -> Fields:
    """What is written for a batch. Only its place, where it is too long: the reader turns to storage."""
    place = {FIRST: b"%d" % batch[0].seq}
    if batch.stored_bytes > MAX_BYTES:
        return place
    return place | {ATTEMPTS: _attempts(batch), EVENTS: b"\n".join(batch.lines)}


def batch_of(fields: Fields) -> Batch | None:
    """The batch that was written; None where only its place was. Raises `ValueError` for anything else."""
    if EVENTS not in fields:
        return None
    lines = fields[EVENTS].split(b"\n")  # JSON has no line ends inside
    attempts = [int(attempt) for attempt in fields[ATTEMPTS].split(b",")]
    if len(attempts) == 1:
        attempts *= len(lines)
    batch = Batch(
        Entry(seq, from_json(line), attempt)
        for seq, line, attempt in zip(count(int(fields[FIRST])), lines, attempts, strict=False)
    )
    batch.stored = fields[EVENTS]
    return batch


def _attempts(batch: Sequence[Entry]) -> bytes:
    """One number where it is the same for every entry, as it nearly always is."""
    attempts = [entry.attempt for entry in batch]
    return b"%d" % attempts[0] if len(set(attempts)) == 1 else b",".join(b"%d" % each for each in attempts)


class RedisBus:
    """Satisfies `journal.bus.Bus`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._shown = ""
        self._outbox: deque[Committed] = deque()
        self._outgoing = asyncio.Event()
        self._watch_changed = False
        self._cursors: dict[bytes, int] = {}  # watched streams and the last seq that is known of each
        self._wake_stream = b"%b:wake:%b" % (PREFIX, secrets.token_hex(8).encode())
        self._places: _Places = {}  # how far the two streams that wake this process were read
        self._unread: dict[bytes, None] = {}  # watched streams that have grown, or may have
        self._failures: dict[str, Exception] = {}  # of the connections that are not there
        self._tasks: list[asyncio.Task[None]] = []
        self._dropped = 0
        self._gone_since: float | None = None  # by the loop's clock

    # ── the port ──

    async def open(self, listener: BusListener) -> None:
        writer, reader = client_of(self._url, REPLY_TIMEOUT_S), client_of(self._url, BLOCK_S + REPLY_TIMEOUT_S)
        self._shown = shown(self._url)
        self._listener = listener
        self._tasks = [
            asyncio.create_task(self._keep("sending", writer, self._send), name="bus-send"),
            asyncio.create_task(self._keep("reading", reader, self._read), name="bus-read"),
        ]
        self._failures = dict.fromkeys(("sending", "reading"), ConnectionError("not connected yet"))

    @property
    def connected(self) -> bool:
        return "sending" not in self._failures

    def publish(self, committed: Sequence[Committed]) -> None:
        if not self.connected:
            return
        self._outbox += committed
        if len(self._outbox) > MAX_OUTBOX:
            self._dropped += len(self._outbox) - MAX_OUTBOX
            for _ in range(len(self._outbox) - MAX_OUTBOX):
                self._outbox.popleft()
        self._outgoing.set()

    def watch(self, run_id: str, after: int) -> None:
        self._cursors[stream_of(run_id)] = after
        self._unread[stream_of(run_id)] = None
        self._watch_changed = True
        self._outgoing.set()

    def unwatch(self, run_id: str) -> None:
        self._unread.pop(stream_of(run_id), None)
        self._cursors.pop(stream_of(run_id), None)  # the read that is under way may still bring some: dropped there

    async def check(self) -> None:
        for failure in self._failures.values():
            raise JournalError(f"Redis at {self._shown} cannot be used: {said(failure, self._url)}")

    async def close(self) -> None:
        running = set(self._tasks)
        while running:  # Python 3.11's `wait_for`, in which redis sends, may swallow a cancellation
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=0.1)

    # ── connections ──

    async def _keep(self, doing: str, client: Redis, work: Callable[[Redis], Awaitable[None]]) -> None:
        """Does the work over and over; returns only when it is cancelled."""
        pause_s = RETRY_FIRST_S
        try:
            while True:
                try:
                    await client.initialize()
                    await cast("Awaitable[object]", client.ping())
                    self._failures.pop(doing, None)
                    self._end_outage()
                    pause_s = RETRY_FIRST_S
                    await work(client)
                except (RedisError, OSError, TimeoutError) as exc:
                    failure: Exception = exc
                except Exception as exc:
                    log.exception("the bus failed while %s", doing)
                    failure = exc
                self._failures[doing] = failure
                self._outbox.clear()
                self._begin_outage(failure)
                await _hung_up(client)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
        finally:
            await _hung_up(client)

    def _begin_outage(self, why: Exception) -> None:
        if self._gone_since is None:
            self._gone_since = asyncio.get_running_loop().time()
            log.warning(
                "Redis at %s cannot be used: %s; nodes read each other's entries from storage meanwhile",
                self._shown,
                said(why, self._url),
            )

    def _end_outage(self) -> None:
        if self._gone_since is not None and not self._failures:
            lasted_s = asyncio.get_running_loop().time() - self._gone_since
            log.warning("Redis at %s is there again after %.1f s", self._shown, lasted_s)
            self._gone_since = None

    # ── sending ──

    async def _send(self, client: Redis) -> None:
        self._watch_changed = True  # the reader may have got it on the connection that was lost
        while True:
            if not self._outbox and not self._watch_changed:
                self._outgoing.clear()
                await self._outgoing.wait()
                continue
            pipeline = client.pipeline(transaction=False)
            if self._watch_changed:
                self._watch_changed = False
                pipeline.xadd(self._wake_stream, {b"": b""}, maxlen=1)
                pipeline.expire(self._wake_stream, KEPT_S)
            sent = [self._outbox.popleft() for _ in range(min(PIPELINE, len(self._outbox)))]
            for committed in sent:
                self._add(pipeline, committed)
            if sent:  # after the entries: a process that is woken finds them
                named = grown_fields(committed.run_id for committed in sent)
                pipeline.xadd(GROWN, cast("dict[object, object]", named), maxlen=KEPT_GROWN, approximate=True)  # type: ignore[arg-type]
                pipeline.expire(GROWN, KEPT_S)
            _check_replies(await pipeline.execute(raise_on_error=False))
            if self._dropped:
                log.warning("Redis is too slow: %d commits were not sent; other nodes read them later", self._dropped)
                self._dropped = 0

    def _add(self, pipeline: Pipeline, committed: Committed) -> None:
        stream, batch = stream_of(committed.run_id), committed.batch
        fields = cast("dict[object, object]", fields_of(batch))
        pipeline.xadd(stream, fields, id=id_of(batch[-1].seq), maxlen=KEPT_BATCHES, approximate=True)  # type: ignore[arg-type]
        if isinstance(batch[-1].event, RunFinished):
            pipeline.expire(stream, KEPT_AFTER_END_S)
        elif batch[0].seq < EXPIRY_EVERY or batch[-1].seq % EXPIRY_EVERY < len(batch):
            pipeline.expire(stream, KEPT_S)

    # ── reading ──

    async def _read(self, client: Redis) -> None:
        newest = cast("list[tuple[bytes, Fields]]", await client.xrevrange(GROWN, count=1))
        self._places = {GROWN: newest[0][0] if newest else b"0-0", self._wake_stream: b"0-0"}
        self._listener.missed()
        self._unread.update(dict.fromkeys(self._cursors))
        while True:
            await self._read_grown(client)
            reply = await client.xread(self._places, count=KEPT_GROWN, block=int(BLOCK_S * 1000))
            for stream, entries in cast("_Reply", reply or []):
                self._places[stream] = entries[-1][0]
                if stream == GROWN:
                    self._note_grown(entries)

    def _note_grown(self, entries: list[tuple[bytes, Fields]]) -> None:
        if len(entries) >= KEPT_GROWN:  # older ones may be gone
            self._unread.update(dict.fromkeys(self._cursors))
            return
        for _, fields in entries:
            self._unread.update((stream, None) for stream in grown_in(fields) if stream in self._cursors)

    async def _read_grown(self, client: Redis) -> None:
        while self._unread:
            streams = list(islice(self._unread, READ_STREAMS))
            for stream in streams:
                del self._unread[stream]
            places = {stream: id_of(self._cursors[stream]) for stream in streams if stream in self._cursors}
            if not places:
                continue
            reply = await client.xread(cast("_Places", places), count=KEPT_BATCHES)
            for stream, entries in cast("_Reply", reply or []):
                self._take(stream, entries)
                if len(entries) == KEPT_BATCHES and stream in self._cursors:
                    self._unread[stream] = None  # there may be more

    def _take(self, stream: bytes, entries: list[tuple[bytes, Fields]]) -> None:
        for stream_id, fields in entries:
            if stream not in self._cursors:
                return  # unwatched while the read was under way
            self._cursors[stream] = seq_of(stream_id)
            try:
                batch = batch_of(fields)
            except (ValueError, KeyError, msgspec.MsgspecError) as exc:
                log.warning("an entry of %s cannot be read: %s", stream.decode(errors="replace"), decoding_problem(exc))
                batch = None
            if batch is None:
                self._listener.missed()
            else:
                self._listener.arrived(run_of(stream), batch)


def _check_replies(replies: Sequence[object]) -> None:
    """Raises what shows that Redis takes nothing more. An entry that is late or doubled is refused by its id."""
    for reply in replies:
        if isinstance(reply, ResponseError) and "equal or smaller" in str(reply):
            continue
        if isinstance(reply, Exception):
            raise reply


async def _hung_up(client: Redis) -> None:
    with contextlib.suppress(RedisError, OSError, TimeoutError):
        if client.connection is not None:
            await client.connection.disconnect(nowait=True)
        await client.aclose(close_connection_pool=True)


async def ping(url: str) -> None:
    """Raises `JournalError` where no Redis answers at this address, `ConfigError` where there can be none."""
    client = client_of(url, REPLY_TIMEOUT_S)
    try:
        await cast("Awaitable[object]", client.ping())
    except (RedisError, OSError) as exc:
        raise JournalError(f"Redis at {shown(url)} cannot be used: {said(exc, url)}") from exc
    finally:
        await _hung_up(client)
