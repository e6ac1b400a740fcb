"""Edits of the grammar: each does what it says, and our own decoders still hear what was meant."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tailrace.config.quirks import WireQuirks
from tailrace.messages import Completion, Dialect, ErrorDelta
from tailrace.testing.provider import REPLIES, FaultyProvider, scenario
from tailrace.testing.provider.edits import EDITS
from tailrace.testing.scripted.failures import FAILURES
from tailrace.testing.scripted.render import body_of, events_of, frame
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse, scripted_request
from tailrace.wire.dialects import DIALECTS
from testing.raw_client import hear

TOLD: dict[Dialect, ScriptedRequest] = {
    dialect: scripted_request(dialect, {"model": "m", "stream": True, "stream_options": {"include_usage": True}})
    for dialect in ("chat", "responses", "anthropic")
}
CASES = [(name, dialect) for name, edit in EDITS.items() for dialect in edit.dialects]
ENDS_BADLY = {"no-ending", "no-terminal", "only-ending", "unreadable"}
NEEDS_QUIRK = {"cumulative": WireQuirks(cumulative_text=True), "name-in-pieces": WireQuirks(name_in_pieces=True)}


def edited(name: str, dialect: Dialect) -> tuple[list[Sse], list[Sse]]:
    """The right events and the edited ones."""
    right = events_of(dialect, scenario(name).reply, TOLD[dialect])
    return right, EDITS[name].run(right, TOLD[dialect])


def calls_in(events: list[Sse]) -> list[dict[str, Any]]:
    deltas = [
        choice["delta"] for event in events if isinstance(event.data, dict) for choice in event.data.get("choices", [])
    ]
    return [call for delta in deltas for call in delta.get("tool_calls", [])]


def heard(dialect: Dialect, events: list[Sse], quirks: WireQuirks) -> tuple[Completion, bool, list[Any]]:
    decoder = DIALECTS[dialect].decoder(quirks)
    deltas = [delta for event in events for delta in decoder.feed(frame(event))]
    deltas += decoder.close()
    return DIALECTS[dialect].completion_from_body(decoder.rebuilt_body()), decoder.complete, deltas


@pytest.mark.parametrize(("name", "dialect"), CASES)
def test_an_edit_changes_the_stream_and_leaves_the_right_one_alone(name: str, dialect: Dialect) -> None:
    right, wrong = edited(name, dialect)
    assert wrong != right
    assert right == events_of(dialect, scenario(name).reply, TOLD[dialect])


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name, dialect in CASES if "error-" not in name and name not in ENDS_BADLY]
)
def test_what_was_meant_is_heard_all_the_same(name: str, dialect: Dialect) -> None:
    meant = DIALECTS[dialect].completion_from_body(body_of(dialect, scenario(name).reply, TOLD[dialect]))
    got, complete, _ = heard(dialect, edited(name, dialect)[1], NEEDS_QUIRK.get(name, WireQuirks()))
    assert complete
    assert got.text == meant.text
    assert [(call.name, call.parsed()) for call in got.tool_calls] == [
        (call.name, call.parsed()) for call in meant.tool_calls
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_D48_D57_a_stream_without_its_ending_is_not_complete(dialect: Dialect) -> None:
    _, complete, deltas = heard(dialect, edited("no-ending", dialect)[1], WireQuirks())
    assert not complete
    assert isinstance(deltas[-1], ErrorDelta)
    assert deltas[-1].cut


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", FAILURES)
def test_D50_D51_D52_an_error_ends_the_stream_and_says_its_kind(dialect: Dialect, kind: str) -> None:
    for name in (f"error-{kind}", f"first-error-{kind}"):
        right, wrong = edited(name, dialect)
        _, complete, deltas = heard(dialect, wrong, WireQuirks())
        assert not complete
        assert isinstance(deltas[-1], ErrorDelta)
        assert deltas[-1].message == FAILURES[kind].message
        assert wrong[: len(right) // 2] == right[: len(right) // 2] or name.startswith("first")


def test_B23_B24_B25_indexes_and_ids() -> None:
    right = calls_in(edited("index-zero", "chat")[0])
    assert {call["index"] for call in right} == {0, 1}
    assert {call["index"] for call in calls_in(edited("index-zero", "chat")[1])} == {0}
    assert all("index" not in call for call in calls_in(edited("no-index", "chat")[1]))
    bare = calls_in(edited("one-index-no-ids", "chat")[1])
    assert {call["index"] for call in bare} == {0}
    assert all("id" not in call for call in bare)


def test_B27_B28_B29_names_and_ids_in_every_piece_or_in_pieces() -> None:
    assert all("name" in call["function"] for call in calls_in(edited("name-resent", "chat")[1]))
    assert all("id" in call for call in calls_in(edited("id-resent", "chat")[1]))
    pieces = [call["function"].get("name") for call in calls_in(edited("name-in-pieces", "chat")[1])]
    assert pieces[:2] == ["get_w", "eather"]


def test_B30_B31_arguments_first_or_as_an_object() -> None:
    late = calls_in(edited("arguments-first", "chat")[1])
    assert "name" not in late[0]["function"]
    assert late[-1]["function"] == {"name": "get_weather"}
    (whole,) = calls_in(edited("arguments-object", "chat")[1])
    assert whole["function"]["arguments"] == {"city": "Zürich", "unit": "celsius"}


def test_B40_the_deltas_lack_what_done_has() -> None:
    right, wrong = edited("done-differs", "responses")
    assert len([event for event in right if event.event.endswith(".delta")]) - 3 == len(
        [event for event in wrong if event.event.endswith(".delta")]
    )


def test_B33_blocks_are_interleaved() -> None:
    events = [event.data for event in edited("interleaved", "anthropic")[1] if isinstance(event.data, dict)]
    indexes = [data["index"] for data in events if "index" in data]
    assert indexes[:6] == [0, 1, 2, 0, 1, 2]


def test_A17_text_grows_in_every_delta() -> None:
    texts = [
        event.data["delta"]["text"]  # type: ignore[index]
        for event in edited("cumulative", "anthropic")[1]
        if "text_delta" in str(event.data)
    ]
    assert texts[-1] == REPLIES["ok"].reply.text
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("term", "shown"),
    [
        ("crlf", b"\r\n\r\n"),
        ("cr", b"}\r\r"),
        ("bom", b"\xef\xbb\xbf"),
        ("no-space", b"data:{"),
        ("multi-data", b',\ndata: "'),
        ("comments", b": keep-alive\n\n"),
        ("unicode", "\u2028".encode()),
    ],
)
async def test_A03_to_A09_framing_is_heard_through(dialect: Dialect, term: str, shown: bytes) -> None:
    async with FaultyProvider(script=["ok" if term != "unicode" else term, term]) as server:
        right = await hear(server, dialect, "any")
        wrong = await hear(server, dialect, "any")
    assert shown in wrong.body
    assert bodies(dialect, wrong.body) == bodies(dialect, right.body)


def bodies(dialect: Dialect, raw: bytes) -> Any:
    decoder = DIALECTS[dialect].decoder(WireQuirks())
    decoder.feed(raw)
    decoder.close()
    assert decoder.complete
    return decoder.rebuilt_body()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_A14_A15_A18_glue_missing_blank_and_surrogate_are_on_the_wire(dialect: Dialect) -> None:
    async with FaultyProvider() as server:
        glued = await hear(server, dialect, "glued")
        unfinished = await hear(server, dialect, "no-last-blank")
        torn = await hear(server, dialect, "surrogate")
        plain = await hear(server, dialect, "surrogate", stream=False)
    assert b"}{" in glued.body
    assert not unfinished.body.endswith(b"\n")
    assert b"\\ud83d" in torn.body
    assert b"\\ud83d" in plain.body
