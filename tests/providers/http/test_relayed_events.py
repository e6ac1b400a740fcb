"""Events that go from the read to the client as bytes: the client, the log and the answer have the same as when each
event is decoded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.quirks import NONE
from tailrace.errors import StreamCut, TimedOut
from tailrace.messages import AnyDelta, Dialect, EventForm, JsonObject, TextDelta
from tailrace.providers.deadlines import AttemptDeadlines, DeadlineWatch
from tailrace.providers.http.streamed_answer import StreamedAnswer
from tailrace.providers.transport.port import BodySink, HttpReply
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.served_dialect import ServedDialect
from wire.headers import header

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

    def __init__(self, dialect: Dialect, pieces: list[bytes], *, relays: bool, cut: bool = False) -> None:
        wire = DIALECTS[dialect]
        assert isinstance(wire, ServedDialect)
        self._encoder = wire.new_encoder(header(dialect, "ours", model="up/m", created=1))
        self.sent: list[bytes] = []
        self.logged: list[str] = []
        self.reply = Pieces(pieces, cut=cut)
        self.answer = StreamedAnswer(wire, wire.decoder(NONE, keep_events=True), lambda error: StreamCut(error.message))
        self.answer.attach(self.reply)
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


def read(dialect: Dialect, pieces: list[bytes], *, relays: bool, cut: bool = False) -> tuple[bytes, str, JsonObject]:
    return asyncio.run(Client(dialect, pieces, relays=relays, cut=cut).read())


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


@pytest.mark.parametrize("odd", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\x01", b"\\u00e9", b"\\x", b'"', b"\\"])
def test_a_text_that_is_no_plain_string_is_decoded_as_before(odd: bytes) -> None:
    events = chat_events(["I", " say ", "this", "ODD", "that"])
    events = [event.replace(b"ODD", odd) for event in events]
    assert read("chat", events, relays=True) == read("chat", events, relays=False)


async def test_most_events_of_a_paced_stream_are_never_decoded_one_by_one() -> None:
    client = Client("chat", chat_events(["word "] * 100), relays=True)
    _, logged, _ = await client.read()
    assert logged == "word " * 100
    assert client.reply.unread >= 95


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
