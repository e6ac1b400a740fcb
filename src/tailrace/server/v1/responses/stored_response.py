"""A stored response is a run: its events, its body and its place in a conversation are read from the run's log.

Owns the way from a run to the Responses API's objects. Every event follows from the log alone, numbers included, so a
stream can be resumed at any number, on any connection, by any process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from tailrace.agent.context import outweighs
from tailrace.agent.session import TURN_KIND, history_of, without_refused
from tailrace.agent.turn import Turn
from tailrace.agent.turn_spec import TurnSpec
from tailrace.calls.call_log import CALL_KIND
from tailrace.calls.service import CallSpec
from tailrace.errors import RunNotFound
from tailrace.events import Entry, MessageRecorded, RunFinished, SteerSoFar
from tailrace.messages import AnyDelta, Dialect, EventDelta, JsonObject, Message, Value
from tailrace.ports import ENDED, Journal, Run
from tailrace.runs.charged_to import owner_of
from tailrace.runs.failures import is_too_long
from tailrace.runs.view.changes import AttemptBegan, Change, Ended, Restored, Steered
from tailrace.server.http.api_errors import ApiError, error_delta, is_said_in_stream
from tailrace.server.http.auth import Identity
from tailrace.server.v1.client_call import answer_id, question_delta, run_id_of
from tailrace.server.v1.log_to_deltas import LogToDeltas, is_last_message_only
from tailrace.server.v1.responses.responses_request import ResponsesRequest
from tailrace.wire.dialects import DIALECTS, RESPONSES
from tailrace.wire.responses.item_ids import has_lost_its_seal, is_reference, run_key_of
from tailrace.wire.responses.relayed_items import SNAPSHOTS
from tailrace.wire.served_dialect import AnswerHeader

SEARCHED_RUNS: Final = 50  # of the caller's: an item of a provider's is looked for in the newest of them
SEARCHED_PAGES: Final = 10  # of as many runs, in which the caller's are looked for among those of other keys


class Origin(Value):
    """What the response repeats of its request, and what reading its log needs. Stored with the run."""

    model: str
    source: Dialect  # of the deltas: it defines how tokens are counted
    fields: JsonObject
    input: tuple[JsonObject, ...] = ()
    background: bool = False
    reasoning: bool = False
    owner: str = ""  # the name of the key that made it
    state: JsonObject = msgspec.field(default_factory=dict)  # fields of the response that are ours, not the provider's
    replaces: bool = False  # the input is all that is left of the conversation: an item was deleted
    steered: bool = False  # a turn over a web socket: told as created at once, and each steer ends it for a successor
    local: bool = False  # not stored: the web socket that asked for it goes on from it


def no_such_response(response_id: str, param: str = "response_id") -> ApiError:
    """In the words of the API, where clients look for them."""
    if param == "previous_response_id":
        message = f"Previous response with id '{response_id[:80]}' not found."
        return ApiError(404, message, code="previous_response_not_found", param=param)
    return ApiError(404, f"no such response: {response_id[:80]!r}", code="response_not_found", param=param)


async def response_run(
    journal: Journal, response_id: str, caller: Identity, param: str = "response_id", local: Container[str] = ()
) -> Run:
    """The run behind a response's id. Raises `ApiError` 404 for anything that is not a stored response of the caller:
    another key's is answered as one that does not exist. `param` is where the client gave the id. `local`: responses
    that are not stored, and that the caller's connection may go on from."""
    run_id = run_id_of(_first_part(response_id))
    if not response_id.startswith(RESPONSES.id_prefix) or run_id == response_id:
        raise no_such_response(response_id, param)
    try:
        run = await journal.get(run_id)
    except RunNotFound as exc:
        raise no_such_response(response_id, param) from exc
    is_known = _is_stored(run) or response_id in local
    if not is_known or not caller.owns(owner_of(run)):
        raise no_such_response(response_id, param)
    return run


# A turn that is steered over a web socket is several responses: the first has the run's id, each successor the steer's
# behind it.
_STEER: Final = "s"  # no digit of an id


def _first_part(response_id: str) -> str:
    head, prefix, key = response_id.rpartition("_")
    return head + prefix + key.partition(_STEER)[0]


def successor_id(response_id: str, steer_id: str) -> str:
    return _first_part(response_id) + _STEER + steer_id.rpartition("_")[2]


class StoredResponse:
    """One response while its log is read, from the first entry on."""

    def __init__(self, run: Run, *, after: int = -1, response_id: str = "", successors: bool = False) -> None:
        """`after` is the number of the last event that the client has. `response_id`: of the run's responses, the one
        that is read; empty: its first. `successors`: those after it are read too."""
        self.origin = msgspec.convert(run.new.input["origin"], Origin)
        turn = msgspec.convert(run.new.input, TurnSpec) if run.new.kind == TURN_KIND else None
        self._log_to_deltas = LogToDeltas(
            turn_id=run.id if turn is not None else None,
            foreign=[tool.name for tool in turn.foreign] if turn is not None else (),
            reasoning=self.origin.reasoning,
            source=DIALECTS[self.origin.source],
            last_message_only=turn is not None and is_last_message_only(turn),
            in_order=True,
            ask=partial(question_delta, RESPONSES, run.id, ""),
        )
        self._header = AnswerHeader(
            answer_id(RESPONSES, run.id),
            self.origin.model,
            int(run.created_at),
            DIALECTS[self.origin.source],
            fields=self.origin.fields,
            state=self.origin.state,
        )
        self._encoder = RESPONSES.new_encoder(self._header)
        self._wanted = "" if successors else response_id or self._header.id
        self._is_shown = self._wanted in ("", self._header.id)  # of the response that the entries are of now
        self._shown = self._encoder if self._is_shown else None
        self._is_fresh = False  # a successor that has said nothing yet
        self._steers: list[SteerSoFar] = []
        self._skip = after + 1
        self._began = False
        self.has_output = False  # an output has begun, or the run has ended without an error

    @property
    def body(self) -> JsonObject:
        """The response as far as it has been read. Raises `ApiError` 404 for a successor that there is not."""
        if self._shown is None:
            raise no_such_response(self._wanted)
        return self._shown.response

    @property
    def ahead(self) -> int:
        """How many events past the last one the client's cursor is."""
        return self._skip

    @property
    def has_ended(self) -> bool:
        return self._log_to_deltas.finished is not None

    def take_steers(self) -> list[SteerSoFar]:
        """Those whose state has changed since this was asked last."""
        changed, self._steers = self._steers, []
        return changed

    def raise_failure(self) -> None:
        """Raises `ApiError` where there is no answer; known once the log has been read to its end."""
        self._log_to_deltas.raise_failure()

    def fails_in_stream(self, request: web.Request) -> bool:
        """Whether its events are to say that it failed, where a status could still do so."""
        error = self._log_to_deltas.failure()
        return error is not None and is_said_in_stream(error, request)

    def events(self, entries: Sequence[Entry]) -> bytes:
        """These entries as events, less those that the client has. Raises `ApiError` 410 for compacted ones (H98)."""
        plain = self.has_output and not self._skip and self._is_shown
        if plain and (text := self._log_to_deltas.chunk_text(entries)):
            return self._encoder.encode_text(text)
        out: list[bytes] = []
        at_once = self.origin.background or self.origin.steered  # others begin with their provider's own first event
        if not self._began and at_once:
            self._began = True
            out += [self._encoder.start()] if self._is_shown else []
        for entry in entries:
            for change, deltas in self._log_to_deltas.take_entry(entry):
                said = self._encoded(change, deltas)
                out += said if self._is_shown else ()
                if change.__class__ is Steered:
                    out += self._steered(change)
        return self._unseen(b"".join(out))

    def _steered(self, change: Steered) -> list[bytes]:
        """A steer that the model is given ends a response and begins the next; several at once begin one."""
        self._steers.append(change.steer)
        if change.steer.state != "committed" or not self.origin.steered or self._is_fresh:
            return []
        told = [self._encoder.steered()] if self._is_shown else []
        header = self._header
        state = {**header.state, "previous_response_id": header.id}
        self._header = msgspec.structs.replace(
            header, id=successor_id(header.id, change.steer.accepted.steer_id), state=state
        )
        self._encoder, self._is_fresh = RESPONSES.new_encoder(self._header), True
        self._is_shown = self._wanted in ("", self._header.id)
        self._log_to_deltas.begin_answer()
        if self._is_shown:
            self._shown = self._encoder
            told.append(self._encoder.start())
        return told

    def _encoded(self, change: Change, deltas: list[AnyDelta]) -> list[bytes]:
        if change.__class__ is Restored:
            raise ApiError(410, "the events of this response are no longer kept; its body is", code="compacted")
        if change.__class__ is AttemptBegan:
            dialect = change.asked.dialect
            self._encoder.new_attempt(change.asked.provider, None if dialect is None else DIALECTS[dialect])
        out = [self._encoder.encode(deltas)] if deltas else []
        self._is_fresh = self._is_fresh and not deltas
        if change.__class__ is Ended:
            out.append(self._ending(change.finished))
            self.has_output = self.has_output or self._log_to_deltas.failure() is None
        elif deltas and not self.has_output:
            self.has_output = not all(map(_says_nothing, deltas))
        return out

    def _ending(self, finished: RunFinished) -> bytes:
        if finished.status == "stopped":
            return self._encoder.cancel()
        if (error := self._log_to_deltas.failure()) is not None:
            return self._encoder.encode([error_delta(error)])
        return self._encoder.close(self._log_to_deltas.stop(), at=finished.at)

    def _unseen(self, data: bytes) -> bytes:
        """Drops the events that the client has. Each event ends in a blank line and has the next number."""
        if not self._skip:
            return data
        events = data.split(b"\n\n")[:-1]
        dropped = min(self._skip, len(events))
        self._skip -= dropped
        return b"".join(event + b"\n\n" for event in events[dropped:])


def _says_nothing(delta: AnyDelta) -> bool:
    """Whether it only says that the answer is under way."""
    return isinstance(delta, EventDelta) and delta.name in SNAPSHOTS


def _is_stored(run: Run) -> bool:
    origin: JsonObject = run.new.input.get("origin") or {"local": True}
    return not origin.get("local")


def warmed_response(response_id: str, asked: ResponsesRequest) -> bytes:
    """The events of a response for which no model is asked."""
    header = AnswerHeader(response_id, asked.model, int(time.time()), RESPONSES, fields=asked.echoed, state=asked.state)
    return RESPONSES.new_encoder(header).close("end", at=time.time())


async def response_body(journal: Journal, run: Run, response_id: str = "") -> JsonObject:
    """The response in its current state; its run's first, where no other is named."""
    entries: Sequence[Entry] = await journal.read(run.id)
    if run.first_seq > 1:  # compacted: only the recorded messages have its texts
        entries = await journal.facts(run.id)
    response = StoredResponse(run, response_id=response_id)
    await asyncio.to_thread(response.events, entries)  # a long log takes a while: meanwhile the loop serves others
    return response.body


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────────


def no_such_item(item: JsonObject) -> ApiError:
    """In the words of the API: clients look for them."""
    return ApiError(404, f"Item with id '{str(item.get('id'))[:80]}' not found.", param="input")


def input_items_of(run: Run) -> list[JsonObject]:
    """The items of a stored response's input, each with an id."""
    key = run.id.removeprefix("run_")
    found: list[JsonObject] = []
    for index, item in enumerate(StoredResponse(run).origin.input):
        whole: JsonObject = {"type": "message", **item}
        whole["id"] = item["id"] if isinstance(item.get("id"), str) else f"in_{key}_{index}"
        whole["status"] = item.get("status") or "completed"
        if isinstance(whole.get("content"), str):
            kind = "output_text" if whole.get("role") == "assistant" else "input_text"
            whole["content"] = [{"type": kind, "text": whole["content"]}]
        found.append(whole)
    return found


class ItemsQuery(msgspec.Struct):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


def item_page(items: Sequence[JsonObject], query: ItemsQuery) -> JsonObject:
    """A page of these items, which are oldest first. Raises `ApiError` 400."""
    ordered = [*items] if query.order == "asc" else [*reversed(items)]
    ids = [item["id"] for item in ordered]
    if query.after and query.after not in ids:
        raise ApiError(400, "no such item", param="after")
    start = ids.index(query.after) + 1 if query.after else 0
    page = ordered[start : start + query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + query.limit < len(items),
    }


async def with_referenced_items(
    journal: Journal, items: Iterable[JsonObject], caller: Identity, *, provider_knows: bool
) -> list[JsonObject]:
    """The input, with the stored item in place of each reference to it. A reference to an item of a provider's making
    stays where that provider is asked, which is the one to know it; for any other target the item is looked for in the
    caller's newest stored responses. Raises `ApiError` 404 for an item that is not found, or is another key's.
    Reasoning of ours without its encrypted content gets it back where the response is stored (K131)."""
    known = _KnownItems(journal, caller)
    found: list[JsonObject] = []
    for item in items:
        if has_lost_its_seal(item):
            found.append(await known.with_its_seal(item))
        elif not is_reference(item):
            found.append(item)
        elif (key := run_key_of(item)) is not None:
            found.append(await known.of_run(key, item))
        else:
            found.append(item if provider_knows else await known.of_any_run(item))
    return found


class _KnownItems:
    """The items of the caller's stored responses; each response is read once."""

    def __init__(self, journal: Journal, caller: Identity) -> None:
        self._journal = journal
        self._caller = caller
        self._by_run: dict[str, dict[str, JsonObject]] = {}
        self._unread: list[Run] | None = None  # responses to search, the newest last
        self._searched: dict[str, JsonObject] = {}

    async def of_run(self, key: str, reference: JsonObject) -> JsonObject:
        if key not in self._by_run:
            try:
                run = await response_run(self._journal, RESPONSES.id_prefix + key, self._caller)
            except ApiError as exc:
                raise no_such_item(reference) from exc
            self._by_run[key] = await self._items_of(run)
        return _item_in(self._by_run[key], reference)

    async def with_its_seal(self, item: JsonObject) -> JsonObject:
        try:
            stored = await self.of_run(run_key_of(item) or "", item)
        except ApiError:
            return item
        return {**item, "encrypted_content": stored.get("encrypted_content")}

    async def of_any_run(self, reference: JsonObject) -> JsonObject:
        if self._unread is None:
            self._unread = [*reversed(await self._own_runs())]
        while str(reference.get("id")) not in self._searched and self._unread:
            self._searched = {**await self._items_of(self._unread.pop()), **self._searched}
        return _item_in(self._searched, reference)

    async def _own_runs(self) -> list[Run]:
        """The caller's newest stored responses that models have made, the newest first."""
        own: list[Run] = []
        before: str | None = None
        for _ in range(SEARCHED_PAGES):
            page = await self._journal.runs(kind=CALL_KIND, states=ENDED, before=before, limit=SEARCHED_RUNS)
            own += [run for run in page if _is_stored(run) and self._caller.owns(owner_of(run))]
            if len(own) >= SEARCHED_RUNS or len(page) < SEARCHED_RUNS:
                break
            before = page[-1].id
        return own[:SEARCHED_RUNS]

    async def _items_of(self, run: Run) -> dict[str, JsonObject]:
        """By id. A reference that was left to its provider is none: it would stand for itself."""
        asked = [item for item in input_items_of(run) if not is_reference(item)]
        answered = (await response_body(self._journal, run))["output"]
        return {item["id"]: item for item in (*asked, *answered) if isinstance(item.get("id"), str)}


def _item_in(items: Mapping[str, JsonObject], reference: JsonObject) -> JsonObject:
    if (item := items.get(str(reference.get("id")))) is None:
        raise no_such_item(reference)
    return item


# ── conversations ────────────────────────────────────────────────────────────────────────────────────────────


async def history_after(journal: Journal, run: Run) -> tuple[Message, ...]:
    """The messages of the conversation up to the end of this run, without a question that is too long for the model:
    every one after it would be refused too."""
    facts = await journal.facts(run.id)
    if run.new.kind == CALL_KIND:
        spec = msgspec.convert(run.new.input, CallSpec)
        asked = RESPONSES.parse_client_request(spec.body).request.messages
        recorded = [e.event.message for e in facts if isinstance(e.event, MessageRecorded)]
        error = run.finished.error if run.finished is not None else None
        if not recorded and error and is_too_long(error) and outweighs(asked, spec.history):
            return spec.history
        return (*spec.history, *asked, *recorded)
    turn_spec = msgspec.convert(run.new.input, TurnSpec)
    history = turn_spec.history
    if history is None:
        session, previous_run = run.new.session, turn_spec.previous_run
        history = await history_of(journal, session, before=run.id, previous_run=previous_run) if session else ()
    turn = Turn(history, foreign=[tool.name for tool in turn_spec.foreign])
    turn.replay(facts)
    return without_refused(run, turn.messages)


async def history_in(journal: Journal, session: str, caller: Identity) -> tuple[Message, ...]:
    """The messages of this conversation: those up to the end of its newest run. Keys with the scope `runs` share their
    conversations; for any other key, another's is 404. 409 while a response is made in it, as OpenAI's API has it: what
    went on from before its end would leave out its answer."""
    for run in await journal.runs(session=session, limit=1):
        if not caller.may("runs") and not caller.owns(owner_of(run)):
            raise ApiError(404, f"no such conversation: {session[:80]!r}", param="conversation")
        if run.state in ("pending", "running"):
            message = "another response is made in this conversation; ask again when it has ended, or cancel it"
            raise ApiError(409, message, code="conversation_locked", param="conversation")
        if run.new.kind in (CALL_KIND, TURN_KIND):
            return await history_after(journal, run)
    return ()
