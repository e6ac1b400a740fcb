"""What the chat says and sends, without a terminal: the first screen, the status line, questions, costs, keys."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from prompt_toolkit.history import History, InMemoryHistory

from tailrace.cli.chat.conversation import SessionSummary
from tailrace.cli.chat.markdown_export import section, unfolded
from tailrace.cli.chat.question import MAX_FILE_BYTES, CommandOutput, composed, file_to_try, files_for
from tailrace.cli.chat.slash.commands import is_slash_command
from tailrace.cli.chat.spending import Spending, dollars, short_count
from tailrace.cli.chat.status_line import StatusFacts, duration, short_path, status_line
from tailrace.cli.chat.tty_approval import answer_of
from tailrace.cli.chat.welcome import WelcomeFacts, cut_off, welcome
from tailrace.cli.screen.approval_menu import ARMED_AFTER_S, ApprovalMenu
from tailrace.cli.screen.input_line import Completion, InputLine, TypedLine
from tailrace.cli.screen.markdown_blocks import blocks_of
from tailrace.cli.screen.painter import BlockPiece, Painter, Rows
from tailrace.events import ApprovalAsked, Decision, RunForked, UsageRecorded
from tailrace.messages import Image, Text, Usage


def drawn(rows: Rows, width: int = 80) -> list[str]:
    return ["".join(segment.text for segment in line) for line in Painter().lines([rows], width)]


# ── the first screen ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_screen_says_who_where_with_what_and_what_to_try() -> None:
    facts = WelcomeFacts(
        "1.2", "anthropic/claude", "~/src", ("terminal", "patch"), file="README.md", is_repository=True
    )
    lines = drawn(welcome(facts))
    assert lines[1] == "● tailrace 1.2"
    assert "  model      anthropic/claude" in lines
    assert "  directory  ~/src" in lines
    assert "  tools      terminal, patch" in lines
    assert lines[lines.index("  Try") + 1 :][:3] == [
        "    What is in this directory?",
        "    Explain @README.md in three sentences.",
        "    !git log --oneline -5   and then: what do you make of this?",
    ]
    assert not any("real model" in line for line in lines)


def test_the_embedded_model_says_that_it_is_small_and_how_to_get_a_real_one() -> None:
    facts = WelcomeFacts("1.2", "local/smollm2-135m", "~", embedded=True, init=".venv/bin/tailrace init")
    lines = drawn(welcome(facts))
    assert any("small and often wrong" in line for line in lines)
    assert any(line.startswith("    .venv/bin/tailrace init ") for line in lines)
    assert "  tools      none: this model only talks" in lines


def test_the_file_to_try_is_one_that_the_model_reads_in_a_few_seconds(tmp_path: Path) -> None:
    assert file_to_try(tmp_path, embedded=False) == ""
    (tmp_path / "README.md").write_text("x" * 14_000)
    assert (file_to_try(tmp_path, embedded=False), file_to_try(tmp_path, embedded=True)) == ("README.md", "")
    (tmp_path / "pyproject.toml").write_text("[project]")
    assert file_to_try(tmp_path, embedded=True) == "pyproject.toml"


@pytest.mark.parametrize("width", [40, 60, 200])
def test_the_first_screen_fits_any_window(width: int) -> None:
    facts = WelcomeFacts("1.2", "local/smollm2-135m", "~/" + "deep/" * 12, ("tool",) * 30, embedded=True, yolo=True)
    assert max(map(len, drawn(welcome(facts), width))) < width
    assert max(map(len, drawn(cut_off("why " * 60, "2m ago"), width))) < width


def test_an_answer_that_was_cut_off_is_offered_with_its_question() -> None:
    lines = drawn(cut_off("Write a long story.", "2m ago"))
    assert lines[1:] == [
        "▌ An answer was cut off when its terminal died, 2m ago:",
        "▌ “Write a long story.”",
        "▌ Enter joins it and goes on; or just ask something else.",
    ]


# ── the status line ──────────────────────────────────────────────────────────────────────────────────────────

FACTS = StatusFacts("claude", "~/src", 20_000, 200_000, 41_234, 0.123, 12.4)


def status(facts: StatusFacts, width: int = 200) -> str:
    return "".join(text for _, text in status_line(facts, width))


def test_the_status_line_says_what_there_is_to_know() -> None:
    assert status(FACTS) == "claude · ~/src · 90% context left · 41.2k tokens · $0.12 · 12 s · /help"
    running = msgspec.structs.replace(FACTS, running="answering", interrupt_means="Ctrl-C stops", switches=("yolo",))
    assert status(running) == (
        "answering 12 s · Ctrl-C stops · claude · yolo · ~/src · 90% context left · 41.2k tokens · $0.12"
    )
    assert status(StatusFacts("claude")) == "claude · /help"  # nothing is shown that is not known


def test_what_does_not_fit_is_left_out_whole() -> None:
    assert status(FACTS, 60) == "claude · ~/src · 90% context left · 41.2k tokens · $0.12"
    assert status(FACTS, 40) == "claude · 90% context left · $0.12"
    assert status(FACTS, 10) == "claude"
    assert status(StatusFacts("a-model-with-a-long-name"), 10) == "a-model-w…"


def test_durations_amounts_and_paths_are_short() -> None:
    assert [duration(s) for s in (0.44, 12.4, 185, 7260)] == ["0.4 s", "12 s", "3 m 5 s", "2 h 1 m"]
    assert [dollars(cost) for cost in (None, 0.0, 0.00042, 1.239)] == ["", "$0.00", "$0.0004", "$1.24"]
    assert [short_count(n) for n in (999, 1234, 1_234_567)] == ["999", "1.2k", "1.2M"]
    home = Path("/home/ada")
    assert [short_path(home / name, home) for name in ("", "src")] == ["~", "~/src"]
    assert short_path(Path("/a/" + "b" * 20 + "/cc/dd/eeeeeeee"), home) == "…/cc/dd/eeeeeeee"


def test_the_list_of_sessions_keeps_its_columns() -> None:
    first, second = SessionSummary("diary", "Why?", 1, 990.0), SessionSummary("ses_5e816a78", "How " * 20, 500, 100.0)
    lines = [session.describe(1000.0, 12) for session in (first, second)]
    assert lines[0] == "diary         just now  1 turn     Why?"
    assert (lines[1].index("500 turns"), lines[1].index("How")) == (lines[0].index("1 turn"), lines[0].index("Why?"))
    assert len(lines[1]) < 80


def test_the_first_screen_cuts_no_name_of_a_tool() -> None:
    names = tuple(f"mill__open_gate_{number}" for number in range(30))
    facts = WelcomeFacts("1.2", "anthropic/claude", "~/src", names)
    lines = [line.strip() for line in drawn(welcome(facts), 100)]
    first = next(number for number, line in enumerate(lines) if line.startswith("tools"))
    said = " ".join(lines[first : lines.index("", first)]).removeprefix("tools").strip()
    listed, _, more = said.partition(" and ")
    shown = listed.split(", ")
    assert shown == list(names[: len(shown)])
    assert more == f"{30 - len(shown)} more"


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────


def test_spending_is_counted_by_model_and_a_fork_begins_anew() -> None:
    prices = {"big": 0.01}
    spending = Spending(
        lambda _provider, model, usage: prices[model] * usage.output_tokens if model in prices else None
    )
    assert spending.table() == "nothing yet: no model has been asked in this session"
    spending.note_all([UsageRecorded(Usage(9, 9), "p", "big"), RunForked("run_1", 3)])
    spending.note_all([UsageRecorded(Usage(1000, 20), "p", "big"), UsageRecorded(Usage(5, 3), "local", "small")])
    one = Spending(lambda *_: None)
    one.note(UsageRecorded(Usage(9, 9), "p", "big"))
    assert one.table().splitlines()[-1] == "1 call · 18 tokens"
    assert (spending.tokens, spending.cost_usd, spending.context_tokens) == (1028, 0.2, 8)
    stopped = Spending(lambda *_: None)
    stopped.note(UsageRecorded(Usage(9, 9, estimated_tokens=18), "p", "big"))
    assert stopped.table().startswith("p/big  ~9 in  ~9 out")
    lines = spending.table().split("\n")
    assert lines[0].split() == ["p/big", "1,000", "in", "20", "out", "$0.20"]
    assert lines[1].split() == ["local/small", "5", "in", "3", "out", "no", "price", "known"]
    assert lines[2] == "2 calls · 1,028 tokens · $0.20"


# ── a question ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_comes_along_whole_and_is_shown_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("one\ntwo\n")
    question = composed("Read @notes.md, please.", "Read @notes.md, please.", tmp_path)
    assert question.message.text == 'Read @notes.md, please.\n\n<file path="notes.md">\none\ntwo\n</file>'
    assert question.shown == "Read @notes.md, please.\n  + notes.md, 2 lines"
    assert question.notes == ()


def test_what_is_no_file_is_text_and_what_cannot_come_along_is_said(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "raw.bin").write_bytes(b"\0\1")
    plain = composed("Ask @ada about ada@example.org.", "Ask @ada about ada@example.org.", tmp_path)
    assert (plain.message.text, plain.shown, plain.notes) == ("Ask @ada about ada@example.org.", "", ())
    notes = composed("@big.log @raw.bin @gone.txt", "", tmp_path).notes
    assert [note.split(":")[0] for note in notes] == [
        "@big.log has 256,001 bytes, more than 256,000",
        "@raw.bin is no text",
        "@gone.txt is no file here",
    ]


def test_a_binary_file_without_a_nul_does_not_come_along(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(range(1, 256)) * 4)
    question = composed("What is @x.bin?", "What is @x.bin?", tmp_path)
    assert question.notes == ("@x.bin is no text: it does not come along",)
    assert question.message.parts == (Text("What is @x.bin?"),)


def test_a_text_in_another_encoding_comes_along(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes("Die Mühle klappert am rauschenden Bach.".encode("latin-1"))
    question = composed("@old.txt", "@old.txt", tmp_path)
    assert question.notes == ()
    assert "klappert am rauschenden Bach." in question.message.text


def test_an_image_is_an_image_and_a_directory_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").touch()
    question = composed("@a.png @d", "@a.png @d", tmp_path)
    assert question.message.parts[1] == Image(data=base64.b64encode(b"\x89PNG").decode(), media_type="image/png")
    assert '<directory path="d">\nx\n</directory>' in question.message.text
    assert question.shown.endswith("\n  + d, 1 entry")


def test_the_output_of_the_users_commands_goes_with_the_next_question(tmp_path: Path) -> None:
    question = composed("Why?", "Why?", tmp_path, [CommandOutput("make", "no rule\n", 2)])
    assert question.message.text == (
        "Why?\n\n<command_output command='make' result='exit code 2'>\nno rule\n\n</command_output>"
    )
    assert question.shown == "Why?\n  + !make, 1 line"


def test_names_of_files_are_completed(tmp_path: Path) -> None:
    for name in ("read.me", "real.txt", ".hidden", "with blank"):
        (tmp_path / name).touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    assert files_for("@", tmp_path) == ["@read.me", "@real.txt", "@src/"]
    assert files_for("@rea", tmp_path) == ["@read.me", "@real.txt"]
    assert files_for("@src/", tmp_path) == ["@src/a.py"]
    assert files_for("@.h", tmp_path) == ["@.hidden"]
    assert files_for("@nowhere/x", tmp_path) == []


# ── what is saved ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("question", "answer", "saved"),
    [
        ("Why?", "Because.\n", "## Why?\n\nBecause."),
        ("Why?", "", "## Why?"),
        ("Code?", "So:\n```py\nx = 1", "## Code?\n\nSo:\n```py\nx = 1\n```"),
        ("Nested?", "````md\n```\ncode\n```", "## Nested?\n\n````md\n```\ncode\n```\n````"),
        ("See:\n~~~\nlog", "Yes.", "## See:\n~~~\nlog\n~~~\n\nYes."),
        ("```py\nx\n```", "Fine.", "## …\n\n```py\nx\n```\n\nFine."),
    ],
)
def test_an_open_code_block_ends_with_its_part_of_what_is_saved(question: str, answer: str, saved: str) -> None:
    assert section(question, answer) == saved


@pytest.mark.parametrize(
    ("shown", "sent", "typed"),
    [
        ("[2 lines pasted]", "a\nb", "a\nb"),
        ("See [2 lines pasted] and [2 lines pasted, 2].", "See a\nb and c\n\nd.", ""),  # they do not fit
        ("See [2 lines pasted] and [3 lines pasted].", "See a\nb\n and c\n\nd.", "See a\nb\n and c\n\nd."),
        ("[2 lines pasted]\n  + x.md, 1 line", "a\nb\n\n<file path='x.md'>\n1\n</file>", "a\nb"),
        ("[11 characters pasted]", "a\n\n<b>\n\n<c>\n\n<file>", "a\n\n<b>\n\n<c>"),
        ("Who typed [5 lines pasted]?", "Who typed [5 lines pasted]?", "Who typed [5 lines pasted]?"),
    ],
)
def test_a_folded_paste_is_saved_whole_and_the_files_beside_it_by_name(shown: str, sent: str, typed: str) -> None:
    assert unfolded(shown, sent) == (typed or sent)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def asked_menu() -> tuple[ApprovalMenu, Clock]:
    clock = Clock()
    menu = ApprovalMenu(clock, 60, wall_clock=lambda: 5000.0)
    menu.open(ApprovalAsked("a", "terminal", "rm -rf x", "d", expires_at=5042.0))
    return menu, clock


def stand(menu: ApprovalMenu, clock: Clock) -> None:
    """A frame with the menu, and one when it has stood."""
    draw(menu)
    clock.now += ARMED_AFTER_S
    draw(menu)


def draw(menu: ApprovalMenu) -> None:
    menu.rows()
    menu.was_drawn()


def test_no_key_counts_before_the_screen_says_so() -> None:
    menu, clock = asked_menu()
    clock.now += 10 * ARMED_AFTER_S  # a busy machine draws late
    assert menu.press("s") == "draft"
    clock.now += 10 * ARMED_AFTER_S
    draw(menu)
    assert menu.press("s") == "draft"  # it appeared just now
    clock.now += 10 * ARMED_AFTER_S
    assert menu.press("s") == "draft"  # what is on the screen is still dim
    stand(menu, clock)
    assert menu.press("s") == "answer"


def test_keys_count_once_the_menu_has_stood_and_nobody_was_typing() -> None:
    menu, clock = asked_menu()
    draw(menu)
    assert menu.press("o") == "draft"  # meant for the message that was being typed
    clock.now += ARMED_AFTER_S / 2
    draw(menu)
    assert menu.press("s") == "draft"
    stand(menu, clock)
    assert (menu.press("s"), menu.decision) == ("answer", "session")


def test_a_word_that_begins_with_no_choice_answers_nothing() -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    assert [menu.press(key) for key in "@notes"] == ["nothing"] * 6
    stand(menu, clock)
    assert menu.press("o") == "answer"


def test_the_rest_of_a_word_that_was_typed_out_is_swallowed() -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    assert [menu.press(key) for key in "once"] == ["answer", "nothing", "nothing", "nothing"]
    menu.close()
    assert menu.swallows("\r")
    assert not menu.swallows("h")


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("word", ["o", "D", "deny\r", "why"])
def test_a_key_that_comes_just_after_the_menu_went_begins_no_message(word: str, seen: bool) -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    menu.close()  # answered elsewhere
    if seen:
        menu.was_drawn()
        clock.now += ARMED_AFTER_S / 2
    assert menu.may_swallow
    assert all(menu.swallows(key) for key in word)
    assert not menu.swallows("h")


def test_a_key_for_one_menu_does_not_count_as_a_draft_of_the_next() -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    menu.close()
    menu.open(ApprovalAsked("b", "terminal", "rm -rf y", "d", expires_at=5042.0))
    draw(menu)
    clock.now += ARMED_AFTER_S / 2
    assert [menu.press(key) for key in "den"] == ["nothing"] * 3
    assert menu.press("h") == "draft"
    stand(menu, clock)
    assert menu.press("d") == "answer"


@pytest.mark.parametrize("before", ["a menu that was not armed", "the user's own answer", "the start of a message"])
def test_a_message_keeps_its_letters_where_no_answer_was_expected(before: str) -> None:
    menu, clock = asked_menu()
    draw(menu)
    if before != "a menu that was not armed":
        stand(menu, clock)
    if before == "the user's own answer":
        assert menu.press("d") == "answer"
    menu.close()
    menu.was_drawn()
    if before == "the start of a message":
        assert not menu.swallows("n")
    assert not menu.swallows("o")


def test_a_message_that_begins_later_keeps_its_first_letter() -> None:
    menu, clock = asked_menu()
    stand(menu, clock)
    menu.close()
    menu.was_drawn()
    clock.now += ARMED_AFTER_S
    assert not menu.may_swallow
    assert not menu.swallows("o")


def test_the_menu_counts_down_and_says_what_each_key_means() -> None:
    menu, clock = asked_menu()
    clock.now += 12
    lines = drawn(menu.rows())
    assert lines[1] == "   o  once     this time only"
    assert lines[3] == "   a  always   exactly this, here, from now on"
    assert lines[-1] == "  30 s left, then it is denied"
    stand(menu, clock)
    assert menu.press("w") == "why"
    assert drawn(menu.rows())[1].startswith("  Why not?")


class Listener:
    """Keeps what was entered."""

    def __init__(self) -> None:
        self.lines: list[TypedLine] = []

    def entered(self, line: TypedLine) -> None:
        self.lines.append(line)

    def interrupted(self) -> None: ...

    def left(self) -> None: ...

    def approval_answered(self, decision: Decision, reason: str) -> None: ...

    def expand_tool(self) -> None: ...


@pytest.mark.parametrize(
    ("line", "is_command"),
    [
        ("/help", True),
        ("/model a/b", True),
        ("/files:sum x/y", True),
        ("/gh:repo/review 12", True),
        ("/etc/hosts is what?", False),
        ("see /help", False),
    ],
)
def test_a_message_may_begin_with_a_path(line: str, is_command: bool) -> None:
    assert is_slash_command(line) == is_command


def test_a_long_paste_is_folded_and_sent_whole() -> None:
    line = input_line(InMemoryHistory())
    text = "\n".join(f"line {number}" for number in range(200))
    other = text.replace("line", "row")
    assert line._folded("two\nlines") == "two\nlines"
    folded = f"Read {line._folded(text)} and {line._folded(other)} and {line._folded(text)}"
    assert folded == "Read [200 lines pasted] and [200 lines pasted, 2] and [200 lines pasted]"
    assert line._texts.unfolded(folded) == f"Read {text} and {other} and {text}"


def test_a_paste_that_holds_the_mark_of_another_one_is_sent_as_it_is() -> None:
    line = input_line(InMemoryHistory())
    copied = "\n".join(["> [6 lines pasted]"] * 7)
    assert line._texts.unfolded(line._folded("a\n" * 6) + line._folded(copied)) == "a\n" * 6 + copied


async def test_what_was_pasted_is_recalled_as_it_was_shown_and_stored_whole() -> None:
    stored = InMemoryHistory()
    text = "\n".join(f"line {number}" for number in range(200))
    line = input_line(stored)
    assert [entry async for entry in line.buffer.history.load()] == []
    for entered in ("Why?", f"Read {line._folded(text)}"):
        line.buffer.history.append_string(entered)
    assert line.buffer.history.get_strings() == ["Why?", "Read [200 lines pasted]"]
    assert list(stored.load_history_strings()) == [f"Read {text}", "Why?"]
    later = input_line(stored)
    assert [entry async for entry in later.buffer.history.load()] == ["[200 lines pasted]", "Why?"]
    assert later._texts.unfolded("[200 lines pasted]") == f"Read {text}"


def test_a_history_that_cannot_be_written_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Unwritable(InMemoryHistory):
        def store_string(self, string: str) -> None:
            raise OSError(28, "No space left on device")

    history = input_line(Unwritable()).buffer.history
    history.append_string("One.")
    history.append_string("Two.")
    assert history.get_strings() == ["One.", "Two."]
    assert [record.getMessage() for record in caplog.records] == [
        "the next session cannot recall what is entered now: [Errno 28] No space left on device"
    ]


def input_line(history: History) -> InputLine:
    menu = ApprovalMenu(Clock(), 60)
    return InputLine(Listener(), menu, history=history, completion=Completion((), lambda _: []))


@pytest.mark.parametrize(("width", "rows"), [(200, 1), (125, 1), (124, 2), (80, 2)])
def test_a_line_of_code_has_the_whole_window(width: int, rows: int) -> None:
    (block,) = blocks_of(f"```\n{'x' * 120}\n```\n")
    assert sum(bool(line) for line in Painter().lines([BlockPiece(block)], width)) == rows


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_table_loses_nothing_in_a_narrow_window(width: int) -> None:
    cells = ["世界最大の都市圏とても長い説明", "https://example.org/a/long/path", "plain"]
    (block,) = blocks_of(f"| a | b | c |\n|---|---|---|\n| {' | '.join(cells)} |\n")
    lines = Painter().lines([BlockPiece(block, first=True)], width)
    text = "".join(segment.text for line in lines for segment in line)
    assert "…" not in text
    assert not Counter("".join(cells)) - Counter(text)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("once\n", ("once", "")),
        ("D", ("deny", "")),
        ("deny: keep it\n", ("deny", "keep it")),
        ("no, not this one", ("deny", "not this one")),
        ("always and ever", None),
        ("sure", None),
    ],
)
def test_an_answer_in_words(line: str, answer: tuple[str, str] | None) -> None:
    assert answer_of(line) == answer
