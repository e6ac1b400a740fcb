"""A run's log as the deltas of one answer, which the dialects' encoders take.

Pure, a function of the entries alone: the same log gives the same deltas in the same order, live, after a lost
connection and after a restart. A resumed stream therefore numbers its events as the first one did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import assert_never, get_args

from msgspec.structs import replace

from tailrace import messages
from tailrace.agent.turn_spec import TurnSpec
from tailrace.events import AnyEvent, ApprovalAsked, Entry, RunFinished, RunStarted, UsageRecorded
from tailrace.events.attempt_text import AttemptText
from tailrace.runs.view import RunView, changes
from tailrace.server.http.api_errors import ApiError, failed_run_error
from tailrace.server.v1.client_tool_calls import client_call_id
from tailrace.wire.dialect import WireDialect, stop_sequence_delta
from tailrace.wire.dialects import CHAT, DIALECTS
from tailrace.wire.reasoning_seal import USUAL_FIELD, named_field
from tailrace.wire.translation.message_deltas import message_deltas

_UNSEEN: frozenset[type[AnyEvent]] = frozenset({RunStarted, UsageRecorded})  # add nothing to an answer
GAP = "\n\n"  # between the texts before and after one of our tools: the client sees one message


def is_last_message_only(spec: TurnSpec) -> bool:
    """Whether the turn's answer is its last message alone: the client asked for JSON, and more than one message may
    come of it."""
    request = spec.request
    if request is None or (request.response_schema is None and not request.json_object):
        return False
    return spec.tools != () or bool(spec.foreign)


class _LastMessage:
    """The text of the newest message, as long as it may be the last one."""

    def __init__(self) -> None:
        self._texts = AttemptText()
        self._recorded = False  # the message is whole: the next text is another message's

    @property
    def text(self) -> str:
        return self._texts.text

    def holds(self, change: changes.Change) -> bool:
        """Takes note of a change; True where it is about texts alone, which wait here."""
        match change:
            case changes.TextGrew(text=text, attempt=attempt):
                if self._recorded and text:
                    self._texts, self._recorded = AttemptText(), False
                if text:
                    self._texts.add(text, attempt)
                return True
            case changes.TextWithdrawn(attempt=attempt, discarded=True):
                self._texts.withdraw(attempt)
                return True
            case changes.MessageJoined(message=message) if message.role == "assistant":
                self._recorded = True
                if message.tool_calls:
                    self._texts = AttemptText()
                return False
            case _:
                return False


class LogToDeltas:
    """Reads one run. `turn_id`: the run is a turn, whose own tools the client does not see; else it is a raw call.
    `foreign`: the names of the tools that the client runs. `last_message_only`: the text of a message is held until it
    is known to be the last one; what the agent said before its tools is not part of the answer (K134). `in_order`: the
    client's API has thoughts and texts as they came, each a block or an item, where another has one field for all the
    thoughts and one for all the texts. `source`: the dialect of the model. `ask`: how the client is told of a question
    for approval."""

    def __init__(
        self,
        *,
        turn_id: str | None = None,
        foreign: Collection[str] = (),
        reasoning: bool = False,
        last_message_only: bool = False,
        in_order: bool = False,
        source: WireDialect = CHAT,
        ask: Callable[[ApprovalAsked], messages.AnyDelta] | None = None,
    ) -> None:
        self._view = RunView()
        self._turn_id = turn_id
        self._last_message = _LastMessage() if last_message_only else None
        self._foreign = frozenset(foreign)
        self._reasoning = reasoning or turn_id is None
        self._in_order = in_order
        self._ask = ask
        self._parts: list[messages.Part] = []  # in their order: what came before the newest texts and thoughts
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._source = source
        self._provider = ""  # of the newest attempt
        self._named_field = USUAL_FIELD  # in which the newest attempt has its thoughts
        self._reasoning_field = USUAL_FIELD  # of the newest thoughts
        self._calls: list[messages.ToolCall] = []
        self._gap = False  # a text has ended: the next one begins a paragraph
        self._thought_gap = False  # so for the thoughts of another message
        self._stop: messages.Stop = "unknown"
        self._stop_sequence = ""
        self.finished: RunFinished | None = None

    def take_entry(self, entry: Entry) -> list[tuple[changes.Change, list[messages.AnyDelta]]]:
        """What the entry changes, each with the deltas that it adds to the answer."""
        if entry.event.__class__ in _UNSEEN:
            return []
        return [(change, self._deltas(change)) for change in self._view.apply(entry)]

    def _deltas(self, change: changes.Change) -> list[messages.AnyDelta]:
        if self._last_message is not None and self._last_message.holds(change):
            return []
        match change:
            case changes.TextGrew():
                return self._grown(change)
            case changes.ThoughtGrew(text=text):
                return [self._reasoning_delta(text)] if text and self._reasoning else []
            case changes.AttemptBegan(asked=asked):
                self._provider, self._named_field = asked.provider, USUAL_FIELD
                self._source = self._source if asked.dialect is None else DIALECTS[asked.dialect]
                return []
            case changes.Relayed():
                return self._relayed(change)
            case changes.MessageJoined(message=message, stop=stop, stop_sequence=stop_sequence):
                self._stop_sequence = stop_sequence
                return self._recorded(message, stop) if message.role == "assistant" else []
            case changes.Ended(finished=finished):
                self.finished = finished
                held = self._last_message.text if self._last_message is not None else ""
                return [*([messages.TextDelta(self._add_text(held))] if held else []), *self.end_deltas()]
            case changes.Asked(question=question):
                return self._asked(question)
            case (
                changes.TextWithdrawn()
                | changes.CallWritten()
                | changes.CallRuns()
                | changes.CallEnded()
                | changes.Answered()
                | changes.Steered()
                | changes.Noticed()
            ):
                return []
            case _:
                assert_never(change)

    def _grown(self, change: changes.TextGrew) -> list[messages.AnyDelta]:
        text, ends = change.text, change.ends
        delta: list[messages.AnyDelta] = [messages.TextDelta(self._add_text(text))] if text or not ends else []
        if ends and not change.final:
            self._gap = bool(self._texts)
        return delta

    def chunk_text(self, batch: Sequence[Entry]) -> str:
        """As `take_entry`, for a batch that is one chunk of text: what it adds to the answer. Empty, with nothing
        taken, for any other batch."""
        if self._last_message is not None or not (text := self._view.text_of_chunk(batch)):
            return ""
        if self._gap or self._thoughts:
            return self._add_text(text)
        self._texts.append(text)
        return text

    def _add_text(self, text: str) -> str:
        if self._gap:
            text, self._gap = GAP + text, False
        if self._thoughts and self._in_order and text:
            self._parts += self._thought()
            self._thoughts, self._thought_gap = [], False
        self._texts.append(text)
        return text

    def _asked(self, question: ApprovalAsked) -> list[messages.AnyDelta]:
        """A question that is denied at once is none to the client, and JSON has no place for one."""
        if self._ask is None or self._last_message is not None or not question.expires_at:
            return []
        told = self._ask(question)
        if isinstance(told, messages.TextDelta):
            self._gap = bool(self._texts)
            told = messages.TextDelta(self._add_text(told.text))
            self._gap = True
        elif isinstance(told, messages.NativeDelta):
            self._parts += (*self._thought(), *self._said(), messages.Native(told.dialect, told.item["item"]))
            self._texts, self._thoughts, self._gap, self._thought_gap = [], [], False, False
        return [told]

    def _relayed(self, relayed: changes.Relayed) -> list[messages.AnyDelta]:
        """A provider's own events, for clients of its dialect; of a chat provider, where it has its reasoning."""
        dialect, events = DIALECTS[relayed.dialect], relayed.events
        if relayed.body is not None:
            kind = f"response.{relayed.body.get('status')}"
            events = ({"type": kind, "response": relayed.body},)
        deltas = dialect.deltas_of_log(events)
        if dialect.logs_events:
            return deltas
        for delta in deltas:
            if isinstance(delta, messages.NativeDelta) and (named := named_field(delta)) is not None:
                self._named_field = named
        return deltas if self._reasoning else []

    def _reasoning_delta(self, text: str) -> messages.ReasoningDelta:
        if self._texts and self._in_order and text:
            self._parts += self._said()
            self._texts, self._gap = [], False
        if self._thought_gap and text:
            text, self._thought_gap = GAP + text, False
        self._thoughts.append(text)
        self._reasoning_field = self._named_field
        return messages.ReasoningDelta(text)

    def _recorded(self, message: messages.Message, stop: str) -> list[messages.AnyDelta]:
        """The texts came in chunks; here comes what only the recorded message has."""
        self._stop = _STOPS.get(stop, "unknown")
        self._thought_gap = bool(self._thoughts)
        rest: list[messages.AnyDelta] = []
        if self._turn_id is None:
            whole = message_deltas(message, texts=False)
            rest += [delta for delta in whole if isinstance(delta, (messages.RefusalDelta, messages.NativeDelta))]
        for call in self._shown_calls(message):
            rest.append(messages.ToolCallDelta(len(self._calls), call.id, call.name, call.arguments))
            self._calls.append(call)
        return rest

    def _shown_calls(self, message: messages.Message) -> list[messages.ToolCall]:
        if self._turn_id is None:
            return [*message.tool_calls]
        calls = [call for call in message.tool_calls if call.name in self._foreign]
        return [
            replace(call, id=client_call_id(self._turn_id, number))
            for number, call in enumerate(calls, len(self._calls))
        ]

    def begin_answer(self) -> None:
        """What follows is another answer of the run's: it does not go on from the texts so far."""
        self._parts, self._texts, self._thoughts = [], [], []
        self._gap = self._thought_gap = False

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def failure(self) -> ApiError | None:
        """Why the client gets an error; None where it gets an answer. The text of a cut turn counts as an answer,
        that of a raw model does not."""
        finished = self.finished
        if finished is None:
            return ApiError(503, "the server is stopping; the run goes on after its restart", code="server_stopping")
        if finished.status in ("completed", "stopped") or (
            finished.status == "incomplete" and self._turn_id is not None
        ):
            return None
        return failed_run_error(finished, self._provider)

    def raise_failure(self) -> None:
        """Raises the `failure`, where there is one."""
        if (error := self.failure()) is not None:
            try:
                raise error
            finally:
                del error  # this frame is in its traceback: a cycle (L148)

    def stop(self) -> messages.Stop:
        """How the answer ended, as a neutral value."""
        if self.finished is not None and self.finished.status in ("incomplete", "stopped"):
            return "length"
        if self._calls:
            return "tools"
        return self._stop if self._stop != "unknown" else "end"

    def stop_sequence(self) -> str:
        """The stop string at which the answer ended; empty where it ended otherwise, or the provider does not say."""
        return self._stop_sequence if self.stop() == "end" else ""

    def end_deltas(self) -> list[messages.AnyDelta]:
        named = self.stop_sequence()
        stopped = [stop_sequence_delta(self._source.name, named)] if named else []
        return [*stopped, messages.UsageDelta(self.usage())]

    def usage(self) -> messages.Usage:
        return self.finished.usage if self.finished is not None else messages.Usage()

    def message(self) -> messages.Message:
        """The whole text."""
        return messages.Message("assistant", (*self._parts, *self._thought(), *self._said(), *self._calls))

    def _thought(self) -> list[messages.Part]:
        """The newest thoughts, as one part."""
        if not (thoughts := "".join(self._thoughts)):
            return []
        maker = f"{self._provider}/"
        if not self._source.reasoning_field:
            return [messages.Reasoning(thoughts, maker=maker)]
        native = {self._reasoning_field: thoughts} if self._reasoning_field else None
        return [messages.Reasoning(thoughts, self._source.name, native, maker)]

    def _said(self) -> list[messages.Part]:
        """The newest texts, as one part."""
        text = "".join(self._texts)
        return [messages.Text(text)] if text else []


_STOPS: dict[str, messages.Stop] = {stop: stop for stop in get_args(messages.Stop)}


def progress_comment(change: changes.Change) -> str:
    """What the agent is doing, in one line, for an SSE comment; empty where there is nothing to tell."""
    match change:
        case changes.Asked(question=question) if question.expires_at:
            return f"waiting for an approval of {question.tool_name}: {question.command}"
        case changes.CallRuns(tool_name=name, preview=preview):
            return f"tool {name}: {preview}" if preview else f"tool {name}"
        case changes.CallEnded(tool_name=name, ok=ok, duration_s=float(duration)):
            return f"tool {name} {'done' if ok else 'failed'} after {duration:.1f} s"
        case changes.ToolRunsLong(tool_name=name, duration_s=duration):
            return f"tool {name} still runs after {duration:.0f} s"
        case changes.UserNotice(text=text):
            return text
        case _:
            return ""
