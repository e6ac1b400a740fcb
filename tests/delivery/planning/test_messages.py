"""The states of a message: the table is complete, and nothing happens beside it."""

from __future__ import annotations

from typing import get_args

import pytest

from tailrace.delivery.planning.messages import (
    LEADS_TO,
    TERMINAL,
    TRANSITIONS,
    Chain,
    ChatMessage,
    MessageState,
    NativeStream,
    Outcome,
    Wanted,
    digest_of,
)
from tailrace.delivery.port import Capabilities, Resend
from tailrace.events import Delivered, DeliveredState

STATES: tuple[MessageState, ...] = get_args(MessageState)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def message_in(state: MessageState) -> ChatMessage:
    there = state in ("streaming", "posted", "confirmed")
    return ChatMessage(
        "t0.0",
        4096,
        state,
        message_id="m1" if there else "",
        digest=digest_of("text") if state == "confirmed" else "",
        stream=NativeStream() if state == "streaming" else None,
    )


def test_every_state_and_every_outcome_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(STATES)
    assert set(LEADS_TO) == set(OUTCOMES)
    assert {outcome for outcomes in TRANSITIONS.values() for outcome in outcomes} == set(OUTCOMES)


def test_every_state_is_reached_from_the_first_one() -> None:
    reached: set[MessageState] = set()
    ahead: list[MessageState] = [ChatMessage("t0.0", 4096).state]
    while ahead:
        state = ahead.pop()
        if state not in reached:
            reached.add(state)
            ahead += [LEADS_TO[outcome] for outcome in TRANSITIONS[state]]
    assert reached == set(STATES)


def test_a_state_is_terminal_or_leads_to_a_terminal_one() -> None:
    assert {"failed", "removed", "unresolved"} == TERMINAL
    for state in STATES:
        ends = {LEADS_TO[outcome] for outcome in TRANSITIONS[state]} & TERMINAL
        assert bool(ends) is (state not in TERMINAL)
        assert message_in(state).closed is (state in TERMINAL or state == "confirmed")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_leads_where_the_table_says_or_raises(state: MessageState, outcome: Outcome) -> None:
    message = message_in(state)
    if outcome not in TRANSITIONS[state]:
        with pytest.raises(RuntimeError, match=f"'{outcome}' while it is '{state}'"):
            message.move(outcome)
        assert message == message_in(state)
        return
    message.move(outcome)
    assert message.state == LEADS_TO[outcome]
    if message.state in ("absent", "removed"):
        assert (message.message_id, message.shown, message.digest) == ("", None, "")
    if message.state != "streaming":
        assert message.stream is None


@pytest.mark.parametrize(
    ("wanted", "state"),
    [
        (Wanted("half", final=False), "posted"),
        (Wanted("all of it", final=True), "confirmed"),
        (Wanted("cut short", final=True, lasting=False), "posted"),
    ],
)
def test_only_a_final_and_lasting_text_is_confirmed(wanted: Wanted, state: MessageState) -> None:
    message = message_in("posted")
    message.show(wanted)
    assert message.state == state
    assert message.shows(wanted)
    assert message.digest == (digest_of(wanted.text) if state == "confirmed" else "")


@pytest.mark.parametrize(
    ("fact", "resend", "state"),
    [
        (Delivered("t0.0", "sent", "m1"), "never", "posted"),
        (Delivered("t0.0", "sent", "m1", native=True), "never", "streaming"),
        (Delivered("t0.0", "confirmed", "m1", digest="d"), "never", "confirmed"),
        (Delivered("t0.0", "unsent"), "never", "absent"),
        (Delivered("t0.0", "failed", "m1"), "never", "failed"),
        (Delivered("t0.0", "unknown"), "look_up", "look_up"),
        (Delivered("t0.0", "unknown"), "idempotent", "resend"),
        (Delivered("t0.0", "unknown", final=True), "never", "unresolved"),
        (Delivered("t0.0", "unknown"), "never", "absent"),
    ],
)
def test_a_restored_message_goes_on_where_the_ledger_says(fact: Delivered, resend: Resend, state: MessageState) -> None:
    message = ChatMessage("t0.0", 4096)
    message.restore(fact, resend)
    assert message.state == state
    assert message.final_only is (state == "absent" and fact.state == "unknown")
    assert (message.stream is not None) is (state == "streaming")
    recorded: DeliveredState = fact.state
    if recorded != "unknown":
        assert message.fact(recorded, 4096) == fact


@pytest.mark.parametrize("state", STATES)
def test_in_another_place_a_message_begins_again_under_a_key_of_its_own(state: MessageState) -> None:
    chain = Chain("t0", Capabilities())
    before = chain.message(0)
    before.state, before.sends, before.plain, before.final_only = state, 3, True, True
    chain.restart()
    assert chain.messages == [ChatMessage("t0.0", 4096, sends=3, plain=True)]
