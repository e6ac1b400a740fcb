"""Events of Home Assistant as messages, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tailrace.delivery.port import MessageReceived, Place, Sender
from tailrace.integrations.homeassistant.inbound import parse_message_event

CONTEXT = {"id": "c1", "parent_id": None, "user_id": "u1"}


def event(data: dict[str, Any]) -> msgspec.Raw:
    fired = {"event_type": "tailrace_message", "data": data, "time_fired": "now", "context": CONTEXT}
    return msgspec.Raw(msgspec.json.encode(fired))


@pytest.mark.parametrize(
    ("data", "text", "sender", "chat", "title"),
    [
        ({"text": "hello", "user": "ada", "conversation_id": "kitchen"}, "hello", "ada", "kitchen", "kitchen"),
        ({"text": 42, "user": 7, "conversation_id": 3}, "42", "7", "3", "3"),
        ({"text": 21.5, "user": 0, "conversation_id": 0}, "21.5", "0", "0", "0"),
        ({"text": "hello", "user": "ada"}, "hello", "ada", "ada", "ada"),
        ({"text": "hello", "user": None, "conversation_id": None}, "hello", "u1", "u1", ""),
        ({"text": "hello", "user": "", "conversation_id": ""}, "hello", "u1", "u1", ""),
    ],
)
def test_what_yaml_and_templates_make_of_a_text_is_a_text(
    data: dict[str, Any], text: str, sender: str, chat: str, title: str
) -> None:
    place = Place("homeassistant", chat, extra={"user": sender, "title": title})
    expected = MessageReceived("c1:now", place, Sender(sender), text, message_id="c1:now")
    assert parse_message_event(event(data)) == expected


@pytest.mark.parametrize("text", [None, "", " \n", True, ["hello"]])
def test_a_message_without_a_question_is_told_to_the_log(text: object, caplog: pytest.LogCaptureFixture) -> None:
    assert parse_message_event(event({"text": text})) is None
    assert "no `text`" in caplog.text
