"""One question to `tailrace chat` as a process: its answer on stdout, all else on stderr, and how it exits."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import tty

import pytest

from cli.chat.chat_process import Cli
from parked_turns import REASON, park_turn
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.cli.chat.oneshot import OneShot
from tailrace.cli.commands.chat import stdin_is_unread
from tailrace.config.load import load
from tailrace.errors import RunParked
from tailrace.events import RunFailure
from tailrace.messages import user
from tailrace.testing.provider import call, refuse, reply, think

ANSWER = "Water finds its way."
FOOTER = re.compile(r"faulty/ok · [0-9]+\.[0-9] s · [0-9,]+ in, [0-9,]+ out\n")


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_the_answer_alone_goes_to_stdout(cli: Cli, dialect: str) -> None:
    cli.config["providers"]["faulty"]["dialect"] = dialect
    cli.server.extend(reply(ANSWER))
    code, out, err = await cli.run("-q", "Where to?")
    assert (code, out) == (0, f"{ANSWER}\n")
    assert FOOTER.fullmatch(err)
    assert "Where to?" in cli.server.requests[0].body.decode()


async def test_words_alone_are_the_question(cli: Cli) -> None:
    cli.server.extend(reply(ANSWER))
    code, out, err = await cli.run("Where", "to?", "--no-stream")
    assert (code, out) == (0, f"{ANSWER}\n")
    assert cli.server.requests[0].json()["messages"][-1]["content"] == "Where to?"
    code, out, err = await cli.run("Where", "-q", "to?")
    assert (code, out, err) == (2, "", "error: one question at a time: either -q or the words alone\n")


async def test_streamed_or_not_the_bytes_are_the_same(cli: Cli) -> None:
    cli.server.extend(*[reply("Two\n\nparagraphs.\n")] * 2)
    streamed = (await cli.run("-q", "?", "--stream"))[:2]
    assert streamed == (0, "Two\n\nparagraphs.\n")
    assert (await cli.run("-q", "?", "--no-stream"))[:2] == streamed
    assert [request.json()["stream"] for request in cli.server.requests] == [True, True]  # inside it always streams


async def test_a_question_on_a_pipe_is_answered(cli: Cli) -> None:
    cli.server.extend(reply(ANSWER))
    assert (await cli.run(stdin="Wohin fließt es?\n".encode()))[:2] == (0, f"{ANSWER}\n")
    assert cli.server.requests[0].json()["messages"][-1]["content"] == "Wohin fließt es?"


async def test_a_dash_takes_stdin_along_with_the_question(cli: Cli) -> None:
    cli.server.extend(reply(ANSWER), reply(ANSWER), reply(ANSWER))
    for args in (("Review", "this.", "-"), ("-q", "Review this.", "-"), ("-",)):
        assert (await cli.run(*args, stdin=b"+ one\n"))[:2] == (0, f"{ANSWER}\n")
    *both, alone = [request.json()["messages"][-1]["content"] for request in cli.server.requests]
    assert both == ["Review this.\n\n<stdin>\n+ one\n</stdin>"] * 2
    assert alone == "+ one"


async def test_a_file_that_is_named_and_does_not_come_along_is_said(cli: Cli) -> None:
    cli.server.extend(reply(ANSWER), reply(ANSWER))
    (cli.home / "a.png").write_bytes(b"x")
    code, out, err = await cli.run(
        f"What is in @{cli.home}/a.png? And @nobody?", "-", stdin=f"@{cli.home}/a.png".encode()
    )
    assert (code, out) == (0, f"{ANSWER}\n")
    told, _footer = err.splitlines()  # the last line is the model's
    assert told.startswith(f"sent as text: @{cli.home}/a.png; files come along in a conversation, ")
    assert "sent as text" not in (await cli.run("-q", "Ask ada@example.com, @nobody."))[2]


def test_a_stdin_that_is_closed_has_nothing_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert not stdin_is_unread()


@pytest.mark.parametrize(("kind", "unread"), [("pipe", True), ("file", True), ("nothing", False)])
async def test_stdin_that_was_left_unread_is_said(cli: Cli, kind: str, unread: bool) -> None:
    stdin, into = os.pipe()
    os.write(into, b"+ one\n")
    os.close(into)
    if kind != "pipe":
        os.close(stdin)
        (cli.home / "notes.txt").write_text("+ one\n")
        stdin = os.open(cli.home / "notes.txt" if kind == "file" else os.devnull, os.O_RDONLY)
    try:
        process = await cli.start("-q", "Review this.", stdin=stdin)
        _, err = await process.communicate()
    finally:
        os.close(stdin)
    assert process.returncode == 0
    assert (b"stdin was not read; with a - after the question it goes along\n" in err) == unread


@pytest.mark.parametrize(
    ("args", "stdin"), [((), b""), ((), b" \n"), (("-q", " "), b"not read"), (("--stdout",), b"x")]
)
async def test_without_a_question_it_is_wrong_use(cli: Cli, args: tuple[str, ...], stdin: bytes) -> None:
    code, out, err = await cli.run(*args, stdin=stdin)
    assert (code, out) == (2, "")
    assert "error: " in err
    assert cli.server.requests == []


async def test_tokens_appear_as_they_come_and_ctrl_c_ends_the_call(cli: Cli) -> None:
    """The provider falls silent in mid-answer: what came before is there to be read."""
    cli.server.extend("long+stall@50%")
    process = await cli.start("-q", "?")
    assert process.stdout is not None
    assert await process.stdout.readexactly(len("word0 word1 word2")) == b"word0 word1 word2"
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
    await cli.server.requests[0].over.wait()
    assert cli.server.requests[0].disconnected_at is not None


async def test_ctrl_c_before_the_first_token(cli: Cli) -> None:
    cli.server.extend("silence")
    process = await cli.start("-q", "?")
    request = await cli.server.request()
    process.send_signal(signal.SIGINT)
    assert await process.communicate() == (b"", b"")
    assert process.returncode == 130
    await request.over.wait()


async def test_an_answer_that_somebody_else_stops_says_who_it_was(cli: Cli) -> None:
    cli.server.extend("long+stall@50%")
    process = await cli.start("-q", "?")
    assert process.stdout is not None
    assert await process.stdout.readexactly(len("word0")) == b"word0"
    async with open_app(load({"TAILRACE_HOME": str(cli.home)})) as app:
        [run] = await app.journal.runs()
        await app.agents.stop(run.id, by="telegram:7")
        end = await app.agents.finished(run.id)
    _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"stopped by telegram:7\n")
    assert end.error == RunFailure("stopped", "interrupted", by="telegram:7")


@pytest.mark.parametrize("scenario", ["length", "filter"])
async def test_an_answer_that_was_stopped_exits_3(cli: Cli, scenario: str) -> None:
    code, out, err = await cli.run("-q", "?", "--model", scenario)
    assert code == 3
    assert out.endswith("\n")
    assert err.startswith("incomplete: the ")


async def test_an_answer_that_broke_off_for_good_stands_and_exits_3(cli: Cli) -> None:
    cli.config["call"] = {"max_attempts": 1}
    code, out, err = await cli.run("-q", "?", "--model", "long+cut@50%")
    assert code == 3
    assert out.startswith("word0 word1 ")
    assert err.startswith("incomplete: ")
    assert err.count("\n") == 1


async def test_E63_a_broken_answer_goes_on_without_a_second_beginning(cli: Cli) -> None:
    cli.server.extend("long+cut@50%", reply("and on it goes."))
    code, out, _ = await cli.run("-q", "?")
    assert code == 0
    assert out.count("word0 ") == 1
    assert out.endswith("and on it goes.\n")


async def test_an_error_is_one_line_and_exits_1(cli: Cli) -> None:
    code, out, err = await cli.run("-q", "?", "--model", "status-401")
    assert (code, out) == (1, "")
    assert err.startswith("error: faulty: HTTP 401 “")
    assert err.count("faulty: ") == 1
    assert err.count("\n") == 1


async def test_a_refusal_is_shown(cli: Cli) -> None:
    cli.server.extend(reply(refuse("No.")), reply(refuse("No.")))
    assert (await cli.run("-q", "?"))[:2] == (0, "No.\n")
    assert (await cli.run("-q", "?", "--no-stream"))[:2] == (0, "No.\n")


async def test_the_last_line_says_how_many_tries_it_took(cli: Cli) -> None:
    looking = reply(call("terminal", {"command": "true"}))
    cli.server.extend("status-503", looking, reply("There."))
    code, out, err = await cli.run("-q", "?")
    assert (code, out) == (0, "There.\n")
    assert re.fullmatch(r"faulty/ok · 2 calls · 3 tries · [0-9.]+ s · .*", err.splitlines()[-1])
    code, out, err = await cli.run("-q", "?", "--model", "length")
    assert re.fullmatch(r"incomplete: the .* · faulty/length · [0-9.]+ s · .* out\n", err)
    code, out, err = await cli.run("-q", "?", "--model", "status-401")
    assert re.fullmatch(r"error: .* \(faulty/status-401 · [0-9.]+ s\)\n", err)


async def test_json_prints_the_run_event_by_event(cli: Cli) -> None:
    cli.server.extend(reply(ANSWER))
    code, out, err = await cli.run("-q", "?", "--json")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["run_started", "message_recorded", "attempt_started"]
    assert kinds[-2:] == ["message_stop", "run_finished"]
    assert "".join(event["text"] for event in events if event["type"] == "message_chunk") == ANSWER
    assert (events[-1]["status"], events[-1]["output"], events[-2]["final"]) == ("completed", ANSWER, True)


async def test_json_tells_of_failure_too(cli: Cli) -> None:
    code, out, err = await cli.run("-q", "?", "--json", "--model", "status-400")
    last = json.loads(out.splitlines()[-1])
    assert code == 1
    assert (last["type"], last["status"]) == ("run_finished", "failed")
    message = last["error"]["message"].removeprefix("faulty: ")
    assert err == f"error: faulty: HTTP {last['error']['status']} “{message}”\n"


async def test_I102_a_run_that_is_set_aside_ends_the_wait(cli: Cli) -> None:
    cli.server.extend("silence")
    (cli.home / "config.yaml").write_text(json.dumps(cli.config))
    async with open_app(load({}, cli.home)) as app:
        asking = asyncio.create_task(OneShot(app, streamed=True, as_json=False).ask(TurnSpec(user("?"))))
        await cli.server.request()
        await park_turn(app)
        with pytest.raises(RunParked, match=REASON):
            await asking


async def test_J122_escapes_in_an_answer_reach_no_terminal(cli: Cli) -> None:
    cli.server.extend(reply("a\x1b]52;c;cHduZWQ=\x07b\x9b31mc\td"))
    terminal, stdout = pty.openpty()
    tty.setraw(stdout)
    process = await cli.start("-q", "?", stdout=stdout)
    os.close(stdout)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        await process.communicate()
        assert screen.read(1000) == b"abc\td\n"


# ── tools and approvals ──────────────────────────────────────────────────────────────────────────────────────


async def test_J108_with_nobody_to_ask_a_dangerous_command_is_denied_and_exits_3(cli: Cli) -> None:
    victim = cli.home / "victim"
    victim.mkdir()
    asked = reply("I will.", call("terminal", {"command": f"rm -rf {victim}"}))
    cli.server.extend(asked, reply("It was denied."), asked, reply("Gone."))
    code, out, err = await cli.run("-q", "Remove it.")
    assert (code, out) == (3, "I will.\n\nIt was denied.\n")
    assert f"not executed: rm -rf {victim} (" in err
    assert victim.exists()
    code, out, err = await cli.run("-q", "Remove it.", "--yolo")
    assert (code, out) == (0, "I will.\n\nGone.\n")
    assert err.startswith("✓ terminal  rm -rf ")
    assert not victim.exists()


async def test_what_the_hard_list_forbids_is_told_and_exits_3(cli: Cli) -> None:
    cli.server.extend(reply(call("terminal", {"command": "rm -rf /"})), reply("I may not."))
    code, out, err = await cli.run("-q", "Go.", "--yolo")
    assert (code, out) == (3, "I may not.\n")
    assert "not executed: rm -rf / (" in err
    assert "--yolo" not in err


@pytest.mark.parametrize("switch", ["--stream", "--no-stream"])
async def test_text_before_a_tool_is_a_message_of_its_own(cli: Cli, switch: str) -> None:
    cli.server.extend(reply("Let me look.", call("terminal", {"command": "echo hi"})), reply("It says hi."))
    code, out, err = await cli.run("-q", "?", switch)
    assert (code, out) == (0, "Let me look.\n\nIt says hi.\n")
    assert err.startswith("✓ terminal  echo hi  ")
    assert "hi\n" in cli.server.requests[1].json()["messages"][-1]["content"]


async def test_the_number_of_calls_can_be_limited(cli: Cli) -> None:
    looking = reply(call("terminal", {"command": "true"}))
    cli.server.extend(looking, looking, looking)
    code, out, _ = await cli.run("-q", "?", "--max-turns", "2")
    assert code == 3
    assert "did not finish" in out
    assert len(cli.server.requests) == 2
    assert (await cli.run("-q", "?", "--max-turns", "0"))[0] == 2


async def test_the_footer_counts_the_requests_at_a_limit(cli: Cli) -> None:
    cli.server.extend(reply(call("terminal", {"command": "true"})))
    code, out, err = await cli.run("-q", "?", "--max-turns", "1")
    assert (code, len(cli.server.requests)) == (3, 1)
    assert "after 1 model call (" in out
    assert "calls" not in err


async def test_a_named_session_remembers(cli: Cli) -> None:
    cli.server.extend(reply("Hello Ada."), reply("Ada."))
    await cli.run("-q", "I am Ada.", "--session", "diary")
    await cli.run("-q", "Who am I?", "--session", "diary")
    said = [message["content"] for message in cli.server.requests[1].json()["messages"][1:]]
    assert said == ["I am Ada.", "Hello Ada.", "Who am I?"]


async def test_an_interrupted_question_is_stopped_on_record(cli: Cli) -> None:
    cli.server.extend("long+stall@50%")
    process = await cli.start("-q", "?", "--json")
    assert process.stdout is not None
    while b"message_chunk" not in await process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    out, _ = await process.communicate()
    last = json.loads(out.splitlines()[-1])
    assert (process.returncode, last["type"], last["status"]) == (130, "run_finished", "stopped")


async def test_reasoning_is_in_the_events_only_when_asked_for(cli: Cli) -> None:
    """And so are the pieces of a call: it comes whole."""
    cli.server.extend(*[reply(think("Hm."), call("terminal", {"command": "echo hi"})), reply("Yes.")] * 2)
    brief = (await cli.run("-q", "?", "--json"))[1]
    assert "reasoning_chunk" not in brief
    assert "tool_arguments_chunk" not in brief
    assert "tool_call_chunk" in brief
    cli.config["agent"] = {"show_reasoning": True}
    full = (await cli.run("-q", "?", "--json"))[1]
    assert '"type":"reasoning_chunk","text":"Hm."' in full
    assert "tool_arguments_chunk" in full


async def test_a_reader_who_has_read_enough_ends_the_run(cli: Cli) -> None:
    cli.server.extend("long+pace@0.001")
    process = await cli.start("-q", "?")
    assert process.stdout is not None
    await process.stdout.readexactly(5)
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    assert await process.wait() == 1
    await cli.server.requests[0].over.wait()
    assert cli.server.requests[0].disconnected_at is not None


async def test_a_reader_who_does_not_read_holds_up_nobody(cli: Cli) -> None:
    """The pipe is full long before the answer ends; the provider is read to its end all the same."""
    cli.server.extend(reply("word " * 60_000))
    reading, writing = os.pipe()
    process = await cli.start("-q", "?", stdout=writing)
    os.close(writing)
    request = await cli.server.request()
    await request.over.wait()
    with os.fdopen(reading, "rb") as pipe:
        out = await asyncio.to_thread(pipe.read)
    assert await process.wait() == 0
    assert len(out) == len("word " * 60_000) + 1
