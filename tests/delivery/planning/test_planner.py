"""The planner's rules, one by one, by what a user sees."""

from __future__ import annotations

import itertools
import re
from typing import Literal

import msgspec
import pytest
from proof.memory_platform import Fault, LostReply

from delivery.planning.played_plans import DRAFTING, NATIVE, TEXT, WORDS, Stage, answer, edits, numbered, once, sends
from tailrace.delivery.planning.presenter import CUT_OFF
from tailrace.delivery.planning.state import Done, Showing, Wait
from tailrace.delivery.port import (
    AnyAction,
    AnyReply,
    Append,
    Capabilities,
    Close,
    Delete,
    Draft,
    Edit,
    Failed,
    Flood,
    Gone,
    MarkupRejected,
    Open,
    Place,
    Refused,
    Send,
    TooLong,
    Typing,
    Unit,
    Window,
)
from tailrace.delivery.text.balance import open_markup
from tailrace.delivery.text.split import CURSOR, units
from tailrace.events import (
    Delivered,
    MessageChunk,
    MessageStop,
    RunFinished,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
)

# ── growing in place ─────────────────────────────────────────────────────────────────────────────────────────


def test_one_message_grows_with_a_cursor_and_ends_without() -> None:
    stage = Stage()
    stage.stream(answer(*WORDS))
    assert [type(action) for action in stage.actions][:2] == [Typing, Send]
    assert len(sends(stage)) == 1
    assert stage.chat.texts == (TEXT,)
    growing = [texts[0] for _, texts in stage.chat.screens if texts]
    assert len(growing) > 4
    assert all(text.endswith(CURSOR) and TEXT.startswith(text.removesuffix(CURSOR)) for text in growing[:-1])
    assert stage.facts[-1].state == "confirmed"


def test_nothing_is_shown_before_min_tokens_and_a_short_answer_comes_whole() -> None:
    stage = Stage(showing=Showing(streaming=True, min_tokens=20))
    stage.feed(numbered([RunStarted("agent"), *(MessageChunk("a ") for _ in range(19))]))
    stage.run_until(stage.now + 4)
    assert sends(stage) == []
    stage.feed(numbered([MessageChunk("a ")], first=21))
    stage.act()
    assert len(sends(stage)) == 1

    short = Stage()
    short.stream(answer("Yes", "."))
    assert [type(action) for action in short.actions] == [Typing, Send]
    assert short.chat.texts == ("Yes.",)


def test_four_characters_count_as_a_token() -> None:
    stage = Stage(showing=Showing(streaming=True, min_tokens=20))
    stage.feed(numbered([MessageChunk("x" * 80)]))
    assert isinstance(stage.planner.step(stage.now), Send)


def test_edits_keep_their_interval_and_the_latest_text_wins() -> None:
    stage = Stage(showing=Showing(streaming=True, edit_interval_s=2.0))
    stage.stream(answer(*WORDS), every_s=0.05)
    partial = [at for at, texts in stage.chat.screens if texts and texts[0].endswith(CURSOR)]
    assert all(later - earlier >= 2.0 for earlier, later in itertools.pairwise(partial))


def test_a_planner_that_has_something_scheduled_need_not_hear_of_more_text() -> None:
    stage = Stage()
    stage.feed(numbered([MessageChunk(TEXT)]))
    stage.act()
    stage.feed(numbered([MessageChunk("more")], first=2))
    waits = stage.act()
    assert isinstance(waits, Wait)
    assert waits.patient
    assert waits.until is not None


def test_the_final_text_is_the_response_and_not_the_tokens() -> None:
    stage = Stage()
    stage.stream(answer(*WORDS, output="Something else entirely."))
    assert stage.chat.texts == ("Something else entirely.",)


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_G81_the_final_edit_has_a_budget_of_its_own() -> None:
    group = Capabilities(mode="edit", edits=True, windows=(Window(20, 60.0),), edit_interval_s=0.1)
    stage = Stage(group)
    for entry in numbered([RunStarted("agent"), *(MessageChunk(word) for word in WORDS)]):
        stage.feed([entry])
        stage.run_until(stage.now + 0.2)
    assert len(stage.chat.requests) == 16, "updates leave a fifth of the budget"
    stage.feed(numbered([MessageStop(final=True), RunFinished("completed", TEXT)], first=200))
    before = stage.now
    stage.finish()
    assert stage.now == before
    assert stage.chat.texts == (TEXT,)
    assert stage.chat.overruns == []


def test_G78_a_flood_is_waited_out_and_the_same_message_goes_on() -> None:
    struck, strike = once(Flood(17.0), Edit)
    stage = Stage(fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    at = stage.actions.index(struck[0])
    assert len(stage.chat.messages) == 1
    assert stage.chat.texts == (TEXT,)
    times = stage.chat.requests
    flooded = [
        at for at, action in enumerate(a for a in stage.actions if not isinstance(a, Typing)) if action is struck[0]
    ]
    assert times[flooded[0] + 1] - times[flooded[0]] >= 17.0
    assert at > 0


def test_the_interval_doubles_with_a_flood_and_comes_back() -> None:
    stage = Stage()
    assert stage.pace.interval(1.5) == 1.5
    stage.pace.flooded(0.0, 1.0)
    assert stage.pace.interval(1.5) == 3.0
    for _ in range(10):
        stage.pace.eased()
    assert stage.pace.interval(1.5) == 1.5


def test_what_the_headers_say_of_the_next_request_holds() -> None:
    stage = Stage()
    stage.pace.begin(0.0)
    stage.pace.end(0.1, pause_s=4.0)
    assert stage.pace.free_at(0.1, final=True) == 4.1


# ── replies that say no ──────────────────────────────────────────────────────────────────────────────────────


def test_G79_not_modified_is_success() -> None:
    stage = Stage()
    stage.feed(entries := numbered(answer(*WORDS)))
    stage.finish()
    stage.restart(entries, facts=[fact for fact in stage.facts if fact.state != "confirmed"])
    stage.finish()
    assert stage.facts[-1].state == "confirmed"
    assert stage.chat.texts == (TEXT, CUT_OFF)


def test_G83_markup_that_is_refused_becomes_plain_text() -> None:
    def refuse(action: AnyAction) -> Fault:
        return MarkupRejected() if isinstance(action, Send | Edit) and action.markup else None

    stage = Stage(fault=refuse)
    stage.stream(answer(*WORDS))
    assert stage.chat.texts == (TEXT,)
    assert stage.chat.messages[0].markup is False


def test_G82_too_long_after_all_is_split_smaller_and_stays_so_after_a_restart() -> None:
    text = "many words " * 600

    def too_long(action: AnyAction) -> Fault:
        return TooLong() if isinstance(action, Send | Edit) and len(action.text) > 3000 else None

    stage = Stage(fault=too_long)
    stage.feed(entries := numbered(answer(text)))
    stage.finish()
    assert "".join(stage.chat.texts) == text
    shown = stage.chat.texts
    stage.restart(entries)
    stage.finish()
    assert stage.chat.texts == shown


def test_G82_a_long_answer_is_a_chain_and_earlier_parts_never_change() -> None:
    pieces = [f"sentence number {number}. " for number in range(600)]
    stage = Stage()
    stage.stream(answer(*pieces))
    assert len(stage.chat.messages) == 4
    assert "".join(stage.chat.texts) == "".join(pieces)
    assert not any(CURSOR in text for text in stage.chat.texts)
    seen: dict[int, str] = {}
    for _, texts in stage.chat.screens:
        for place, text in enumerate(texts[:-1]):
            assert seen.setdefault(place, text) == text or CURSOR in seen[place] or text.startswith(seen[place])
            seen[place] = text


def test_an_edit_that_is_refused_for_good_becomes_a_new_message_and_the_old_one_goes_afterwards() -> None:
    def refuse(action: AnyAction) -> Fault:
        return Refused("too old to be edited") if isinstance(action, Edit) else None

    stage = Stage(fault=refuse)
    stage.stream(answer(*WORDS))
    assert stage.chat.texts == (TEXT,)
    assert [type(action) for action in stage.actions[-2:]] == [Send, Delete], "G87: never before it is confirmed"


def test_a_message_that_a_user_deleted_is_sent_anew_when_it_is_complete() -> None:
    stage = Stage()
    stage.feed(numbered([RunStarted("agent"), *(MessageChunk(word) for word in WORDS[:50])]))
    stage.run_until(stage.now + 3)
    stage.chat.messages[0].deleted = True
    stage.feed(numbered([MessageChunk("".join(WORDS[50:])), RunFinished("completed", TEXT)], first=60))
    stage.finish()
    assert stage.chat.texts == (TEXT,)


def test_G85_a_topic_that_is_gone_leads_to_the_chat_itself_with_a_notice() -> None:
    stage = Stage(place=Place("telegram", "42", "7", "group"))
    stage.feed(numbered([RunStarted("agent"), *(MessageChunk(word) for word in WORDS[:50])]))
    stage.run_until(stage.now + 3)
    stage.chat.lost_threads.add("7")
    for message in stage.chat.messages:
        message.deleted = True

    def gone(action: AnyAction) -> Fault:
        return Gone("thread") if isinstance(action, Edit) and stage.planner.state.place.thread else None

    stage.fault = gone
    stage.feed(entries := numbered([MessageChunk("".join(WORDS[50:])), RunFinished("completed", TEXT)], first=60))
    stage.finish()
    assert [message.text for message in stage.chat.visible] == ["ℹ️ The thread is gone, so the answer is here.", TEXT]
    assert all(message.thread == "" for message in stage.chat.visible)
    stage.restart(entries)
    assert stage.planner.state.place.thread == ""


def test_a_chat_that_is_gone_ends_the_delivery() -> None:
    stage = Stage(fault=lambda action: Gone("chat") if isinstance(action, Send) else None)
    stage.stream(answer(*WORDS))
    assert stage.facts[-1] == Delivered("chat", "gone")
    assert isinstance(stage.planner.step(stage.now), Done)


def test_failures_are_retried_with_growing_pauses_and_given_up_in_the_end() -> None:
    stage = Stage(fault=lambda action: Failed("down") if isinstance(action, Send) else None)
    stage.feed(numbered(answer("short")))
    stage.finish()
    assert stage.facts[-1].state == "failed"
    assert 23 * 3600 < stage.now - 1000 < 25 * 3600, "an outage of a night loses no answer"


def test_a_platform_that_is_connected_again_is_tried_at_once() -> None:
    stage = Stage(fault=lambda action: Failed("down") if isinstance(action, Send) else None)
    stage.feed(numbered(answer("short")))
    stage.run_until(stage.now + 3600)
    before = len(sends(stage))
    stage.planner.try_again()
    stage.fault = None
    stage.act()
    assert len(sends(stage)) == before + 1
    assert stage.chat.texts == ("short",)


# ── native streams and drafts ────────────────────────────────────────────────────────────────────────────────


def test_a_draft_grows_and_the_whole_message_takes_its_place() -> None:
    stage = Stage(DRAFTING)
    stage.stream(answer(*WORDS))
    drafts = [action for action in stage.actions if isinstance(action, Draft)]
    assert len(drafts) > 3
    assert not any(CURSOR in draft.text for draft in drafts), "the cursor is for edits"
    assert len({draft.draft_id for draft in drafts}) == 1
    assert [type(action) for action in stage.actions if not isinstance(action, Draft | Typing)] == [Send]
    assert stage.chat.texts == (TEXT,)
    assert stage.chat.screens[-2][1][0] != "", "G87: the preview stays until the message is there"


def test_a_draft_is_drawn_again_before_it_fades_while_the_answer_stalls() -> None:
    stage = Stage(msgspec.structs.replace(DRAFTING, draft_lifetime_s=30.0))
    *streamed, stop, finished = numbered(answer(*WORDS))
    stage.feed(streamed)
    stage.run_until(stage.now + 5)
    shown = [action for action in stage.actions if isinstance(action, Draft)]
    stage.run_until(stage.now + 90)  # silence
    drawn = [action for action in stage.actions if isinstance(action, Draft)]
    assert drawn[len(shown) :] == [shown[-1]] * 3, "every 24 s, the same text"
    stage.feed([stop, finished])
    stage.finish()
    assert stage.chat.texts == (TEXT,)


def test_a_platform_that_refuses_drafts_gets_edits() -> None:
    stage = Stage(DRAFTING, fault=lambda action: Refused() if isinstance(action, Draft) else None)
    stage.stream(answer(*WORDS))
    assert sum(isinstance(action, Draft) for action in stage.actions) == 1
    assert len(edits(stage)) > 2
    assert stage.chat.texts == (TEXT,)


def test_a_native_stream_is_opened_appended_to_and_closed() -> None:
    stage = Stage(NATIVE)
    stage.stream(answer(*WORDS))
    kinds = [type(action) for action in stage.actions]
    assert kinds[0] is Open
    assert kinds[-1] is Close
    assert set(kinds[1:-1]) == {Append}
    assert stage.chat.texts == (TEXT,)
    assert not stage.chat.messages[0].streaming


def test_G90_a_native_stream_is_rolled_over_before_it_expires() -> None:
    capabilities = Capabilities(mode="stream", edits=True, stream_lifetime_s=10.0, windows=(Window(100, 60.0),))
    stage = Stage(capabilities)
    stage.stream(answer(*WORDS), every_s=0.3)
    assert len(stage.chat.messages) == 4
    assert "".join(stage.chat.texts) == TEXT
    assert not any(isinstance(reply, Gone) for reply in stage.replies)
    assert all(text.endswith(" ") for text in stage.chat.texts), "cut between words"


def test_G90_what_an_expired_stream_did_not_get_is_edited_in() -> None:
    _, strike = once(Gone("stream"), Append)
    stage = Stage(NATIVE, fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    assert stage.chat.texts == (TEXT,)
    assert len(stage.chat.messages) == 1


@pytest.mark.parametrize("kind", [Append, Close])
@pytest.mark.parametrize("done", [True, False])
def test_an_append_whose_reply_was_lost_leaves_the_right_text(kind: type, done: bool) -> None:
    _, strike = once(LostReply(done=done), kind)
    stage = Stage(NATIVE, fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    assert stage.chat.texts == (TEXT,)


@pytest.mark.parametrize("kind", [Append, Close])
@pytest.mark.parametrize(
    "reply", [MarkupRejected(), TooLong(), Refused("policy")], ids=lambda reply: type(reply).__name__
)
def test_a_piece_that_is_refused_leaves_one_message_with_the_right_text(kind: type, reply: AnyReply) -> None:
    _, strike = once(reply, kind)
    stage = Stage(NATIVE, fault=strike)  # type: ignore[arg-type]
    stage.stream(answer(*WORDS))
    [message] = stage.chat.visible
    assert (message.text, message.streaming) == (TEXT, False)


def test_tools_are_cards_where_the_stream_has_cards() -> None:
    stage = Stage(NATIVE)
    stage.stream(
        [RunStarted("agent"), ToolCallChunk("terminal", "ls"), ToolCallFinished("terminal"), *answer(*WORDS)[1:]]
    )
    tools, text = stage.chat.messages
    assert [card.status for card in tools.cards.values()] == ["done"]
    assert not tools.streaming
    assert text.text == TEXT


# ── long answers ─────────────────────────────────────────────────────────────────────────────────────────────


def long_answer() -> str:
    """30,000 characters with everything in them; every `w…` stands in it once."""
    number = itertools.count()
    sections: list[str] = []
    while sum(map(len, sections)) < 30_000:
        words = " ".join(f"w{next(number)}" for _ in range(40))
        sections += [
            f"## Heading w{next(number)}\n\n{words} 😀👩‍👩‍👧‍👦 漢字、仮名。 שלום עולם مرحبا **bold w{next(number)}**\n",
            "```python\n" + "".join(f"line(w{next(number)})  # 😀\n" for _ in range(30)) + "```\n",
            "| name | value |\n|---|---|\n" + "".join(f"| w{next(number)} | 漢字 |\n" for _ in range(20)),
            f"- [link w{next(number)}](https://example.org/a_(b))\n",
        ]
    return "\n".join(sections)


def test_a_code_block_that_a_stream_cuts_ends_without_an_empty_line() -> None:
    code = "```python\n" + "".join(f"line({number})\n" for number in range(60)) + "```"
    stage = Stage(msgspec.structs.replace(NATIVE, limit=400))
    stage.stream(answer(*(code[at : at + 7] for at in range(0, len(code), 7))))
    assert len(stage.chat.texts) == 2
    assert [shown for shown in stage.chat.texts if "\n\n" in shown] == []
    assert all(shown.startswith("```python\nline(") and shown.endswith(")\n```") for shown in stage.chat.texts)


LIMITS: list[tuple[str, int, Unit]] = [
    ("telegram", 4096, "utf16"),
    ("discord", 2000, "chars"),
    ("slack", 12_000, "chars"),
    ("matrix", 16_000, "bytes"),
    ("whatsapp", 4096, "chars"),
]


@pytest.mark.parametrize(("name", "limit", "unit"), LIMITS, ids=[name for name, _, _ in LIMITS])
@pytest.mark.parametrize("mode", ["edit", "draft", "stream", "whole"])
def test_G82_thirty_thousand_characters_arrive_whole_and_in_order(
    name: str, limit: int, unit: Unit, mode: Literal["edit", "draft", "stream", "whole"]
) -> None:
    text = long_answer()
    capabilities = Capabilities(mode=mode, edits=mode != "whole", limit=limit, unit=unit, windows=(Window(20, 10.0),))
    stage = Stage(capabilities)
    stage.stream(answer(*(text[at : at + 400] for at in range(0, len(text), 400))), every_s=0.3)
    expected = re.findall(r"w\d+", text)
    assert re.findall(r"w\d+", "".join(stage.chat.texts)) == expected
    assert all(units(shown, unit) <= limit for shown in stage.chat.texts)
    assert all(open_markup(shown).closing == "" for shown in stage.chat.texts)
    assert stage.chat.overruns == []
