"""What the chat says and sends, without a terminal: the first screen, the status line, costs, questions, exports."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from cli.screen.drawn_text import drawn
from tailrace.app.slash_commands import SLASH_ANSWERS
from tailrace.app.usage.spending import Spending
from tailrace.cli.chat.conversation import SessionSummary
from tailrace.cli.chat.question import MAX_FILE_BYTES, CommandOutput, composed, files_for
from tailrace.cli.chat.slash_commands import HANDLERS, TERMINAL_COMMANDS, is_slash_command
from tailrace.cli.chat.status_line import StatusFacts, short_path, status_line
from tailrace.cli.chat.tty_approval import answer_of
from tailrace.cli.chat.welcome import WelcomeFacts, cut_off, welcome
from tailrace.cli.screen.input.choice_list import Choice
from tailrace.events import RunForked, UsageRecorded
from tailrace.messages import Image, Text, Usage
from tailrace.ports import NewRun, Run

# ── the first screen ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_screen_says_who_where_and_with_what() -> None:
    facts = WelcomeFacts("1.2", "anthropic/claude", "~/src", ("terminal", "patch"))
    lines = drawn(welcome(facts))
    assert lines[1] == "● tailrace 1.2"
    assert "  model      anthropic/claude" in lines
    assert "  directory  ~/src" in lines
    assert "  tools      terminal, patch" in lines
    assert not any("real model" in line for line in lines)


def test_the_embedded_model_says_that_it_is_small_and_how_to_get_a_real_one() -> None:
    facts = WelcomeFacts("1.2", "local/smollm2-135m", "~", embedded=True, init=".venv/bin/tailrace init")
    lines = drawn(welcome(facts))
    assert any("small and often wrong" in line for line in lines)
    assert any(line.startswith("    .venv/bin/tailrace init ") for line in lines)
    assert "  tools      none: this model only talks" in lines


@pytest.mark.parametrize("width", [40, 60, 200])
def test_the_first_screen_fits_any_window(width: int) -> None:
    facts = WelcomeFacts("1.2", "local/smollm2-135m", "~/" + "deep/" * 12, ("tool",) * 30, embedded=True, yolo=True)
    facts = msgspec.structs.replace(facts, rules=("~/" + "deep/" * 12 + "AGENTS.md",) * 3)
    assert max(map(len, drawn(welcome(facts), width))) < width
    assert max(map(len, drawn(cut_off("why " * 60, "2m ago"), width))) < width


def test_the_first_screen_names_the_files_with_rules() -> None:
    lines = drawn(welcome(WelcomeFacts("1.2", "a/b", "~", rules=("~/AGENTS.md", "~/part/CLAUDE.md"))), 100)
    assert "  rules      ~/AGENTS.md, ~/part/CLAUDE.md" in lines


def test_an_answer_that_goes_on_elsewhere_is_offered_for_watching() -> None:
    lines = drawn(cut_off("Write a long story.", "2m ago", taken_over=True))
    assert lines[1].startswith("▌ An answer goes on in another process, 2m ago:")
    assert lines[-1].startswith("▌ Enter watches it")


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
    assert status(FACTS) == "claude · ~/src · 90% context left · 41k tokens · $0.12 · 12s · /help"
    running = msgspec.structs.replace(FACTS, running="answering", interrupt_means="Ctrl-C stops", switches=("yolo",))
    assert status(running) == (
        "answering 12s · Ctrl-C stops · claude · yolo · ~/src · 90% context left · 41k tokens · $0.12"
    )
    assert status(StatusFacts("claude")) == "claude · /help"  # nothing is shown that is not known


def test_what_does_not_fit_is_left_out_whole() -> None:
    assert status(FACTS, 56) == "claude · ~/src · 90% context left · 41k tokens · $0.12"
    assert status(FACTS, 40) == "claude · 90% context left · $0.12"
    assert status(FACTS, 10) == "claude"
    assert status(StatusFacts("a-model-with-a-long-name"), 10) == "a-model-w…"


def test_paths_are_short() -> None:
    home = Path("/home/ada")
    assert [short_path(home / name, home) for name in ("", "src")] == ["~", "~/src"]
    assert short_path(Path("/a/" + "b" * 20 + "/cc/dd/eeeeeeee"), home) == "…/cc/dd/eeeeeeee"


def test_a_session_to_pick_says_what_was_asked_and_when() -> None:
    run = Run("run_1", NewRun("agent", {}), "running", last_seq=1, first_seq=1, created_at=990.0, claims=1)
    first = SessionSummary("diary", "Why?", 1, 990.0, run)
    assert first.as_choice(1000.0) == Choice("diary", "Why?", "just now · 1 turn · not finished")
    second = SessionSummary("ses_5e816a78", "How " * 40, 500, -20_000.0).as_choice(1000.0)
    assert (len(second.label), second.about) == (60, "5h ago · 500 turns")
    chat = SessionSummary("telegram:7", "Why?", 2, 990.0, is_own=False)
    assert chat.as_choice(1000.0).about == "just now · 2 turns · telegram:7"


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────


def test_spending_is_counted_by_model_and_a_fork_begins_anew() -> None:
    prices = {"big": 0.01}
    spending = Spending(
        lambda spent: prices[spent.model] * spent.usage.output_tokens if spent.model in prices else None
    )
    assert spending.table() == "nothing yet: no model has been asked in this session"
    spending.note_all([UsageRecorded(Usage(9, 9), "p", "big"), RunForked("run_1", 3)])
    spending.note_all([UsageRecorded(Usage(1000, 20), "p", "big"), UsageRecorded(Usage(5, 3), "local", "small")])
    one = Spending(lambda _: None)
    one.note(UsageRecorded(Usage(9, 9), "p", "big"))
    assert one.table().splitlines()[-1] == "1 call · 18 tokens"
    assert (spending.tokens, spending.cost_usd, spending.context_tokens) == (1028, 0.2, 8)
    stopped = Spending(lambda _: None)
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


# ── what is typed ────────────────────────────────────────────────────────────────────────────────────────────


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


def test_every_command_of_the_terminal_has_a_handler() -> None:
    assert set(HANDLERS) | set(SLASH_ANSWERS) == set(TERMINAL_COMMANDS)
