"""The values of one model call: messages, requests, deltas, completions.

Neutral between the dialects. Frozen, no I/O, no clock. What only one dialect can express is an opaque native item,
which is sent back to that dialect alone.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, dataclass_transform

import msgspec

Dialect = Literal["chat", "responses", "anthropic"]
Role = Literal["system", "user", "assistant", "tool"]
JsonObject: TypeAlias = dict[str, Any]  # opaque JSON: kept and passed on; only `wire` looks into it


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))  # what mypy must know of the subclasses
class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the untagged values. Those that hold data alone are in no cycle: the garbage collector need not know
    them (`gc=False`)."""


class Usage(Value, gc=False):
    """Tokens as the provider counted them. In Anthropic's dialect `input_tokens` excludes the cached ones. Of an answer
    that broke off before its provider had counted them, or that it never counts, they are an estimate, and
    `estimated_tokens` says of how many of the input's and the output's tokens together that is so."""

    input_tokens: int = msgspec.field(default_factory=int)  # in JSON these two are written also when they are 0
    output_tokens: int = msgspec.field(default_factory=int)
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_tokens: int = 0

    @property
    def cached_tokens(self) -> int:
        return self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated_tokens + other.estimated_tokens,
        )


class SpentTokens(Value, gc=False):
    """Tokens that were used at one model of one provider."""

    provider: str
    model: str
    usage: Usage


# ── parts of a message ───────────────────────────────────────────────────────────────────────────────────────


class Text(Value, tag="text", gc=False):
    text: str


READABLE_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})  # what models take


class Image(Value, tag="image", gc=False):
    """Either `data` (base64, with `media_type`) or `url`."""

    url: str = ""
    data: str = ""
    media_type: str = ""
    detail: str = ""  # chat and responses: "low", "high", "auto"


class File(Value, tag="file", gc=False):
    """A document. Either `data` (base64, with `media_type`) or `url`."""

    data: str = ""
    media_type: str = ""
    name: str = ""
    url: str = ""


class Reasoning(Value, tag="reasoning", gc=False):
    """What the model thought. `native` is the provider's own item, sent back unchanged to the model that made it."""

    text: str = ""
    dialect: Dialect | None = None
    native: JsonObject | None = None
    maker: str = ""  # of `native`: "<provider>/<model>"; empty: unknown, every provider of the dialect gets it back


class Refusal(Value, tag="refusal", gc=False):
    text: str


class ToolCall(Value, tag="tool_call", gc=False):
    """`arguments` is JSON text exactly as the model wrote it (`{}` where it wrote nothing)."""

    id: str
    name: str
    arguments: str = "{}"

    def parsed(self) -> JsonObject | None:
        """The arguments as an object, or None where they are not one: such a call is never executed."""
        try:
            value = msgspec.json.decode(self.arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class ToolResult(Value, tag="tool_result", gc=False):
    call_id: str
    content: str | tuple[Text | Image | File, ...] = ""
    ok: bool = True

    @property
    def text(self) -> str:
        """What it says in words, where the dialect has no other place for an error than the text."""
        content = self.content
        said = content if isinstance(content, str) else "".join(part.text for part in content if isinstance(part, Text))
        return said if self.ok or said.lower().startswith("error") else f"Error: {said}"


class FileChange(Value, gc=False):
    """What a tool did to a file, for the user. `diff` has the changed lines and two around them, each with "+", "-" or
    a blank before it and "…" between two places; it is cut where it is long, and empty where it would be longer still.
    `line` is the number of its first line."""

    path: str
    added: int = 0  # lines
    removed: int = 0
    diff: str = ""
    line: int = 1
    created: bool = False


class ToolFile(Value, gc=False):
    """A file or an image that a tool gave beside its text, for the user. In JSON `data` is base64."""

    name: str
    media_type: str
    data: bytes


class Native(Value, tag="native", gc=False):
    """A block that only one dialect knows (server tools, compaction, …): sent back to its maker, dropped elsewhere."""

    dialect: Dialect
    item: JsonObject
    maker: str = ""  # as in `Reasoning`


Part: TypeAlias = Text | Image | File | Reasoning | Refusal | ToolCall | ToolResult | Native


class Message(Value, gc=False):
    role: Role
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if part.__class__ is Text])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if part.__class__ is ToolCall])

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing: it has no part but blank texts."""
        return all(isinstance(part, Text) and not part.text.strip() for part in self.parts)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),))


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────────


class ToolSpec(Value, gc=False):
    """A tool as it is offered to a model; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: JsonObject = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


class WebSearch(Value, gc=False):
    """A search of the web that the provider makes itself. `word`: how the client asked for it."""

    word: str
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    location: dict[str, str] = msgspec.field(default_factory=dict)  # of the user: country, region, city, timezone
    context_size: str = ""  # "low", "high"; empty: the usual one
    max_uses: int | None = None


class NamedTool(Value, gc=False):
    """`tool_choice`: exactly this tool."""

    name: str


MAX_ANSWER_BYTES = 8 * 1024 * 1024  # in memory; what is kept is sent again with every call (O178)
MAX_RAW_ANSWER_BYTES = 64 * 1024 * 1024  # of one that is only passed on: its client may want it (O178)


class ModelRequest(Value, gc=False):
    """One model call, before a dialect encodes it."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    web_search: WebSearch | None = None
    max_tokens: int | None = None
    max_answer_bytes: int = MAX_ANSWER_BYTES  # of text, thoughts and arguments: more ends the answer (O178)
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: str | None = None
    response_schema: JsonObject | None = None  # a JSON schema that the answer's text must satisfy
    json_object: bool = False  # the answer's text must be a JSON object, of whatever form
    verbosity: str | None = None  # "low", "medium", "high"
    service_tier: str | None = None  # which of a provider's offers serves it: "flex", "priority"; None: the usual one
    cache_prompt: bool = False  # another call will begin with the same: a provider that must be told keeps it
    prefill: str = ""  # the beginning of the answer: the client's own, or what was shown before a cut
    keep_events: bool = False  # the provider's own events come too, for a client of the same dialect
    extra: JsonObject = msgspec.field(default_factory=dict)  # fields of the dialect itself, merged in last
    verbatim: bool = False  # `extra` has every setting, as a client of the dialect wrote it: none is added to it
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # of the dialect itself: versions, beta features
    required: tuple[str, ...] = ()  # fields of this request that are not left out for a provider that refuses them

    def without_settings(self) -> ModelRequest:
        """The conversation alone: what `extra` does not have of a verbatim request."""
        return msgspec.structs.replace(
            self,
            tools=(),
            tool_choice=None,
            parallel_tool_calls=None,
            web_search=None,
            max_tokens=None,
            temperature=None,
            top_p=None,
            stop=(),
            seed=None,
            reasoning_effort=None,
            response_schema=None,
            json_object=False,
            verbosity=None,
            service_tier=None,
        )


# ── the answer while it grows ────────────────────────────────────────────────────────────────────────────────


@dataclass_transform(frozen_default=True)
class Delta(msgspec.Struct, frozen=True, gc=False):
    """Base of the pieces of a stream. `choice` is 0 unless the request asked for several choices."""


class TextDelta(Delta, tag="text_delta"):
    text: str
    choice: int = 0


class ReasoningDelta(Delta, tag="reasoning_delta"):
    text: str
    choice: int = 0


class RefusalDelta(Delta, tag="refusal_delta"):
    text: str
    choice: int = 0


class ToolCallDelta(Delta, tag="tool_call_delta"):
    """A piece of the call at position `index` among this answer's calls. `id` and `name` are whole, and empty
    in the pieces after the one that brought them; `arguments` is the next piece of the JSON text. With `replaces` it
    is the whole text, and not what the pieces before it said: the provider contradicts itself."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    choice: int = 0
    replaces: bool = False


class UsageDelta(Delta, tag="usage_delta"):
    """Replaces any usage before it. `body` is the provider's own `usage` object, where its dialect sends one whole."""

    usage: Usage
    body: JsonObject = {}


class FinishDelta(Delta, tag="finish_delta"):
    """`reason` as the provider said it."""

    reason: str
    choice: int = 0


class NativeDelta(Delta, tag="native_delta"):
    """A piece beside texts and calls (log probabilities, a signature, a citation, a block of the dialect's own type):
    passed on to that dialect's clients. Elsewhere it is dropped, but for the items that `wire/translation` lists."""

    dialect: Dialect
    item: JsonObject
    choice: int = 0


class EventDelta(Delta, tag="event_delta"):
    """One event of the provider's stream with all its fields, for a client of the same dialect; dropped elsewhere. It
    comes before the neutral deltas of the same event, and only where the request has `keep_events`.

    `content` is its JSON, mended where it broke the dialect's rules: the text on one line, or the object."""

    dialect: Dialect
    name: str  # the type of the event; empty where the dialect has none
    content: bytes | JsonObject

    @property
    def data(self) -> bytes:
        """The text."""
        return self.content if isinstance(self.content, bytes) else msgspec.json.encode(self.content)


class EventForm(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What is the same in every event of a run, as the stream has it: all that comes before the part that varies, and
    all behind it, the blank line included. Two forms are the same form where they are the same object, so that what is
    to be done with a form is decided once."""

    prefix: bytes
    suffix: bytes
    turn: bytes  # from one varying part to the next: the suffix and the prefix


class EventRunDelta(Delta, tag="event_run_delta"):
    """Consecutive events of the provider's stream that differ in one text alone, in place of an `EventDelta` for each.
    The delta of that text follows, all of it as one piece. `bodies` are the parts that vary, as the stream has them,
    and `texts` what they mean: one of each per event."""

    dialect: Dialect
    name: str
    form: EventForm
    bodies: list[bytes]
    texts: list[str]

    @property
    def data(self) -> bytes:
        """The events as they came."""
        form, bodies = self.form, self.bodies
        return b"%b%b%b" % (form.prefix, bodies[0] if len(bodies) == 1 else form.turn.join(bodies), form.suffix)

    def events(self) -> list[EventDelta]:
        """Each event by itself."""
        head, tail = self.form.prefix[self.form.prefix.index(b"data: ") + 6 :], self.form.suffix.rstrip(b"\n")
        return [EventDelta(self.dialect, self.name, b"%b%b%b" % (head, body, tail)) for body in self.bodies]


class ErrorDelta(Delta, tag="error_delta"):
    """The stream failed; nothing follows. `status` is the HTTP status this error stands for, where one does."""

    kind: Literal["retryable", "permanent"]
    message: str
    code: str = ""
    status: int | None = None
    cut: bool = False  # the bytes ended early: the provider reported no error
    request_id: str = ""  # as the provider's body has it


AnyDelta: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | NativeDelta
    | EventDelta
    | EventRunDelta
    | UsageDelta
    | FinishDelta
    | ErrorDelta
)


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────────

Stop = Literal["end", "length", "tools", "filter", "pause", "unknown"]
# Why an answer is incomplete that ends in mid-sentence and does not say so itself.
ENDED_BY_PROVIDER: dict[str, str] = {
    "length": "the answer reached the model's token limit",
    "filter": "the provider's content filter ended the answer",
}


class Completion(Value, gc=False):
    """The one answer of one call. The same value whether it was streamed or not.

    `body` is the provider's own non-streaming response body, rebuilt where the answer was streamed. Everything
    else is read from it by the dialect's `completion_from_body`.
    """

    dialect: Dialect
    body: JsonObject
    message: Message  # for the history: parts in the provider's order, native items included
    id: str = ""
    model: str = ""
    finish_reason: str = ""  # as the provider said it
    stop: Stop = "unknown"  # the same, neutral
    usage: Usage = Usage()
    refusal: str | None = None
    stop_sequence: str = ""  # the stop string that ended it, where the provider says it or the answer was cut here
    has_unnamed_call: bool = False  # a call has begun and its name never came: `message` does not have it

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.message.parts if isinstance(part, Reasoning))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.message.tool_calls
