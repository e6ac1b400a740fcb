"""`tailrace fork` as a process, against a provider on a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Run
from tailrace.system.own_program import own_command
from tailrace.testing.provider import FaultyProvider, reply

PROGRAM = own_command("__main__.py", sys.executable, Path.cwd())


class Cli:
    """Runs commands of one home, whose two providers are the same server."""

    def __init__(self, home: Path, server: FaultyProvider) -> None:
        self.home = home
        self.server = server
        provider = {"dialect": "chat", "base_url": server.openai_url, "backoff_s": 0.001}
        config = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": provider, "other": provider},
            "streaming": {"enabled": True},
        }
        (home / "config.yaml").write_text(json.dumps(config))  # JSON is YAML

    async def run(self, *args: str) -> tuple[int | None, str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", *args),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # no controlling terminal: nobody to ask
            env={**env, "TAILRACE_HOME": str(self.home)},
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def runs(self) -> list[Run]:
        """Newest first."""
        journal = await SqliteJournal.open(self.home / "tailrace.db")
        try:
            return await journal.runs()
        finally:
            await journal.close()

    def asked(self, number: int) -> list[str]:
        messages = self.server.requests[number].json()["messages"]
        return [str(message["content"]) for message in messages if message["role"] != "system"]


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[Cli]:
    async with FaultyProvider(script=[reply(text) for text in ("First.", "Second.", "Third.")]) as server:
        yield Cli(tmp_path, server)


async def test_the_last_question_is_asked_again_of_another_model(cli: Cli) -> None:
    await cli.run("chat", "-q", "Where to?")
    code, out, err = await cli.run("fork", "last", "--model", "other/ok")
    fork, source = await cli.runs()
    assert (code, out) == (0, "Second.\n")
    assert cli.asked(1) == cli.asked(0) == ["Where to?"]
    said = f"forked {source.id} as {fork.id}; go on with: {PROGRAM} chat --session {fork.new.session}\n"
    assert err.startswith(f"{said}other/ok · ")
    assert fork.new.model == "other/ok"
    _, shown, _ = await cli.run("show", fork.id)
    assert f"\nforked from {source.id} after its entry 0\n" in shown


async def test_a_prompt_goes_on_from_the_end_or_from_the_event_that_is_named(cli: Cli) -> None:
    """The options may stand between the run and the prompt. A name without its provider is the configured one's."""
    await cli.run("chat", "-q", "Where to?", "--session", "s")
    [source] = await cli.runs()
    words = ("And", "then?")
    code, out, _ = await cli.run("fork", source.id[:12], "--model", "ok", *words)
    assert (code, out) == (0, "Second.\n"), "what was said before is not printed again"
    assert cli.asked(1) == ["Where to?", "First.", "And then?"]
    code, out, _ = await cli.run("fork", source.id.removeprefix("run_"), "--after", "2", "--json", "Whence?")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert cli.asked(2) == ["Whence?"]
    assert (events[0]["type"], events[0]["after"]) == ("run_forked", 2), "what was inherited is not printed"
    assert [event["seq"] for event in events] == [*range(events[0]["seq"], events[0]["seq"] + len(events))]
    assert events[-1]["output"] == "Third."


async def test_a_text_that_goes_on_is_printed_from_where_it_was_forked(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply("Rain today, "), reply("sun."), reply("snow.")]) as server:
        cli = Cli(tmp_path, server)
        await cli.run("chat", "-q", "The weather?")
        [source] = await cli.runs()
        _, log, _ = await cli.run("tail", source.id, "--json")
        chunk = next(event for event in map(json.loads, log.splitlines()) if event["type"] == "message_chunk")
        after = ("fork", source.id, "--after", str(chunk["seq"]))
        code, out, _ = await cli.run(*after)
        _, lines, _ = await cli.run(*after, "--json")
    events = [json.loads(line) for line in lines.splitlines()]
    texts = [event["text"] for event in events if event["type"] == "message_chunk"]
    assert (code, out) == (0, "sun.\n")
    assert ("".join(texts), events[0]["type"]) == ("snow.", "run_forked")
    assert events[-1]["output"] == f"{chunk['text']}snow."


async def test_what_cannot_be_forked_is_one_line(cli: Cli) -> None:
    code, out, err = await cli.run("fork", "last")
    assert (code, out, err) == (1, "", "error: there is no run yet\n")
    await cli.run("chat", "-q", "Where to?")
    [source] = await cli.runs()
    code, _, err = await cli.run("fork", "last", "--after", str(source.last_seq))
    assert (code, err.count("\n")) == (1, 1)
    assert "is complete there; give an input" in err
    code, _, err = await cli.run("fork", "last", "--after", "999")
    assert (code, err.count("\n")) == (1, 1)
    code, _, err = await cli.run("fork", "last", "--after", "-1")
    assert code == 2
    code, _, err = await cli.run("fork", "last", "--model", "nope/x")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: providers.nope: no such provider; there are anthropic, ")
    code, _, err = await cli.run("fork")
    assert (code, err.splitlines()[-1]) == (2, "error: the following arguments are required: RUN")
    assert len(await cli.runs()) == 1
