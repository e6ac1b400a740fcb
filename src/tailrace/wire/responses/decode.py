"""A streamed answer in the Responses dialect: from bytes to events, and the fast path; `stream_events` knows what an
event does to the answer. Servers leave out the `type` in an event's JSON or its SSE `event:` line."""

from __future__ import annotations

import msgspec

from tailrace.config.quirks import NONE, WireQuirks
from tailrace.errors import PeerError
from tailrace.messages import AnyDelta, EventDelta, JsonObject
from tailrace.wire.failure import protocol_error, stream_cut
from tailrace.wire.peer_json import GLUED, decode_object
from tailrace.wire.responses.output_items import NO_INDEX
from tailrace.wire.responses.stream_events import TERMINAL, GrowingAnswer, Piece
from tailrace.wire.sse import SseDecoder

_decode_piece = msgspec.json.Decoder(Piece).decode


class ResponsesDecoder:
    """Satisfies `ports.StreamDecoder`. After `reopen` come the bytes of another connection to an answer that was
    kept."""

    def __init__(self, quirks: WireQuirks = NONE, *, keep_events: bool = False) -> None:
        self._sse = SseDecoder()
        self._keeps_events = keep_events and not quirks.cumulative_text  # whose events no client could read
        self._answer = GrowingAnswer(cumulative_text=quirks.cumulative_text, keep_events=self._keeps_events)
        self._head = b""  # the bytes before the data in the last block: nearly always the same in the next
        self._ignored_to = NO_INDEX  # the last number that an earlier connection has brought
        self.skipped = ""  # why one event of the stream was left out (N157)
        self._last_number = NO_INDEX  # of the events off the fast path

    @property
    def complete(self) -> bool:
        return self._answer.complete

    def feed(self, data: bytes) -> list[AnyDelta]:
        answer = self._answer
        growing = answer.growing
        out: list[AnyDelta] = []
        if answer.ended:
            return out
        head = self._head
        size = len(head)
        ignored_to = self._ignored_to
        for block in self._sse.split(data):
            if not size or block[:size] != head:
                head = self._head = _head_of(block)
                size = len(head)
            raw = block[size:] if size else b""
            try:
                piece = _decode_piece(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if self._apply_block(block, out):
                    return out
            else:
                delta = piece.delta
                if piece.sequence_number <= ignored_to and piece.sequence_number != NO_INDEX:
                    continue
                if delta and (
                    (
                        piece.type == growing.type
                        and piece.item_id == growing.item_id
                        and piece.output_index == growing.output_index
                        and piece.content_index == growing.content_index
                        and piece.summary_index == growing.summary_index
                    )
                    or answer.switch_to(piece, out)
                ):
                    if self._keeps_events:
                        out.append(EventDelta("responses", piece.type, raw.replace(b"\n", b" ")))
                    growing.grow(piece, out)
                elif self._apply_block(block, out):
                    return out
        if self._sse.error is not None:
            out.append(answer.fail(protocol_error(str(self._sse.error), self._sse.error.excerpt)))
        return out

    def close(self, *, cut: bool = False) -> list[AnyDelta]:
        out: list[AnyDelta] = []
        if not self._answer.ended and not cut and self._is_terminal(block := self._sse.unfinished_block()):
            self._apply_block(block, out)
        if not self._answer.ended:
            unended = stream_cut("the stream ended without response.completed")
            out.append(self._answer.fail(protocol_error(self.skipped) if self.skipped else unended))
        return out

    def rebuilt_body(self) -> JsonObject:
        return self._answer.rebuilt_body()

    # ── a response that its provider keeps ───────────────────────────────────────────────────────────────────

    @property
    def response_id(self) -> str:
        return self._answer.id

    @property
    def settled(self) -> bool:
        """The provider has ended the response, whole or not."""
        return self._answer.settled

    @property
    def last_number(self) -> int:
        """The highest `sequence_number` that was read."""
        return max(self._last_number, self._answer.growing.number)

    @property
    def is_queued(self) -> bool:
        return self._answer.is_queued

    def reopen(self) -> None:
        """The bytes of another connection follow."""
        self._sse = SseDecoder()
        self._head = b""
        self._ignored_to = self.last_number
        self._answer.reopen()

    def take_whole(self, response: JsonObject) -> list[AnyDelta]:
        """The response as the provider gives it whole; of one that has not ended only the state is taken."""
        out: list[AnyDelta] = []
        kind = next((kind for kind, status in TERMINAL.items() if status == response.get("status")), "")
        if not kind:
            kind, response = "response.in_progress", {**response, "output": []}
        self._answer.apply(kind, {"type": kind, "response": response}, out)
        return out

    def _is_terminal(self, block: bytes) -> bool:
        sent = self._sse.parse(block)
        try:
            return sent is not None and _kind_of(sent.event, decode_object(sent.data)) in TERMINAL
        except PeerError:
            return False

    def _apply_block(self, block: bytes, out: list[AnyDelta]) -> bool:
        """Decodes and applies one block of any shape. True where it ended the answer."""
        answer = self._answer
        sent = self._sse.parse(block)
        if sent is None or not (data := sent.data.strip()) or data == b"[DONE]" or data.startswith(b":"):
            return False
        try:
            event = decode_object(data)
        except PeerError as exc:
            if self.skipped or exc.code == GLUED or not answer.id:  # as every dialect's decoder
                out.append(answer.fail(protocol_error(str(exc), data)))
            self.skipped = str(exc)
            return answer.ended
        kind, number = _kind_of(sent.event, event), event.get("sequence_number")
        if (
            isinstance(number, int) and kind != "error"
        ):  # an error may be the connection's own, with a number of its own
            if NO_INDEX < number <= self._ignored_to:
                return False
            self._last_number = max(self._last_number, number)
        answer.apply(kind, event, out)
        return answer.ended


def _kind_of(name: str, event: JsonObject) -> str:
    kind = event.get("type")
    return kind if isinstance(kind, str) else name


def _head_of(block: bytes) -> bytes:
    """The bytes before the data of a block in the usual shape; empty for other shapes, which leave the fast path."""
    if block.startswith(b"data: "):
        return block[:6]
    if block.startswith(b"event: ") and block.startswith(b"\ndata: ", at := block.find(b"\n")):
        return block[: at + 7]
    return b""
