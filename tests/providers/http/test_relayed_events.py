"""Events that go from the read to the client as bytes: the client, the log and the answer have the same as when each
event is decoded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.config.quirks import NONE
from tailrace.errors import StreamCut, TimedOut
from tailrace.messages import AnyDelta, Dialect, EventForm, JsonObject, TextDelta
from tailrace.ports import AnswerStream
from tailrace.providers.deadlines import AttemptDeadlines, DeadlineWatch
from tailrace.providers.http.key_redaction import RedactedAnswer
from tailrace.providers.http.streamed_answer import StreamedAnswer
from tailrace.providers.transport.port import BodySink, HttpReply
from tailrace.values.redact import TextRedactor
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.served_dialect import ServedDialect
from wire.anthropic.anthropic_events import block_delta, block_start, block_stop, message_end, message_start
from wire.headers import header

KEY = 'sk-"own"-secret'  # as JSON has it, its quotes are escaped
SAID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(['"', "\n", "é"])


class Pieces(HttpReply):
    """A body that comes in these pieces, each in a callback of its own."""

    status = 200
    headers: Mapping[str, str] = {"transfer-encoding": "chunked"}
    at_end = True

    def __init__(self, pieces: list[bytes], *, cut: bool) -> None:
        self._pieces, self._cut = pieces, cut
        self._diverted: BodySink | None = None
        self.unread = 0

    def divert(self, sink: BodySink | None, /) -> None:
        self._diverted = sink

    async def read(self) -> bytes:
        raise AssertionError("the answer is pumped")

    def close(self) -> None:
        return

    async def pump(self, sink: BodySink) -> None:
        for piece in self._pieces:
            if self._diverted is not None and self._diverted(piece):
                self.unread += 1
            elif sink(piece):
                return
        if self._cut:
            raise StreamCut("the connection broke")


class Client:
    """One client's bytes, what the log is told, and the whole answer."""

    def __init__(
        self, dialect: Dialect, pieces: list[bytes], *, relays: bool, cut: bool = False, key: str = ""
    ) -> None:
        wire = DIALECTS[dialect]
        assert isinstance(wire, ServedDialect)
        self._encoder = wire.new_encoder(header(dialect, "ours", model="up/m", created=1))
        self.sent: list[bytes] = []
        self.logged: list[str] = []
        self.reply = Pieces(pieces, cut=cut)
        decoder = wire.decoder(NONE, keep_events=True)
        self.answer: AnswerStream = StreamedAnswer(wire, decoder, lambda error: StreamCut(error.message)).attach(
            self.reply
        )
        if key:
            self.answer = RedactedAnswer(self.answer, TextRedactor([key]), wire.completion_from_body)
        if relays:
            self.answer.relay_to(self._relay, self._relayed)

    async def read(self) -> tuple[bytes, str, JsonObject]:
        try:
            await self.answer.pump(self._take)
            self.sent.append(self._encoder.close())
        except StreamCut as exc:
            self.logged.append(f" ({exc})")
        return b"".join(self.sent), "".join(self.logged), self.answer.completion().body

    def _take(self, deltas: list[AnyDelta]) -> None:
        self.sent.append(self._encoder.encode(deltas))
        self._log(deltas)

    def _relay(self, form: EventForm) -> Callable[[bytes], float] | None:
        ours = self._encoder.relayed_form(form)
        if ours is None:
            return None

        def write(body: bytes) -> float:
            self.sent.append(b"%b%b%b" % (ours.prefix, body, ours.suffix))
            return time.monotonic()

        return write

    def _relayed(self, deltas: list[AnyDelta], _times: list[float]) -> None:
        self._encoder.encode(deltas)
        self._log(deltas)

    def _log(self, deltas: list[AnyDelta]) -> None:
        self.logged += [delta.text for delta in deltas if isinstance(delta, TextDelta)]


def chat_events(texts: list[str], *, ascii_only: bool = False) -> list[bytes]:
    def chunk(delta: JsonObject, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]}
        return b"data: " + json.dumps(event, ensure_ascii=ascii_only, separators=(",", ":")).encode() + b"\n\n"

    said = [chunk({"content": text}) for text in texts]
    return [chunk({"role": "assistant", "content": ""}), *said, chunk({}, "stop"), b"data: [DONE]\n\n"]


def message_events(texts: list[str]) -> list[bytes]:
    said = [block_delta(0, "text_delta", text=text) for text in texts]
    return [message_start(), block_start(0, type="text", text=""), *said, block_stop(0), message_end()]


def read(
    dialect: Dialect, pieces: list[bytes], *, relays: bool, cut: bool = False, key: str = ""
) -> tuple[bytes, str, JsonObject]:
    return asyncio.run(Client(dialect, pieces, relays=relays, cut=cut, key=key).read())


@given(st.lists(SAID, max_size=12), st.booleans(), st.data())
def test_a_relayed_answer_is_the_decoded_one_however_it_is_cut(
    texts: list[str], ascii_only: bool, data: st.DataObject
) -> None:
    events = chat_events(["I", " say ", *texts], ascii_only=ascii_only)
    pieces = list(events)
    if data.draw(st.booleans()):  # a read that ends inside an event, and one that has several
        whole = b"".join(events)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read("chat", pieces, relays=True) == read("chat", pieces, relays=False)
    assert read("chat", pieces[:-3], relays=True, cut=True) == read("chat", pieces[:-3], relays=False, cut=True)


ODD = pytest.mark.parametrize("odd", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\x01", b"\\u00e9", b"\\x", b'"', b"\\"])


@ODD
def test_O179_what_is_no_plain_text_is_told_at_once_however_long_it_is(odd: bytes) -> None:
    """Not by trying every way to divide it: that froze the server for two events in one read."""
    events = chat_events([*("I", " say ", "this", "word " * 400, "word " * 400, "word " * 400 + "ODD", "that")])
    first = next(number for number, event in enumerate(events) if b"word" in event)
    pieces = [*events[:first], b"".join(events[first : first + 2]), *events[first + 2 :]]
    pieces = [piece.replace(b"ODD", odd) for piece in pieces]
    assert read("chat", pieces, relays=True) == read("chat", pieces, relays=False)


@ODD
def test_a_text_that_is_no_plain_string_is_decoded_as_before(odd: bytes) -> None:
    events = chat_events(["I", " say ", "this", "ODD", "that"])
    events = [event.replace(b"ODD", odd) for event in events]
    assert read("chat", events, relays=True) == read("chat", events, relays=False)


def padded_events(texts: list[str]) -> list[bytes]:
    """As OpenAI pads them against traffic analysis."""
    events = enumerate(chat_events(texts))
    return [event.replace(b"}]}", b'}],"obfuscation":"%b"}' % (b"aB3" * (at % 4))) for at, event in events]


def spaced_events(texts: list[str]) -> list[bytes]:
    """As Anthropic does."""
    return [event.replace(b"}}\n\n", b"}%b}\n\n" % (b" " * (at % 4))) for at, event in enumerate(message_events(texts))]


PACED: list[tuple[Dialect, Callable[[list[str]], list[bytes]]]] = [
    ("chat", chat_events),
    ("chat", padded_events),
    ("anthropic", message_events),
    ("anthropic", spaced_events),
]


@pytest.mark.parametrize("key", ["", KEY], ids=["without a key", "with a key"])
@pytest.mark.parametrize(("dialect", "events"), PACED, ids=["chat", "padded chat", "messages", "spaced messages"])
async def test_most_events_of_a_paced_stream_are_never_decoded_one_by_one(
    dialect: Dialect, events: Callable[[list[str]], list[bytes]], key: str
) -> None:
    client = Client(dialect, events(["word "] * 100), relays=True, key=key)
    _, logged, _ = await client.read()
    assert logged == "word " * 100
    assert client.reply.unread >= 90


@given(st.lists(SAID, max_size=12), st.data())
def test_relayed_events_of_every_shape_are_the_decoded_ones(texts: list[str], data: st.DataObject) -> None:
    dialect, made = data.draw(st.sampled_from(PACED))
    events = made(["I", " say ", *texts])
    pieces = events[: data.draw(st.integers(0, len(events)))]
    cut = len(pieces) < len(events)
    assert read(dialect, pieces, relays=True, cut=cut) == read(dialect, pieces, relays=False, cut=cut)


@given(st.lists(SAID | st.sampled_from([KEY[:at] for at in range(1, 4)] + [KEY[at:] for at in range(4)]), max_size=12))
@example([KEY[:3], KEY[3:]])
@example(["s"] * 4 + [KEY[1:]])
@example([KEY[:9], "s", KEY[1:9], KEY[9:]])
def test_a_key_that_the_answer_repeats_is_found_in_relayed_events_too_j114(texts: list[str]) -> None:
    for dialect, events in PACED:
        pieces = events(["I", " say ", *texts, "."])
        relayed = read(dialect, pieces, relays=True, key=KEY)
        assert relayed == read(dialect, pieces, relays=False, key=KEY)
        assert KEY not in relayed[1]
        assert json.dumps(KEY)[1:-1].encode() not in relayed[0]


def test_events_that_repeat_a_key_beside_their_text_are_not_relayed_j114() -> None:
    events = [event.replace(b'"c1"', b'"c1","by":"its-key"') for event in chat_events(["word "] * 20)]
    sent, logged, _ = read("chat", events, relays=True, key="its-key")
    assert b"its-key" not in sent
    assert logged == "word " * 20


async def test_events_that_were_relayed_keep_the_answer_from_being_idle() -> None:
    class Relaying:
        looks = 0

        def is_thinking(self) -> bool:
            return False

        def relayed_at(self) -> float:
            self.looks += 1
            return asyncio.get_running_loop().time() if self.looks <= 3 else 0.0

        def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
            return deadlines

    async def silence(relaying: Relaying) -> None:
        with DeadlineWatch(AttemptDeadlines(idle_s=0.01), leniency=relaying) as watch:
            watch.note_open()
            await asyncio.Event().wait()

    relaying = Relaying()
    with pytest.raises(TimedOut, match="no bytes for"):
        await silence(relaying)
    assert relaying.looks > 3
