"""The extension does what Tailrace's own relay does: the same bytes to the client, the same deltas to the log."""

from __future__ import annotations

import asyncio
import fcntl
import math
import socket
import struct
import termios
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from providers.http.test_relayed_events import KEY, PACED, SAID, chat_events
from relay.built_extension import compiled
from tailrace.config.quirks import NONE
from tailrace.errors import ProviderError, StreamCut
from tailrace.messages import AnyDelta, Dialect, EventForm, JsonObject, TextDelta
from tailrace.providers.http import streamed_answer
from tailrace.providers.http.key_redaction import RedactedAnswer, finder_of
from tailrace.providers.http.streamed_answer import StreamedAnswer
from tailrace.providers.transport import extension as extension_of_tailrace
from tailrace.providers.transport.http1_connection import Http1Connection
from tailrace.providers.transport.port import HttpReply
from tailrace.providers.transport.request_head import Destination
from tailrace.server.http.sse_stream import WriteBetween
from tailrace.system.private_apis import http_chunk
from tailrace.values.redact import TextRedactor
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.served_dialect import ServedDialect
from tailrace.wire.templates import Template, TemplateDecoder
from wire.headers import header

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
NewLoop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


class Owner:
    """The pool of one connection."""

    def __init__(self, module: ModuleType | None) -> None:
        self.poller = module.Poller() if module is not None else None
        self.released_whole = False

    def released(self, _connection: Http1Connection) -> None:
        self.released_whole = True

    def lost(self, _connection: Http1Connection) -> None:
        return


class Relayed:
    """One answer, from a provider's socket to a client's, and what came out of it on every side."""

    def __init__(self, dialect: Dialect, module: ModuleType | None, key: str = "") -> None:
        wire = DIALECTS[dialect]
        assert isinstance(wire, ServedDialect)
        self._wire, self._key = wire, key
        self._encoder = wire.new_encoder(header(dialect, "ours", model="up/m", created=1))
        self._owner = Owner(module)
        self.received = b""  # by the client, without the framing of chunks
        self.logged = ""
        self.decoded: list[bytes] = []  # what the decoder was handed, relayed or not
        self.body: JsonObject = {}
        self.direct_reads = 0  # after which the extension had the socket

    def told(self) -> tuple[bytes, str, bytes, JsonObject, bool]:
        return self.received, self.logged, b"".join(self.decoded), self.body, self._owner.released_whole

    async def run(self, pieces: list[bytes]) -> None:
        """Each piece is a read of its own; then the provider ends the connection."""
        loop, poller = asyncio.get_running_loop(), self._owner.poller
        provider, up = socket.socketpair()
        client, down = socket.socketpair()
        with provider, client:
            for end in (up, down):
                end.setblocking(False)
            to = Destination("http", "h", 80)
            _, connection = await loop.create_connection(lambda: Http1Connection(self._owner, to), sock=up)
            self._client, _ = await loop.create_connection(asyncio.Protocol, sock=down)
            reply = connection.send(b"POST")
            provider.sendall(HEAD)
            while not reply.status:
                await reply.woken()
            answer = self._answer(reply)
            reading = asyncio.ensure_future(self._pump(answer))
            await asyncio.sleep(0)
            for piece in pieces:
                try:
                    provider.sendall(piece)
                except BrokenPipeError:
                    break
                while _unread(provider):  # noqa: ASYNC110 - nothing tells the sender
                    await asyncio.sleep(0)
                self.direct_reads += poller is not None and poller.attached
            provider.close()
            await reading
            self.body = answer.completion().body
            connection.abort()
            self._client.close()
            for _ in range(3):
                await asyncio.sleep(0)
            assert poller is None or poller.attached == 0
            client.settimeout(10)
            with client.makefile("rb") as sent:
                self.received = without_framing(sent.read())

    def _answer(self, reply: HttpReply) -> Any:
        decoder = self._wire.decoder(NONE, keep_events=True)
        decoded, kind = self.decoded, type(decoder)

        class Recording(kind):  # type: ignore[misc, valid-type]
            __slots__ = ()

            def feed(self, data: bytes) -> list[AnyDelta]:
                decoded.append(data)
                return super().feed(data)  # type: ignore[no-any-return]

            def relayed(self, bodies: list[bytes]) -> list[AnyDelta]:
                form = self._template.form
                decoded.extend(form.prefix + body + form.suffix for body in bodies)
                return super().relayed(bodies)  # type: ignore[no-any-return]

        decoder.__class__ = Recording
        answer = StreamedAnswer(self._wire, decoder, lambda error: StreamCut(error.message)).attach(reply)
        whole = RedactedAnswer(answer, TextRedactor([self._key]), self._wire.completion_from_body)
        chosen = whole if self._key else answer
        chosen.relay_to(self._relay, self._relayed)
        return chosen

    async def _pump(self, answer: Any) -> None:
        try:
            await answer.pump(self._take)
            self._send(self._encoder.close())
        except ProviderError as exc:
            self.logged += f" ({exc})"

    def _send(self, data: bytes) -> None:
        if data:
            self._client.write(http_chunk(data))

    def _take(self, deltas: list[AnyDelta]) -> None:
        self._send(self._encoder.encode(deltas))
        self._log(deltas)

    def _relay(self, form: EventForm) -> WriteBetween | None:
        if (ours := self._encoder.relayed_form(form)) is None:
            return None
        return WriteBetween(self._send, ours.prefix, ours.suffix, self._client, is_chunked=True)

    def _relayed(self, deltas: list[AnyDelta], times: list[float]) -> None:
        assert times == sorted(times)
        self._encoder.encode(deltas)
        self._log(deltas)

    def _log(self, deltas: list[AnyDelta]) -> None:
        self.logged += "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _unread(sender: socket.socket) -> int:
    """Bytes that the other end of a pair has not read yet."""
    [length] = struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ, b"    "))
    return int(length)


def without_framing(chunks: bytes) -> bytes:
    data = []
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        end = int(size, 16)
        assert rest[end : end + 2] == b"\r\n"
        data.append(rest[:end])
        chunks = rest[end + 2 :]
    return b"".join(data)


def relayed(
    dialect: Dialect, pieces: list[bytes], *, extension: bool, key: str = "", loop: NewLoop = asyncio.new_event_loop
) -> Relayed:
    answer = Relayed(dialect, compiled() if extension else None, key)
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=loop) as runner:
        patch.setattr(extension_of_tailrace, "EXTENSION", compiled() if extension else None)
        runner.run(answer.run(pieces))
    return answer


def cut_at(whole: bytes, cuts: list[int]) -> list[bytes]:
    cuts = sorted(cuts)
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if b > a]


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
PARTS = st.lists(SAID | st.sampled_from([KEY[:at] for at in (1, 5)] + [KEY[at:] for at in (0, 5)]), max_size=10)


@LOOPS
@settings(max_examples=examples(150))
@given(PARTS, st.data())
def test_any_split_of_the_same_bytes_is_the_same_to_client_log_and_decoder(
    loop: NewLoop, texts: list[str], data: st.DataObject
) -> None:
    """A read may have a part of an event, one, or several; the stream may be cut anywhere."""
    dialect, made = data.draw(st.sampled_from(PACED))
    chunks = [http_chunk(event) for event in made(["I", " say ", "it", *texts])]
    end = data.draw(st.integers(0, len(chunks)))
    pieces = [*chunks[:end], *([LAST_CHUNK] if end == len(chunks) else [])]
    if data.draw(st.booleans()):
        whole = b"".join(pieces)
        edges = [sum(map(len, pieces[:at])) for at in range(len(pieces))]
        pieces = cut_at(
            whole, data.draw(st.lists(st.integers(0, len(whole)) | st.sampled_from([0, *edges]), max_size=12))
        )
    key = data.draw(st.sampled_from(["", KEY]))
    told = [relayed(dialect, pieces, extension=by, key=key, loop=loop).told() for by in (True, False)]
    assert told[0] == told[1]


@LOOPS
@pytest.mark.parametrize("key", ["", KEY], ids=["without a key", "with a key"])
@pytest.mark.parametrize(("dialect", "events"), PACED, ids=["chat", "padded chat", "messages", "spaced messages"])
def test_a_paced_stream_is_read_by_the_extension_to_its_end(
    dialect: Dialect, events: Callable[[list[str]], list[bytes]], key: str, loop: NewLoop
) -> None:
    chunks = [http_chunk(event) for event in events(["word "] * 50)]
    answer = relayed(dialect, [*chunks, LAST_CHUNK], extension=True, key=key, loop=loop)
    assert answer.direct_reads >= 45
    assert answer.told() == relayed(dialect, [*chunks, LAST_CHUNK], extension=False, key=key).told()
    assert answer.logged == "word " * 50


@pytest.mark.parametrize("framing", ["extended chunks", "two events a chunk", "half an event a chunk"])
def test_framing_of_another_kind_is_left_to_the_parser(framing: str) -> None:
    events = chat_events(["word "] * 20)
    match framing:
        case "extended chunks":
            chunks = [b"%x;a=b\r\n%b\r\n" % (len(event), event) for event in events]
        case "two events a chunk":
            chunks = [http_chunk(b"".join(events[at : at + 2])) for at in range(0, len(events), 2)]
        case _:
            chunks = [http_chunk(part) for event in events for part in (event[:40], event[40:])]
    told = [relayed("chat", [*chunks, LAST_CHUNK], extension=by).told() for by in (True, False)]
    assert told[0] == told[1]
    assert told[0][1] == "word " * 20


@LOOPS
def test_several_events_in_a_read_are_relayed_together(loop: NewLoop) -> None:
    chunks = [http_chunk(event) for event in chat_events(["word "] * 200)]
    pieces = [*chunks[:5], *(b"".join(chunks[at : at + 30]) for at in range(5, len(chunks), 30)), LAST_CHUNK]
    answer = relayed("chat", pieces, extension=True, loop=loop)
    assert answer.direct_reads > 4
    assert answer.told() == relayed("chat", pieces, extension=False).told()


# ── one read ─────────────────────────────────────────────────────────────────────────────────────────────────


class Reply(HttpReply):
    status, headers, at_end = 200, {}, False

    def __init__(self) -> None:
        self.calls = 0

    async def read(self) -> bytes:
        raise AssertionError("only its sink is called")

    def close(self) -> None:
        return

    def call_sink(self) -> None:
        self.calls += 1


class Guard:
    def __init__(self) -> None:
        self.waiting: list[AnyDelta] = []
        self.finds_key = finder_of([b"sk-own"])


def templates() -> list[Template]:
    found = []
    for dialect, events in PACED:
        decoder = DIALECTS[dialect].decoder(NONE, keep_events=True)
        assert isinstance(decoder, TemplateDecoder)
        for event in events(["I", " say ", "it", " all"]):
            decoder.feed(event)
            if (template := decoder.relayable()) is not None:
                found.append(template)
                break
    assert len(found) == len(PACED)
    return found


TEMPLATES = templates()
BODIES = (
    st.binary(max_size=12)
    | st.text(max_size=8).map(str.encode)
    | st.sampled_from(
        [b"word", b'\\"', b"\\u00e9", b"sk-", b"sk-own", b'a"},"obfuscation":"x', b"\xc3\xa9", b"", b"w" * 2000]
    )
)


@settings(max_examples=examples(1000))
@given(st.sampled_from(TEMPLATES), BODIES, BODIES, st.data(), st.booleans(), st.sampled_from([0.0, math.inf]))
def test_one_read_is_taken_by_both_or_by_neither(
    template: Template, before: bytes, body: bytes, data: st.DataObject, guarded: bool, looks_at: float
) -> None:
    form = template.form
    read = data.draw(
        st.sampled_from([form.prefix + body + form.suffix, before, form.prefix, form.prefix[:-1] + form.suffix])
    )
    room = data.draw(st.sampled_from([1 << 20, 1500, 0]))
    outcomes = []
    decoder = DIALECTS["chat"].decoder(NONE, keep_events=True)
    assert isinstance(decoder, TemplateDecoder)
    for kind in (compiled().Relay, streamed_answer._Relay):
        written: list[bytes] = []

        def write(data: bytes, written: list[bytes] = written) -> float:
            written.append(data)
            return 7.0

        reply = Reply()
        relay = kind(template, write, decoder, reply, Guard() if guarded else None)
        relay.looks_at, relay.room = looks_at, room
        outcomes.append((relay.take(read), written, relay.bodies, relay.times, relay.room, reply.calls, relay.form))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("body", [b"sk-own", b"it is sk-own!", b"sk-", b"and s"])
def test_j114_a_key_and_the_beginning_of_one_are_not_relayed(body: bytes) -> None:
    template = TEMPLATES[0]
    for guard, takes in ((Guard(), False), (None, True)):
        relay = compiled().Relay(template, lambda _: 7.0, None, Reply(), guard)
        assert relay.take(template.form.prefix + body + template.form.suffix) is takes


def test_what_a_relay_is_made_of_is_checked() -> None:
    with pytest.raises((AttributeError, TypeError)):
        compiled().Relay(None, None, None, None, None)
    with pytest.raises(TypeError):
        compiled().Relay()
    with pytest.raises(TypeError):
        compiled().DirectReader()
    assert compiled().Poller().reader(asyncio.Transport()) is None
