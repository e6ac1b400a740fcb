"""What a chat is shown beside the answer: text before tools, tools, notices, questions, files; by what a user sees."""

from __future__ import annotations

import itertools
from typing import Literal

import msgspec
import pytest
from proof.memory_platform import Fault, LostReply

from delivery.planning.played_plans import EDITING, PLACE, Stage, answer, edits, numbered
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import (
    AnyAction,
    Button,
    Capabilities,
    Draft,
    Flood,
    Open,
    Place,
    Refused,
    Send,
    TooLong,
    Typing,
    Upload,
    Window,
)
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    Commentary,
    GatewayNotice,
    LongToolHint,
    MessageChunk,
    MessageStop,
    RunFailure,
    RunFinished,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.messages import ENDED_BY_PROVIDER, ToolFile
from tailrace.runs.signals import stop_failure, stop_signal

WORDS = [f"word{number} " for number in range(100)]
TEXT = "".join(WORDS)
DRAFTING = Capabilities(mode="draft", edits=True, limit=4096, unit="utf16", windows=(Window(1, 1.0),), typing_s=5.0)
WHOLE = Capabilities(limit=4096, windows=(Window(1, 6.0),), typing_s=25.0)
NATIVE = Capabilities(mode="stream", edits=True, limit=12_000, windows=(Window(100, 60.0),))
LIMIT = RunFailure("incomplete", ENDED_BY_PROVIDER["length"])
REPLACED = stop_failure(stop_signal(by="telegram:7", newer=True))
STOPPED_HERE = stop_failure(stop_signal(by=f"{PLACE.platform}:7"))
STOPPED_ELSEWHERE = stop_failure(stop_signal(by="ann"))


def once(fault: Fault, *kinds: type) -> tuple[list[AnyAction], object]:
    """A fault for the first action of these kinds."""
    struck: list[AnyAction] = []

    def strike(action: AnyAction) -> Fault:
        if isinstance(action, kinds) and not struck:
            struck.append(action)
            return fault
        return None

    return struck, strike


WITH_TOOLS: list[AnyEvent] = [
    RunStarted("agent"),
    *(MessageChunk(word) for word in WORDS[:30]),
    MessageStop(),
    ToolCallChunk("terminal", "ls -l", index=0),
    ToolCallFinished("terminal", 0.3, index=0),
    ToolCallChunk("read_file", "notes.txt", index=1),
    ToolCallFinished("read_file", 0.1, ok=False, index=1),
    *(MessageChunk(word) for word in WORDS),
    MessageStop(final=True),
    RunFinished("completed", TEXT),
]


def test_text_before_a_tool_is_a_message_of_its_own_above_the_tools_line() -> None:
    stage = Stage()
    stage.stream(WITH_TOOLS, every_s=2.0)
    assert stage.chat.texts == (
        "".join(WORDS[:30]),
        "✓ **terminal** `ls -l` (0.3 s)\n✗ **read_file** `notes.txt` (0.1 s)",
        TEXT,
    )
    assert any("⏳ **terminal**" in text for _, texts in stage.chat.screens for text in texts)


def test_a_comment_a_notice_and_a_hint_are_messages_of_their_own() -> None:
    stage = Stage()
    stage.stream(
        [
            RunStarted("agent"),
            Commentary("First I look."),
            GatewayNotice("stalled", "No response for 240s."),
            GatewayNotice("stalled", "No response for 300s."),
            LongToolHint("terminal", 30.0),
            LongToolHint("terminal", 60.0),
            *answer("Done.")[1:],
        ],
        every_s=0.0,
    )
    assert stage.chat.texts == ("First I look.", "No response for 300s.", "💡 terminal is taking a while.", "Done.")


ALL_WHOLE = (
    "".join(WORDS[:30]),
    "✓ **terminal** `ls -l` (0.3 s)\n✗ **read_file** `notes.txt` (0.1 s)",
    "No response for 240s.",
    TEXT,
)
STALLED_AFTER_TOOLS: list[AnyEvent] = [*WITH_TOOLS[:36], GatewayNotice("stalled", ALL_WHOLE[2]), *WITH_TOOLS[36:]]
NOT_STREAMING = pytest.mark.parametrize("capabilities", [WHOLE, EDITING], ids=["cannot edit", "streaming off"])


@NOT_STREAMING
@pytest.mark.parametrize("place", [PLACE, Place("telegram", "-7", "12", "group")], ids=["private", "thread"])
def test_M149_without_streaming_every_text_tool_line_and_notice_arrives_whole(
    capabilities: Capabilities, place: Place
) -> None:
    stage = Stage(capabilities, showing=Showing(streaming=capabilities is WHOLE), place=place)
    stage.stream(STALLED_AFTER_TOOLS, every_s=0.5)
    assert {type(action) for action in stage.actions} == {Typing, Send}, "nothing is edited"
    assert stage.chat.texts == ALL_WHOLE
    assert {message.thread for message in stage.chat.messages} == {place.thread}
    life = capabilities.typing_s or 0
    gaps = [later - earlier for earlier, later in itertools.pairwise(stage.chat.typing_at)]
    assert all(gap <= life for gap in gaps)


@NOT_STREAMING
def test_M149_a_restart_at_any_event_shows_each_whole_text_once(capabilities: Capabilities) -> None:
    log = numbered(STALLED_AFTER_TOOLS)
    for cut in range(1, len(log)):
        stage = Stage(capabilities, showing=Showing())
        stage.feed(log[:cut])
        stage.run_until(stage.now + 30)
        stage.restart(log[:cut])
        stage.feed(log[cut:])
        stage.finish()
        assert stage.chat.texts == ALL_WHOLE


def test_M149_where_nothing_is_edited_a_later_notice_and_an_outcome_are_messages() -> None:
    stage = Stage(WHOLE, showing=Showing())
    asked = ApprovalAsked("apr_1", "terminal", "rm x", "digest")
    notices = [GatewayNotice("stalled", "No response for 240s."), GatewayNotice("stalled", "No response for 300s.")]
    events = [RunStarted("agent"), asked, ApprovalAnswered("apr_1", "deny", "timeout"), *notices, *answer("Ok.")[1:]]
    stage.stream(events, every_s=7.0)
    assert stage.chat.texts[1:] == (
        "⌛ Not executed: no answer came in time",
        "No response for 240s.",
        "No response for 300s.",
        "Ok.",
    )


def test_an_approval_has_buttons_and_shows_its_outcome() -> None:
    stage = Stage(EDITING)
    asked = ApprovalAsked(
        "apr_1", "terminal", "rm -rf ```\u2060build", "digest", "u1", reason="deletes files", directory="/srv/a*b*"
    )
    stage.feed(numbered([RunStarted("agent"), ToolCallChunk("terminal", "rm"), asked]))
    stage.run_until(stage.now + 3)
    assert stage.planner.outline.open_approval == asked
    question = stage.chat.messages[-1]
    assert "rm -rf ```\u2060build" in question.text, "J111: all of what would run"
    assert "````" in question.text, "J111: which cannot end its block"
    assert "`in /srv/a*b*, for u1`" in question.text, "M152: where and for whom"
    assert [button.label for button in question.buttons] == ["Approve once", "Approve for session", "Always", "Deny"]
    assert question.buttons[0] == Button("Approve once", "apr_1:once")
    stage.feed(numbered([ApprovalAnswered("apr_1", "deny", "u1", "keep the build")], first=10))
    stage.run_until(stage.now + 3)
    assert question.text.endswith("🚫 Denied: `keep the build`")
    assert question.buttons == ()


@pytest.mark.parametrize("capabilities", [EDITING, WHOLE], ids=["edited", "said"])
def test_who_approves_always_is_told_how_to_take_it_back(capabilities: Capabilities) -> None:
    stage = Stage(capabilities)
    asked = ApprovalAsked("apr_1", "terminal", "rm x", "1a2b3c4d5e6f", "u1")
    stage.feed(numbered([RunStarted("agent"), asked, ApprovalAnswered("apr_1", "always", "u1")]))
    stage.run_until(stage.now + 3)
    told = "✅ Approved always; `tailrace approvals --forget 1a2b3c4d` takes it back"
    assert stage.chat.texts[-1].endswith(told)


def test_a_question_whose_run_was_stopped_has_no_button_left() -> None:
    stage = Stage(EDITING)
    stage.feed(numbered([RunStarted("agent"), ApprovalAsked("apr_1", "terminal", "rm x", "digest")]))
    stage.run_until(stage.now + 3)
    question = stage.chat.messages[-1]
    assert question.buttons
    stage.feed(numbered([RunFinished("stopped")], first=3))
    stage.finish()
    assert question.buttons == ()
    assert question.text.endswith("⌛ Not executed: the run ended before an answer came")


def test_a_question_whose_run_was_stopped_is_closed_where_nothing_is_edited() -> None:
    stage = Stage(WHOLE, showing=Showing())
    asked = ApprovalAsked("apr_1", "terminal", "rm x", "digest")
    stage.stream([RunStarted("agent"), asked, RunFinished("stopped")], every_s=7.0)
    assert stage.chat.texts[1:] == ("⌛ Not executed: the run ended before an answer came",)


def test_an_approval_is_asked_without_streaming_too() -> None:
    stage = Stage(WHOLE, showing=Showing())
    stage.feed(numbered([RunStarted("agent"), ApprovalAsked("apr_1", "terminal", "rm x", "digest")]))
    stage.act()
    assert stage.chat.texts[0].endswith("Answer /approve, /approve session, /approve always or /deny.")


@pytest.mark.parametrize(
    ("finished", "shown"),
    [
        (RunFinished("failed", "", error=RunFailure("error", "no key")), ("⚠️ no key",)),
        (RunFinished("failed", "half", error=RunFailure("error", "cut")), ("half", "⚠️ cut")),
        (RunFinished("incomplete", "half", error=RunFailure("incomplete", "cut")), ("half",)),
        (RunFinished("incomplete", "half", error=LIMIT), ("half", "⚠️ the answer reached the model's token limit")),
        (RunFinished("stopped", "half"), ("half",)),
        (RunFinished("stopped"), ()),
        (RunFinished("stopped", "half", error=REPLACED), ("half\n\n⏹ Interrupted by a newer message.",)),
        (RunFinished("stopped", error=REPLACED), ()),
        (RunFinished("stopped", "half", error=STOPPED_HERE), ("half",)),
        (RunFinished("stopped", error=STOPPED_HERE), ()),
        (RunFinished("stopped", "half", error=STOPPED_ELSEWHERE), ("half\n\n⏹ Stopped from elsewhere.",)),
        (RunFinished("stopped", error=STOPPED_ELSEWHERE), ("⏹ Stopped from elsewhere.",)),
        (RunFinished("completed"), ("The model gave no answer.",)),
    ],
)
def test_every_end_of_a_run_is_shown_or_explained(finished: RunFinished, shown: tuple[str, ...]) -> None:
    stage = Stage()
    stage.stream([RunStarted("agent"), MessageStop(final=True), finished])
    assert stage.chat.texts == shown


@pytest.mark.parametrize("capabilities", [EDITING, DRAFTING, NATIVE, WHOLE])
@pytest.mark.parametrize("streaming", [True, False])
def test_an_answer_that_a_newer_message_cut_ends_alike_streamed_or_not(
    capabilities: Capabilities, streaming: bool
) -> None:
    stage = Stage(capabilities, showing=Showing(streaming=streaming))
    said = "".join(WORDS[:60])
    stage.stream([*answer(*WORDS[:60])[:-1], RunFinished("stopped", said, error=REPLACED)])
    assert stage.chat.texts == (f"{said.rstrip()}\n\n⏹ Interrupted by a newer message.",)


@pytest.mark.parametrize("tool_ended", [True, False])
def test_an_answer_that_a_newer_message_cut_at_a_tool_says_so(tool_ended: bool) -> None:
    stage = Stage()
    ended: list[AnyEvent] = [ToolCallFinished("terminal")] if tool_ended else []
    called = [MessageStop(), ToolCallChunk("terminal", "ls"), *ended]
    stage.stream([*answer("I look.")[:-2], *called, RunFinished("stopped", error=REPLACED)])
    line = f"{'✓' if tool_ended else '✗'} **terminal** `ls`"
    assert [text.partition(" (")[0] for text in stage.chat.texts] == [
        "I look.",
        line,
        "⏹ Interrupted by a newer message.",
    ]


def test_the_mark_of_a_cut_answer_stands_outside_the_code_that_it_was_cut_in() -> None:
    stage = Stage()
    half = "So:\n\n```py\nprint(1)"
    stage.stream([*answer(half)[:-1], RunFinished("stopped", half, error=REPLACED)])
    assert stage.chat.texts == (f"{half}\n```\n\n⏹ Interrupted by a newer message.",)


def test_a_draft_that_floods_is_not_worth_a_second_try() -> None:
    stage = Stage(DRAFTING, place=PLACE, fault=lambda action: Flood(2.0) if isinstance(action, Draft) else None)
    stage.stream(answer(*WORDS))
    assert stage.chat.texts == (TEXT,)


def test_where_no_stream_is_to_be_had_for_now_texts_and_tools_are_sent_whole_and_not_edited() -> None:
    capabilities = msgspec.structs.replace(NATIVE, cards=True)
    no_stream = Refused("too many", for_now=True)
    stage = Stage(capabilities, fault=lambda action: no_stream if isinstance(action, Open) else None)
    stage.stream(WITH_TOOLS, every_s=0.5)
    tools = "✓ **terminal** `ls -l` (0.3 s)\n✗ **read_file** `notes.txt` (0.1 s)"
    assert stage.chat.texts == ("".join(WORDS[:30]), tools, TEXT)
    assert not edits(stage)


# ── files ──

PICTURE = ToolFile("plot-1.png", "image/png", b"\x89PNG" * 3000)
WITH_FILE: list[AnyEvent] = [
    RunStarted("agent"),
    ToolCallChunk("plot", index=0),
    ToolOutputRecorded("c1", "plot", "[image/png]", files=(PICTURE,)),
    ToolCallFinished("plot", 0.1, index=0),
    *answer("There.")[1:],
]
TAKES_FILES = msgspec.structs.replace(EDITING, max_file_bytes=1 << 20)
NAMED = "📎 `plot-1.png` (image/png, 12 kB)"


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("resend", ["never", "look_up", "idempotent"])
def test_a_file_of_a_tool_is_uploaded_below_its_line_once_across_a_restart(
    streaming: bool, resend: Literal["never", "look_up", "idempotent"]
) -> None:
    log = numbered(WITH_FILE)
    for cut in range(1, len(log) + 1):
        capabilities = msgspec.structs.replace(TAKES_FILES, resend=resend)
        stage = Stage(capabilities, showing=Showing(streaming=streaming))
        stage.feed(log[:cut])
        stage.run_until(stage.now + 30)
        stage.restart(log[:cut])
        stage.feed(log[cut:])
        stage.finish()
        assert stage.chat.texts == ("✓ **plot** (0.1 s)", "plot-1.png", "There.")
        assert stage.chat.messages[1].file == PICTURE.data


@pytest.mark.parametrize("limit", [0, 100])
def test_a_file_that_the_platform_does_not_take_is_named(limit: int) -> None:
    stage = Stage(msgspec.structs.replace(EDITING, max_file_bytes=limit))
    stage.stream(WITH_FILE)
    assert stage.chat.texts == ("✓ **plot** (0.1 s)", NAMED, "There.")


def test_each_file_that_is_too_large_for_the_log_has_its_line_whatever_its_name_is() -> None:
    def left_out(name: str) -> GatewayNotice:
        return GatewayNotice("file_left_out", f"{name} (9.0 MiB) is not shown: so it is.", {"name": name})

    stage = Stage(EDITING)
    stage.stream([*WITH_FILE[:-2], left_out("all.bin"), left_out("[x](http://x)*.png"), *WITH_FILE[-2:]])
    assert [text for text in stage.chat.texts if "MiB" in text] == [
        "📎 `all.bin` (9.0 MiB) is not shown: so it is.",
        "📎 `[x](http://x)*.png` (9.0 MiB) is not shown: so it is.",
    ]


@pytest.mark.parametrize("reply", [Refused("missing_scope"), TooLong()])
def test_a_file_that_the_platform_refuses_is_named(reply: Fault) -> None:
    stage = Stage(TAKES_FILES, fault=lambda action: reply if isinstance(action, Upload) else None)
    stage.stream(WITH_FILE)
    assert stage.chat.texts == ("✓ **plot** (0.1 s)", NAMED, "There.")


@pytest.mark.parametrize("resend", ["never", "look_up", "idempotent"])
def test_G80_an_upload_whose_reply_was_lost_is_there_once(resend: Literal["never", "look_up", "idempotent"]) -> None:
    _, strike = once(LostReply(done=True), Upload)
    stage = Stage(msgspec.structs.replace(TAKES_FILES, resend=resend), fault=strike)  # type: ignore[arg-type]
    stage.stream(WITH_FILE)
    assert stage.chat.texts == ("✓ **plot** (0.1 s)", "plot-1.png", "There.")
