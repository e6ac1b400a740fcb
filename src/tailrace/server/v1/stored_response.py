"""A stored response is a run: its events, its body and its place in a conversation, all read from the run's log.

Owns the way from a run to what the Responses API says of it. Every event follows from the log alone, numbers included,
so a stream can be taken up at any number, on any connection, by any process.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.agent.session import KIND as TURN
from tailrace.agent.session import history_of
from tailrace.agent.turn import Turn
from tailrace.calls.listener import KIND as CALL
from tailrace.calls.service import CallSpec
from tailrace.events import Entry, MessageChunk, MessageRecorded, MessageStop, RunFinished, Snapshot
from tailrace.messages import Dialect, JsonObject, Message, Value
from tailrace.ports import Journal, Run
from tailrace.server.http.api_errors import ApiError
from tailrace.server.v1.api_formats import RESPONSES, AnswerHeader, answer_id, error_delta, responses_encoder, run_id_of
from tailrace.server.v1.log_to_deltas import LogToDeltas


class Origin(Value):
    """What the response repeats of its request, and what reading it takes. Stored with the run."""

    model: str
    source: Dialect  # of the deltas: it says how tokens are counted
    fields: JsonObject
    input: tuple[JsonObject, ...] = ()
    background: bool = False
    reasoning: bool = False


def no_such_response(given: str) -> ApiError:
    return ApiError(404, f"no such response: {given[:80]!r}", code="response_not_found", param="response_id")


async def response_run(journal: Journal, given: str) -> Run:
    """The run behind a response's id. Raises `ApiError` 404 for anything that is not a stored response."""
    run_id = run_id_of(given)
    if not given.startswith(RESPONSES.prefix) or run_id == given:
        raise no_such_response(given)
    run = await journal.get(run_id)
    if not run.new.input.get("origin"):
        raise no_such_response(given)
    return run


class StoredResponse:
    """One response while its log is read, from the first entry on."""

    def __init__(self, run: Run, *, after: int = -1) -> None:
        """`after` is the number of the last event that the client has."""
        self.origin = msgspec.convert(run.new.input["origin"], Origin)
        foreign = [tool["name"] for tool in run.new.input.get("foreign", ())]
        self._telling = LogToDeltas(agent=run.new.kind == TURN, foreign=foreign, reasoning=self.origin.reasoning)
        self._encoder = responses_encoder(
            AnswerHeader(
                id=answer_id(RESPONSES, run.id),
                model=self.origin.model,
                created=int(run.created_at),
                source=self.origin.source,
                fields=self.origin.fields,
            )
        )
        self._skip = after + 1
        self._began = False
        self.said = False  # there is something of an answer, or it has ended well

    @property
    def body(self) -> JsonObject:
        """The response as far as it has been read."""
        return self._encoder.response

    @property
    def ahead(self) -> int:
        """How many events the client claims to have that have not been."""
        return self._skip

    @property
    def failure(self) -> ApiError | None:
        """Why there is no answer, once the log has been read to its end."""
        return self._telling.failure()

    def events(self, entries: Iterable[Entry]) -> bytes:
        """What these entries say, without what the client has. Raises `ApiError` 410 where they are gone (H98)."""
        out: list[bytes] = []
        if not self._began:
            self._began = True
            out.append(self._encoder.start())
        for entry in entries:
            if isinstance(entry.event, Snapshot):
                raise ApiError(410, "the events of this response are no longer kept; its body is", code="compacted")
            deltas = self._telling.take(entry)
            if deltas:
                out.append(self._encoder.encode(deltas))
            if isinstance(entry.event, RunFinished):
                out.append(self._ending(entry.event))
                self.said = self.said or self.failure is None
            else:
                self.said = self.said or bool(deltas)
        return self._unseen(b"".join(out))

    def _ending(self, finished: RunFinished) -> bytes:
        if finished.status == "stopped":
            return self._encoder.cancel()
        if (error := self._telling.failure()) is not None:
            return self._encoder.encode([error_delta(error)])
        return self._encoder.close(self._telling.stop())

    def _unseen(self, data: bytes) -> bytes:
        """Each event ends in a blank line and has the next number."""
        if not self._skip:
            return data
        events = data.split(b"\n\n")[:-1]
        dropped = min(self._skip, len(events))
        self._skip -= dropped
        return b"".join(event + b"\n\n" for event in events[dropped:])


async def body_of(journal: Journal, run: Run) -> JsonObject:
    """The response as it now stands."""
    entries: Iterable[Entry] = await journal.read(run.id)
    if run.first_seq > 1:  # compacted: its texts are in the messages alone, and are said as if they had come whole
        entries = [whole for entry in await journal.facts(run.id) for whole in _with_texts(entry)]
    response = StoredResponse(run)
    response.events(entries)
    return response.body


def _with_texts(entry: Entry) -> list[Entry]:
    match entry.event:
        case MessageRecorded(message) if message.role == "assistant" and message.text:
            text, end = MessageChunk(message.text), MessageStop(final=False)
            return [Entry(entry.seq, text, entry.attempt), entry, Entry(entry.seq, end, entry.attempt)]
        case _:
            return [entry]


# ── conversations ────────────────────────────────────────────────────────────────────────────────────────────


async def history_after(journal: Journal, run: Run) -> tuple[Message, ...]:
    """All that was said up to the end of this run."""
    facts = await journal.facts(run.id)
    if run.new.kind == CALL:
        spec = msgspec.convert(run.new.input, CallSpec)
        said = [e.event.message for e in facts if isinstance(e.event, MessageRecorded)]
        return (*spec.history, *RESPONSES.read(spec.body).request.messages, *said)
    turn_spec = msgspec.convert(run.new.input, TurnSpec)
    history = turn_spec.history
    if history is None:
        history = await history_of(journal, run.new.session, before=run.id) if run.new.session else ()
    turn = Turn(history, foreign=[tool.name for tool in turn_spec.foreign])
    turn.replay(facts)
    return turn.messages


async def history_in(journal: Journal, session: str) -> tuple[Message, ...]:
    """All that was said in this conversation: its newest run knows what came before it."""
    for run in await journal.runs(session=session, limit=1):
        if run.new.kind in (CALL, TURN):
            return await history_after(journal, run)
    return ()
