"""What an incoming message is: each row of the table, the order of the rows, and the facts that they ask for."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tailrace.delivery.port import Attachment, ChatKind, MessageReceived, Place, Quoted, Sender
from tailrace.gateway.inbound.incoming import ROWS, Decision, Incoming, OpenQuestion, decide

FILE = (Attachment("f", "a.png"),)


def incoming(
    text: str = "hello", kind: ChatKind = "private", known: dict[str, Any] | None = None, **fields: Any
) -> Incoming:
    addressed = fields.pop("addressed", kind == "private")
    message = MessageReceived("u", Place("telegram", "42", kind=kind), Sender("1"), text, addressed=addressed, **fields)
    return Incoming(message, **(known or {}))


def kind_of(one: Incoming) -> str:
    """The row that decides, or the fact that is asked for."""
    decided = decide(one)
    return decided.kind if isinstance(decided, Decision) else decided


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (incoming("/stop"), "command"),
        (incoming("/stop", "group"), "command"),
        (incoming("/stop", "group", to_others=True), "not_for_us"),
        (incoming("/stop", attachments=FILE), "question"),
        (incoming("/stop", quoted=(Quoted(text="hm"),)), "command"),
        (incoming("/undo"), "unknown_command"),
        (incoming("/undo", "group"), "in_conversation"),
        (incoming("/undo", "group", {"in_conversation": False}), "not_for_us"),
        (incoming("/undo", "group", {"in_conversation": True}), "unknown_command"),
        (incoming("/undo", "group", {"is_whole_chat": True}), "unknown_command"),
        (incoming("/aprove", "group", {"in_conversation": False}), "open_question"),
        (incoming("/aprove", "group", {"in_conversation": False, "open_question": "theirs"}), "unknown_command"),
        (incoming("/aprove", "group", {"in_conversation": False, "open_question": "others"}), "not_for_us"),
        (incoming("hello", "group"), "in_conversation"),
        (incoming("hello", "group", {"in_conversation": False}), "not_for_us"),
        (incoming("hello", "group", {"in_conversation": True}), "question"),
        (incoming("hello", "group", {"in_conversation": True}, to_others=True), "not_for_us"),
        (incoming("hello", "group", {"respond": "all"}, to_others=True), "question"),
        (incoming("hello", "group", {"continues_paste": True}), "question"),
        (incoming("hello", "group", addressed=True), "question"),
        (incoming("", "group", addressed=True), "mention_alone"),
        (incoming("", "group", addressed=True, attachments=FILE), "question"),
        (incoming("", "group", addressed=True, reply_to="m1"), "question"),
        (incoming("", "group", addressed=True, quoted=(Quoted(text="hm"),)), "question"),
        (incoming("yes"), "open_question"),
        (incoming("yes", known={"open_question": "none"}), "question"),
        (incoming("yes", known={"open_question": "theirs"}), "answer_by_word"),
        (incoming("yes", known={"open_question": "others"}), "answer_by_word"),
        (incoming("yes", known={"open_question": "theirs"}, attachments=FILE), "question"),
        (incoming("a" * 4096, at_limit=True), "part_of_paste"),
        (incoming("/etc/hosts is odd"), "question"),
    ],
)
def test_what_a_message_is(one: Incoming, kind: str) -> None:
    assert kind_of(one) == kind


def test_the_trace_names_the_rows_that_were_passed_and_the_one_that_decided() -> None:
    assert decide(incoming("/stop")) == Decision("command", "command")
    passed = "command unknown_command not_for_us mention_alone answer_by_word"
    assert decide(incoming("hello", at_limit=True)) == Decision("part_of_paste", f"{passed}: part_of_paste")


QUESTIONS: tuple[OpenQuestion, ...] = ("none", "theirs", "others")


def test_with_all_facts_every_message_is_decided_and_each_row_decides_some() -> None:
    seen = set[str]()
    texts = ("", "hello", "yes", "/stop", "/undo", "/aprove")
    kinds: tuple[ChatKind, ...] = ("private", "group")
    flags = (True, False)
    for text, kind, flag, to_others, within, question in product(texts, kinds, flags, flags, flags, QUESTIONS):
        known = {"in_conversation": within, "open_question": question}
        one = incoming(text, kind, known, addressed=flag or kind == "private", to_others=to_others, at_limit=flag)
        decided = decide(one)
        assert isinstance(decided, Decision)
        seen.add(decided.kind)
        if text == "/stop" and not to_others:
            assert decided.kind == "command"
    assert seen == {row.kind for row in ROWS}
