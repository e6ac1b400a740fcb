"""The values of one model call."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.messages import (
    AnyDelta,
    Completion,
    File,
    Image,
    Message,
    Native,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    user,
)

PARTS: list[Part] = [
    Text("a"),
    Image(url="https://x/y.png"),
    File(data="aGk=", media_type="application/pdf", name="a.pdf"),
    Reasoning("hm", "anthropic", {"type": "thinking", "signature": "s"}),
    Refusal("no"),
    ToolCall("1", "terminal", '{"command":"ls"}'),
    ToolResult("1", (Text("out"), Image(data="aGk=", media_type="image/png")), ok=False),
    Native("responses", {"type": "compaction"}),
]


def test_a_message_survives_json() -> None:
    message = Message("assistant", tuple(PARTS))
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_the_samples_cover_every_part() -> None:
    assert {type(part) for part in PARTS} == set(get_args(Part))


def test_what_a_message_says_is_its_text_parts_joined() -> None:
    message = Message("assistant", (Text("a"), Reasoning("hidden"), Refusal("no"), Text("b"), ToolCall("1", "t")))
    assert message.text == "ab"
    assert message.tool_calls == (ToolCall("1", "t", "{}"),)
    assert (user("hi").role, user("hi").text) == ("user", "hi")
    assert (assistant("hi").role, assistant("hi").text) == ("assistant", "hi")


def test_a_completion_reads_from_its_message_alone() -> None:
    message = Message("assistant", (Reasoning("a"), Text("x"), Reasoning("b"), ToolCall("1", "t"), Text("y")))
    completion = Completion("chat", {}, message)
    assert (completion.text, completion.reasoning) == ("xy", "ab")
    assert completion.tool_calls == (ToolCall("1", "t"),)
    assert (completion.stop, completion.usage, completion.refusal) == ("unknown", Usage(), None)


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ("{}", {}),
        ('{"a": [1, null]}', {"a": [1, None]}),
        (' {"a":1}\n', {"a": 1}),
        ('{"a": "', None),
        ('{"a":1}{"a":2}', None),
        ("", None),
        ("[]", None),
        ('"{}"', None),
        ("null", None),
        ("\ud800", None),
    ],
)
def test_B34_only_one_whole_object_is_arguments(arguments: str, parsed: object) -> None:
    assert ToolCall("1", "t", arguments).parsed() == parsed


@given(st.text())
def test_B34_any_text_is_an_object_or_none(arguments: str) -> None:
    parsed = ToolCall("1", "t", arguments).parsed()
    assert parsed is None or isinstance(parsed, dict)


def test_B34_a_prefix_of_an_object_is_never_arguments() -> None:
    whole = '{"path": "a.txt", "n": [1, {"x": "}"}]}'
    assert ToolCall("1", "t", whole).parsed() is not None
    assert [cut for cut in range(len(whole)) if ToolCall("1", "t", whole[:cut]).parsed() is not None] == []


COUNTS = st.integers(0, 2**40)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


@given(USAGES, USAGES, USAGES)
def test_usage_adds_field_by_field(a: Usage, b: Usage, c: Usage) -> None:
    assert a + Usage() == a
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    for name in Usage.__struct_fields__:
        assert getattr(a + b, name) == getattr(a, name) + getattr(b, name)


def test_the_json_of_a_usage_always_has_what_was_asked_and_answered() -> None:
    """The other counts stand there where there are any. Logs of zeros that were left out are read."""
    assert msgspec.json.decode(msgspec.json.encode(Usage())) == {"input_tokens": 0, "output_tokens": 0}
    assert msgspec.json.encode(Usage(3, reasoning_tokens=1)).endswith(b',"output_tokens":0,"reasoning_tokens":1}')
    assert msgspec.json.decode(b"{}", type=Usage) == Usage()


def test_deltas_have_distinct_names_and_are_frozen() -> None:
    tags = [delta.__struct_config__.tag for delta in get_args(AnyDelta)]
    assert sorted(tags) == [
        "error_delta",
        "event_delta",
        "event_run_delta",
        "finish_delta",
        "native_delta",
        "reasoning_delta",
        "refusal_delta",
        "text_delta",
        "tool_call_delta",
        "usage_delta",
    ]
    assert all(delta.__struct_config__.frozen for delta in get_args(AnyDelta))
