"""An answer of any dialect as a streamed chat completion, for clients of our own server."""

from __future__ import annotations

from typing import Final, NamedTuple, assert_never

import msgspec

from tailrace import messages
from tailrace.errors import PeerError
from tailrace.messages import AnyDelta, ErrorDelta, JsonObject, NativeDelta, ReasoningDelta, TextDelta, ToolCallDelta
from tailrace.wire.chat.completion import usage_body
from tailrace.wire.chat.encode_body import LEGACY_REASON, REASONS
from tailrace.wire.chat.tool_calls import made_call_id
from tailrace.wire.dialect import WireDialect
from tailrace.wire.failure import contradiction, openai_error_body
from tailrace.wire.peer_json import decode_object, objects_of
from tailrace.wire.served_dialect import AnswerEncoder, AnswerHeader
from tailrace.wire.translation.citations import Citation, of_annotation, of_cited

_encode = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"
_CHOICES = b'"choices":[{'
_NO_USAGE = b',"usage":null'
_NO_CHOICES: Final[frozenset[int]] = frozenset()
_ENDINGS: Final = frozenset({messages.FinishDelta, messages.UsageDelta, ErrorDelta})  # none of these begins an answer
_HEAD_FIELDS = frozenset({"id", "object", "created", "model"})  # ours: none of them may stand behind the head as well


class _Splice(NamedTuple):
    """How chunks of one form become the client's: in another form, and without the `usage: null` in what varies of
    them. Without `ours` they are taken one by one."""

    theirs: messages.EventForm | None
    ours: messages.EventForm | None
    drops_usage: bool = False


_NO_SPLICE: Final = _Splice(None, None)


class StreamEncoder(AnswerEncoder):
    """Holds finish reasons until `close`: text may still follow one, and the caller of `close` may override it."""

    __slots__ = (
        *("_bare_calls", "_begun", "_called", "_created", "_endings", "_has_usage", "_held", "_id", "_include_usage"),
        *("_legacy_calls", "_model", "_open", "_own_created", "_own_head", "_part_start", "_reasons"),
        *("_said", "_splice", "_tail", "_thinking", "_sent_usage", "_usage"),
    )

    dialect = "chat"

    def __init__(self, header: AnswerHeader) -> None:
        super().__init__(header)
        # Where the last chunk has the usage, the others have `usage: null` (H93).
        self._tail = b',"usage":null}\n\n' if header.include_usage else b"}\n\n"
        self._include_usage = header.include_usage
        self._said = self._part_start = 0  # characters of the text, and of what precedes its part
        self._legacy_calls = header.legacy_calls
        self._usage: JsonObject | None = None
        self._open: dict[int, tuple[bytes, bytes]] = {}  # by choice: the bytes before and after a text
        self._reasons: dict[int, str] = {}
        self._called = _NO_CHOICES  # with tool calls
        self._bare_calls: frozenset[tuple[int, int]] = frozenset()  # choice and index of those without arguments so far
        self._thinking = _NO_CHOICES  # begun with thoughts, without a call or a refusal so far
        self._id, self._model, self._own_created = header.id, header.model, header.created
        self._created = header.created  # of the newest chunk that was relayed
        self._held: list[bytes] = []  # chunks before the first content: another attempt may still replace them
        self._endings: list[bytes] = []  # finish reasons and what follows them: sent when the answer has ended
        self._begun = False  # content was sent
        self._tracks_text = True  # until then
        self._own_head = b""  # see `_head`
        self._splice = _NO_SPLICE  # how runs of the newest form are made the client's; of an answer under way, or none
        self._has_usage = self._sent_usage = False

    @property
    def _head(self) -> bytes:
        """Of chunks of ours: an answer that is relayed has none."""
        if not self._own_head:
            ours = {"id": self._id, "object": "chat.completion.chunk"}
            self._own_head = b"data: " + _encode({**ours, "created": self._own_created, "model": self._model})[:-1]
        return self._own_head

    def start(self) -> bytes:
        out: list[bytes] = []
        self._begin(0, out)
        return b"".join(out)

    def encode_text(self, text: str) -> bytes:
        opened = self._open.get(0)
        if opened is None or self._relays is not False or self._ended:
            return self.encode((TextDelta(text),))
        self._said += len(text)
        return b"%b%b%b" % (opened[0], _encode(text), opened[1])

    def _encode_delta(self, delta: AnyDelta, out: list[bytes]) -> None:
        if delta.__class__ is TextDelta:  # nearly every delta: a `match` over structs costs more than all of it
            self._said += len(delta.text)
            before, after = self._open.get(delta.choice) or self._begin(delta.choice, out)
            out += (before, _encode(delta.text), after)
            return
        match delta:
            case ToolCallDelta(replaces=True):
                self._fail(contradiction(), out)
            case ReasoningDelta() | messages.RefusalDelta() | ToolCallDelta():
                self._begin_wordless(delta, out)
                if isinstance(delta, ToolCallDelta):
                    self._note_call(delta)
                if fields := self._fields_of(delta):
                    out.append(self._chunk(delta.choice, fields, None))
            case NativeDelta("chat", {"delta": _} | {"logprobs": _} as item, choice):  # from this dialect's decoder
                self._begin(choice, out)
                out.append(self._chunk(choice, item.get("delta", {}), None, item.get("logprobs")))
            case NativeDelta():
                self._foreign(delta, out)
            case TextDelta() | messages.EventDelta() | messages.EventRunDelta():
                pass  # taken already
            case messages.FinishDelta(reason=reason, choice=choice):
                self._reasons[choice] = self._reason_for(reason, REASONS)
            case messages.UsageDelta():
                self._note_usage(delta)
            case ErrorDelta():
                self._fail(delta, out)
            case _:
                assert_never(delta)

    def close(self, stop: messages.Stop | None = None, *, at: float | None = None) -> bytes:  # noqa: ARG002
        if self._ended:
            return b""
        self._ended, self._splice = True, _NO_SPLICE
        if self._relays:
            if self._include_usage and self._has_usage and not self._sent_usage:
                self._endings.append(b"data: %b\n\n" % self._own({"choices": [], "usage": self._usage}))
            return b"".join((*self._held, *self._endings, _DONE))
        out: list[bytes] = []
        for choice in sorted({0, *self._open, *self._reasons}):
            self._begin(choice, out)
            reason = REASONS[stop] if stop else self._reasons.get(choice, "stop")
            if reason == "stop" and choice in self._called:
                reason = "tool_calls"  # clients run the calls only under this reason
            if reason == "tool_calls" and self._legacy_calls:
                reason = LEGACY_REASON
            if reason != "length":  # the last call may be cut
                out += self._empty_arguments(choice)
            wordless = choice in self._thinking and not self._said
            out.append(self._chunk(choice, {"content": ""} if wordless else {}, reason))
        if self._include_usage:
            out.append(
                b'%b,"choices":[],"usage":%b}\n\n'
                % (self._head, _encode(self._usage or usage_body(messages.Usage(), self._source)))
            )
        return b"".join(out) + _DONE

    def _fail(self, error: ErrorDelta, out: list[bytes]) -> None:
        self._ended, self._splice = True, _NO_SPLICE
        out.append(b"data: %b\n\n" % _encode(openai_error_body(error)))

    # ── the provider's own chunks ────────────────────────────────────────────────────────────────────────────

    def new_attempt(self, provider: str = "", source: WireDialect | None = None) -> None:
        self._splice = _NO_SPLICE
        super().new_attempt(provider, source)

    def _leave_relay(self) -> bool:
        self._held.clear()
        self._endings.clear()
        if self._begun:
            self._begin(0, [])  # the client has the role
        return self._begun

    def _relay(self, delta: messages.EventDelta, out: list[bytes]) -> None:
        """A chunk of this dialect, with all that it has; only its id and its model are ours."""
        event = delta.content if isinstance(delta.content, dict) else decode_object(delta.content)
        if "usage" in event and not self._takes(event := event.copy()):
            return
        if "created" in event:
            self._created = event["created"]
        said, ending = _parted(event)
        if said is not None:
            (out if self._begun else self._held).append(b"data: %b\n\n" % self._own(said))
        if ending is not None:
            self._endings.append(b"data: %b\n\n" % self._own(ending))

    def _relay_run(self, run: messages.EventRunDelta, out: list[bytes]) -> None:
        """Chunks that differ in their text alone, all at once: -52 % CPU of a relayed answer of 2,000 paced tokens."""
        splice = self._splice
        if splice.theirs is not run.form:
            splice = self._splice_of(run)
            if self._begun:
                self._splice = splice
        ours, bodies = splice.ours, run.bodies
        if ours is None:
            super()._relay_run(run, out)
            return
        if splice.drops_usage:
            bodies = [body.replace(_NO_USAGE, b"", 1) for body in bodies]
        out += (ours.prefix, bodies[0] if len(bodies) == 1 else ours.turn.join(bodies), ours.suffix)

    def relayed_form(self, form: messages.EventForm) -> messages.EventForm | None:
        splice = self._splice
        return splice.ours if self._relays and splice.theirs is form and not splice.drops_usage else None

    def _splice_of(self, run: messages.EventRunDelta) -> _Splice:
        """For runs of this form. What varies in it has no bare quote but those of its fields, so what is replaced in
        one chunk is what is replaced in every other; that it then is the chunk that `_relay` would send is checked."""
        theirs, body, event = run.form, run.bodies[0], run.events()[0]
        if not self._begun:
            return _Splice(theirs, None)
        chunk = decode_object(event.data)
        self._takes(chunk)
        self._created = chunk.get("created", self._created)
        their_head, our_head = self._heads(event.data)
        if not their_head or not theirs.prefix.startswith(b"data: " + their_head):
            return _Splice(theirs, None)
        parts = [our_head + theirs.prefix[len(their_head) + 6 :], body, theirs.suffix]
        if not self._include_usage:
            parts = [part.replace(_NO_USAGE, b"", 1) for part in parts]
        if decode_object(b"".join(parts)[6:]) != decode_object(self._own(chunk)):
            return _Splice(theirs, None)
        ours = messages.EventForm(parts[0], parts[2], parts[2] + parts[0])
        return _Splice(theirs, ours, drops_usage=parts[1] != body)

    def _takes(self, event: JsonObject) -> bool:
        """Whether the client gets this chunk: one that has not asked for usage gets no chunk without choices (H93)."""
        if not isinstance(event.get("usage"), dict):
            if not self._include_usage:
                event.pop("usage", None)
            return True
        self._sent_usage = True
        return self._include_usage or bool(event.get("choices"))

    def _own(self, event: JsonObject) -> bytes:
        ours = {"id": self._id, "object": "chat.completion.chunk", "model": self._model}
        return _encode({"created": self._created, "choices": [], **event, **ours})

    def _heads(self, data: bytes) -> tuple[bytes, bytes]:
        """What precedes the one choice of this chunk, and the same for the client; empty for a chunk of another
        shape."""
        before, found, after = data.partition(_CHOICES)
        try:
            head = decode_object(before.rstrip(b", ") + b"}")
            rest = decode_object(b"{" + found + after)
        except PeerError:
            return b"", b""
        if not head.keys() >= _HEAD_FIELDS or not head.keys().isdisjoint(rest) or isinstance(head.get("usage"), dict):
            return b"", b""
        self._takes(head)
        ours = self._own(head).removesuffix(b"}").replace(b'"choices":[],', b"", 1)
        return before + found, b"data: %b,%b" % (ours, found)

    def _track(self, delta: AnyDelta, out: list[bytes]) -> None:
        if delta.__class__ is not TextDelta:
            super()._track(delta, out)
        if not self._begun and delta.__class__ not in _ENDINGS:  # a miss of `isinstance` costs a struct much more
            out += self._held
            self._held.clear()
            self._begun, self._tracks_text = True, False
        if delta.__class__ is ToolCallDelta:
            self._called |= {delta.choice}

    def _note_usage(self, delta: messages.UsageDelta) -> None:
        own = delta.body if self._source.name == self.dialect else {}
        self._usage = own or usage_body(delta.usage, self._source)
        self._has_usage = bool(own)

    # ── chunks of ours ───────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, choice: int, out: list[bytes], content: str | None = "") -> tuple[bytes, bytes]:
        """Begins the choice unless it has begun. The bytes before and after a text of it."""
        if choice in self._open:
            return self._open[choice]
        out.append(self._chunk(choice, {"role": "assistant", "content": content}, None))
        before = b'%b,"choices":[{"index":%d,"delta":{"content":' % (self._head, choice)
        after = b'},"finish_reason":null}]' + self._tail
        self._open[choice] = before, after
        return before, after

    def _begin_wordless(self, delta: ReasoningDelta | messages.RefusalDelta | ToolCallDelta, out: list[bytes]) -> None:
        """As in a whole body, calls and refusals without a text have no content; thoughts alone have an empty one."""
        choice = delta.choice
        if not isinstance(delta, ReasoningDelta):
            self._thinking -= {choice}
        elif choice not in self._open:
            self._thinking |= {choice}
        self._begin(choice, out, None)

    def _note_call(self, delta: ToolCallDelta) -> None:
        place = {(delta.choice, delta.index)}
        self._called |= {delta.choice}
        if delta.arguments:
            self._bare_calls -= place
        elif delta.name:
            self._bare_calls |= place

    def _empty_arguments(self, choice: int) -> list[bytes]:
        """Clients parse the arguments: where none came they are an empty object, as in a whole body."""
        calls = [ToolCallDelta(index, "", "", "{}", of) for of, index in sorted(self._bare_calls) if of == choice]
        return [self._chunk(choice, fields, None) for call in calls if (fields := self._fields_of(call))]

    def _foreign(self, native: NativeDelta, out: list[bytes]) -> None:
        """What another dialect has beside texts and calls: refusals, and web pages as annotations of the whole text."""
        cited: list[Citation] = []
        match native.item:
            case {"apart": _}:
                self._part_start = self._said
            case {"annotation": annotation}:
                found = of_annotation(annotation)
                cited = [] if found is None else [found.moved(self._part_start)]
            case {"cited": _}:
                cited = of_cited(native.item, self._said)
            case {"refusal": str(words)}:
                self._encode_delta(messages.RefusalDelta(words), out)
            case _:
                pass
        if cited:
            said = {"annotations": [citation.chat_annotation() for citation in cited]}
            out.append(self._chunk(0, said, None))

    def _fields_of(self, delta: ReasoningDelta | messages.RefusalDelta | ToolCallDelta) -> JsonObject:
        """The fields of the chunk's delta; none for a call that has no place in it."""
        if not self._legacy_calls or not isinstance(delta, ToolCallDelta):
            return _delta_fields(delta)
        name = {"name": delta.name} if delta.name else {}
        return {"function_call": {**name, "arguments": delta.arguments}} if not delta.index else {}

    def _chunk(self, choice: int, delta: JsonObject, reason: str | None, logprobs: JsonObject | None = None) -> bytes:
        probable = {"logprobs": logprobs} if logprobs else {}
        said = _encode([{"index": choice, "delta": delta, **probable, "finish_reason": reason}])
        return b'%b,"choices":%b%b' % (self._head, said, self._tail)


def _parted(chunk: JsonObject) -> tuple[JsonObject | None, JsonObject | None]:
    """The part of a chunk that is sent now, and the part for the end: some clients stop reading at a finish reason."""
    given = chunk.get("choices")
    if given.__class__ is list and given and not given[1:] and (only := given[0]).__class__ is dict:
        if not only.get("finish_reason"):
            return chunk, None  # as what follows would
        if not _says_something(only):
            return None, chunk
    if not (choices := objects_of(given)):
        return (None, chunk) if isinstance(chunk.get("usage"), dict) else (chunk, None)
    ended = [choice for choice in choices if choice.get("finish_reason")]
    if not ended:
        return chunk, None
    if len(ended) == len(choices) and not any(map(_says_something, choices)):
        return None, chunk
    said = [{**choice, "finish_reason": None} for choice in choices]
    reasons = [{"index": c.get("index", 0), "delta": {}, "finish_reason": c["finish_reason"]} for c in ended]
    return {**chunk, "choices": said}, {**chunk, "choices": reasons}


def _says_something(choice: JsonObject) -> bool:
    delta = choice.get("delta")
    if not delta or delta.__class__ is not dict:
        return False
    return any(value for name, value in delta.items() if name != "role")


def _delta_fields(delta: ReasoningDelta | messages.RefusalDelta | ToolCallDelta) -> JsonObject:
    match delta:
        case ReasoningDelta(text=text):
            return {"reasoning_content": text}
        case messages.RefusalDelta(text=text):
            return {"refusal": text}
        case ToolCallDelta(index, id_, name, arguments):
            begins = id_ or name  # a call that came without an id gets one: its result must name it
            head = (
                {"index": index, "id": id_ or made_call_id("", index), "type": "function"}
                if begins
                else {"index": index}
            )
            function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
            return {"tool_calls": [{**head, "function": function}]}
        case _:
            assert_never(delta)
