"""A provider that repeats the key it was sent: in any piece, split anywhere, in every dialect's body."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Retryable
from tailrace.messages import (
    AnyDelta,
    Completion,
    EventDelta,
    EventForm,
    EventRunDelta,
    FinishDelta,
    JsonObject,
    Message,
    NativeDelta,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCallDelta,
)
from tailrace.ports import AnswerStream
from tailrace.providers.http.key_redaction import RedactedAnswer, redacted_json
from tailrace.values.redact import REDACTED, TextRedactor
from tailrace.wire.peer_json import decode_object, encode_object

KEY = "sk-aab-sk-aac1"
REDACTOR = TextRedactor([KEY])


class Scripted(AnswerStream):
    """An answer of these reads; then it fails where `error` is given."""

    def __init__(self, *reads: list[AnyDelta], body: JsonObject | None = None, error: Exception | None = None) -> None:
        self._reads = list(reads)
        self._body = body or {}
        self._error = error

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        for deltas in self._reads:
            take(deltas)
        if self._error is not None:
            raise self._error

    def completion(self) -> Completion:
        return completion_of(self._body)


def completion_of(body: JsonObject) -> Completion:
    return Completion("chat", body, Message("assistant", (Text(str(body.get("text", ""))),)))


async def passed(*reads: list[AnyDelta]) -> list[AnyDelta]:
    answer = RedactedAnswer(Scripted(*reads), REDACTOR, completion_of)
    deltas: list[AnyDelta] = []
    await answer.pump(deltas.extend)
    return deltas


def text_of(deltas: list[AnyDelta], kind: type) -> str:
    return "".join(getattr(d, "text", "") or getattr(d, "arguments", "") for d in deltas if isinstance(d, kind))


@given(step=st.integers(1, 20), before=st.text("sk-ab 1", max_size=12), after=st.text("sk-ab 1", max_size=12))
async def test_J114_a_key_split_anywhere_is_redacted_in_every_kind_of_piece(step: int, before: str, after: str) -> None:
    whole = before + KEY + after
    pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
    kinds: dict[type, Callable[[str], AnyDelta]] = {
        TextDelta: TextDelta,
        ReasoningDelta: ReasoningDelta,
        ToolCallDelta: lambda piece: ToolCallDelta(0, arguments=piece),
    }
    for kind, make in kinds.items():
        shown = text_of(await passed(*([make(piece)] for piece in pieces), [FinishDelta("stop")]), kind)
        assert shown == REDACTOR.redact(whole)
        assert KEY not in shown


async def test_everything_else_is_passed_on_as_it_came() -> None:
    deltas: list[AnyDelta] = [
        ReasoningDelta("hm"),
        TextDelta("the word"),
        NativeDelta("anthropic", {"a": 1}),
        ToolCallDelta(0, "c1", "run", "{}"),
        FinishDelta("stop"),
    ]
    out = await passed(deltas)
    assert all(ours is theirs for ours, theirs in zip(out, deltas, strict=True))


async def test_what_is_held_back_keeps_its_place() -> None:
    out = await passed([TextDelta("ask")], [ToolCallDelta(0, "c1", "run", "{}")], [FinishDelta("stop")])
    assert out == [TextDelta("a"), TextDelta("sk"), ToolCallDelta(0, "c1", "run", "{}"), FinishDelta("stop")]


async def test_what_is_held_back_comes_before_the_failure() -> None:
    answer = RedactedAnswer(Scripted([TextDelta("task")], error=Retryable("cut")), REDACTOR, completion_of)
    reads: list[list[AnyDelta]] = []
    with pytest.raises(Retryable, match="cut"):
        await answer.pump(reads.append)
    assert reads == [[TextDelta("ta")], [TextDelta("sk")]]


async def test_only_the_letters_that_may_begin_a_key_wait() -> None:
    """Many words end like that: what one read brought before them is shown at once."""
    scripted = Scripted([TextDelta("The "), TextDelta("first"), TextDelta(" task")], [], [TextDelta("s are")])
    reads: list[list[AnyDelta]] = []
    await RedactedAnswer(scripted, REDACTOR, completion_of).pump(reads.append)
    assert [text_of(read, TextDelta) for read in reads] == ["The first ta", "", "sks are"]
    events = Scripted(relayed("The ", "first", " task"), relayed("s are"))
    reads = []
    await RedactedAnswer(events, REDACTOR, completion_of).pump(reads.append)
    assert [said_in(read) for read in reads] == [("The first",) * 2, (" tasks are",) * 2]


async def test_two_choices_do_not_mix() -> None:
    half = len(KEY) // 2
    reads: list[list[AnyDelta]] = [
        [TextDelta(KEY[:half], 0), TextDelta(KEY[:half], 1)],
        [TextDelta(KEY[half:], 0), TextDelta("x", 1)],
    ]
    out = await passed(*reads)
    assert [delta for delta in out if delta == TextDelta(REDACTED, 0)]
    assert "".join(d.text for d in out if isinstance(d, TextDelta) and d.choice == 1) == KEY[:half] + "x"


def test_J114_the_whole_answer_is_read_from_a_body_without_the_key() -> None:
    body: JsonObject = {"text": f"it is {KEY}", "list": [{"a": KEY}]}
    completion = RedactedAnswer(Scripted(body=body), REDACTOR, completion_of).completion()
    assert completion.text == f"it is {REDACTED}"
    assert KEY not in str(completion.body)
    same: JsonObject = {"text": "no key"}
    assert redacted_json(same, REDACTOR) is same


# ── the provider's own events ────────────────────────────────────────────────────────────────────────────────


def relayed(*pieces: str) -> list[AnyDelta]:
    """Each piece as a chunk of its own, before the delta that it means."""
    deltas: list[AnyDelta] = []
    for piece in pieces:
        chunk = {"id": "c1", "choices": [{"index": 0, "delta": {"content": piece}}], "system_fingerprint": "fp_1"}
        deltas += [EventDelta("chat", "", encode_object(chunk)), TextDelta(piece)]
    return deltas


def said_in(deltas: list[AnyDelta]) -> tuple[str, str]:
    """What the events say, and what the deltas say."""
    chunks = [decode_object(delta.data) for delta in deltas if isinstance(delta, EventDelta)]
    assert all(chunk["system_fingerprint"] == "fp_1" for chunk in chunks)
    in_events = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    return in_events, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@given(
    before=st.text(alphabet="sk-a b1", max_size=12),
    after=st.text(alphabet="sk-a b1", max_size=12),
    keyed=st.booleans(),
    cuts=st.sets(st.integers(1, 60)),
    reads=st.sets(st.integers(1, 60)),
)
async def test_J114_events_and_deltas_say_the_same_without_the_key_wherever_it_is_split(
    before: str, after: str, keyed: bool, cuts: set[int], reads: set[int]
) -> None:
    text = before + (KEY if keyed else "") + after
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges) if start < end]
    groups = [relayed(piece) for piece in pieces]
    batches: list[list[AnyDelta]] = [[]]
    for number, group in enumerate(groups):
        if number in reads:
            batches.append([])
        batches[-1] += group
    out = await passed(*batches)
    expected = REDACTOR.redact(text)
    assert said_in(out) == (expected, expected)


@given(text=st.text(alphabet="sk-a b1", max_size=30), at=st.integers(0, 30), step=st.integers(1, 9))
async def test_J114_a_run_of_events_says_the_same_as_its_delta_without_the_key(text: str, at: int, step: int) -> None:
    """A key may be split over the events of a run, and over its end."""
    text = text[:at] + KEY + text[at:]
    bodies = [text[start : start + step] for start in range(0, len(text), step)]
    prefix, suffix = b'data: {"system_fingerprint":"fp_1","choices":[{"delta":{"content":"', b'"}}]}\n\n'
    form = EventForm(prefix, suffix, suffix + prefix)
    deltas: list[list[AnyDelta]] = []
    for part in (bodies[: at // 2], bodies[at // 2 :]):
        if part:
            run = EventRunDelta("chat", "", form, [body.encode() for body in part], part)
            deltas.append([run, TextDelta("".join(part))])
    out: list[AnyDelta] = []
    for delta in await passed(*deltas):
        out += delta.events() if isinstance(delta, EventRunDelta) else [delta]
    expected = REDACTOR.redact(text)
    assert said_in(out) == (expected, expected)


async def test_J114_events_that_hold_no_key_come_as_they_came() -> None:
    deltas = relayed("the sk", "y is ", "blue")
    assert await passed(deltas) == deltas


async def test_J114_a_key_whole_in_an_event_is_redacted_there() -> None:
    done = EventDelta("responses", "response.output_text.done", encode_object({"text": f"it is {KEY}."}))
    (out,) = await passed([done])
    assert isinstance(out, EventDelta)
    assert decode_object(out.data) == {"text": f"it is {REDACTED}."}


async def test_a_read_that_holds_no_part_of_a_key_is_handed_on_itself() -> None:
    """Nearly every read of every answer: it costs a look for the key, and nothing is made anew."""
    deltas = relayed("some text ", "is shown")
    reads: list[list[AnyDelta]] = []
    await RedactedAnswer(Scripted(deltas), REDACTOR, completion_of).pump(reads.append)
    assert reads[0] is deltas
