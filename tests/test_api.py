from __future__ import annotations

import asyncio
import gc
import logging
import re
import signal
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from parked_turns import REASON, park_turn
from provider_thread import provider
from tailrace import Agent, AIAgent, tool
from tailrace.api import OnApproval
from tailrace.app import open_app
from tailrace.config.load import Config, load
from tailrace.errors import CorruptLog, RunParked, RunUnsuccessful, TailraceError
from tailrace.events import ApprovalAsked, Decision, MessageChunk, NotExecuted, RunFinished
from tailrace.messages import ToolSpec
from tailrace.ports import Run
from tailrace.testing.provider import Break, FaultyProvider, Offset, Reply, Scenario, call, reply


def config_for(url: str, home: Path, tools: str = "[read_file]") -> Config:
    text = f"model: {{provider: faulty, name: ok}}\nproviders: {{faulty: {{dialect: chat, base_url: '{url}'}}}}\n"
    (home / "config.yaml").write_text(text + f"agent: {{tools: {tools}}}\n", encoding="utf-8")
    return load({}, home)


@asynccontextmanager
async def opened(
    home: Path, *script: str | Scenario | Reply, **options: Any
) -> AsyncGenerator[tuple[Agent, FaultyProvider], None]:
    async with (
        FaultyProvider(script) as server,
        Agent(config=config_for(server.url, home), directory=home, **options) as agent,
    ):
        yield agent, server


STALLED = Scenario(reply=reply("One two three four five"), broken=Break("stall", Offset(60, per_cent=True)))


async def test_a_stream_is_what_was_stored(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello there.")) as (agent, _), agent.stream("Hi.") as run:
        events = [event async for event in run]
        result = await run.result()
    assert "".join(e.text for e in events if isinstance(e, MessageChunk)) == result.text == "Hello there."
    assert result.completed
    assert isinstance(events[-1], RunFinished)


async def test_the_text_of_a_turn_comes_piece_by_piece(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    script = (reply("I look.", call("read_file", {"path": "a.txt"})), reply("It says x, and no more."))
    async with opened(tmp_path, *script) as (agent, _), agent.stream("Hi.") as run:
        pieces = [text async for text in run.text]
    assert "".join(pieces) == "I look.\nIt says x, and no more."
    assert len(pieces) > 2


async def test_a_turn_that_fails_is_not_silent(tmp_path: Path) -> None:
    async with opened(tmp_path, "status-401", "status-401") as (agent, _):
        async with agent.stream("Hi.") as run:
            with pytest.raises(RunUnsuccessful) as streamed:
                [_ async for _ in run.text]
        with pytest.raises(RunUnsuccessful, match="Incorrect API key") as whole:
            (await agent.run("Hi.")).raise_for_status()
    assert (streamed.value.status, streamed.value.kind) == (whole.value.status, whole.value.kind)


async def test_one_agent_is_one_conversation(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello Ann."), reply("Ann.")) as (agent, _):
        await agent.run("I am Ann.")
        result = await agent.run("Who am I?")
        messages = await agent.messages()
    assert result.text == "Ann."
    assert [m.text for m in messages] == ["I am Ann.", "Hello Ann.", "Who am I?", "Ann."]


async def test_F76_leaving_the_stream_stops_the_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, STALLED) as (agent, server):
        async with agent.stream("Count.") as run:
            async for event in run:
                if isinstance(event, MessageChunk):
                    break
        result = await run.result()
        await server.requests[0].over.wait()
    assert server.requests[0].disconnected_at is not None
    assert result.status == "stopped"


async def test_F76_leaving_the_agent_with_the_stream_stops_the_turn_for_good(tmp_path: Path) -> None:
    """Another process that found it unfinished would go on with it."""
    async with FaultyProvider([STALLED]) as server:
        config = config_for(server.url, tmp_path)
        async with Agent(config=config, directory=tmp_path) as agent, agent.stream("Count.") as run:
            async for _ in run.text:
                break
    async with open_app(config) as app:
        assert (await app.journal.get(run.id)).state == "stopped"


async def test_F76_a_task_that_is_cancelled_again_and_again_leaves_no_run_behind(tmp_path: Path) -> None:
    """As a scope of anyio does it, and with it Starlette when a client has left."""
    digging = asyncio.Event()

    @tool
    async def dredge() -> str:
        """Dredge the canal."""
        digging.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(100):  # it takes a while to put the shovels away
                await asyncio.sleep(0)
        return "done"

    async with FaultyProvider([reply(call("dredge", {}))]) as server:
        config = config_for(server.url, tmp_path)

        async def ask() -> None:
            async with Agent(config=config, directory=tmp_path, tools=[dredge]) as agent:
                await agent.run("Dredge.")

        asking = asyncio.create_task(ask())
        await digging.wait()
        while not asking.done():
            asking.cancel()
            await asyncio.sleep(0)
        assert asking.cancelled()
    async with open_app(config) as app:
        [run] = await app.journal.runs(kind="agent")
        assert run.state == "stopped"


async def test_F76_an_agent_whose_task_was_cancelled_as_it_left_can_be_opened_again(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Hello."), reply("Hello again.")]) as server:
        agent = Agent(config=config_for(server.url, tmp_path), directory=tmp_path)
        leaving = asyncio.Event()

        async def ask() -> None:
            async with agent:
                await agent.run("Hi.")
                leaving.set()

        asking = asyncio.create_task(ask())
        await leaving.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        with pytest.raises(TailraceError, match="the agent is not open"):
            await agent.run("And now?")
        async with agent:
            assert (await agent.run("And now?")).text == "Hello again."


def test_what_is_no_tool_is_refused_where_the_agent_is_made() -> None:
    def forecast(city: str) -> str:
        return city

    for wrong in ([forecast], ["terminal"], "terminal"):
        no_tools: Any = wrong
        with pytest.raises(TypeError, match="is no tool: put @tool before it"):
            Agent(tools=no_tools)
    with pytest.raises(TypeError, match="two have the name 'forecast'"):
        Agent(tools=[tool(forecast), tool(name="forecast")(forecast)])


async def test_a_directory_may_be_a_str(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("In the mill.")
    script = (reply(call("read_file", {"path": "a.txt"})), reply("Read."))
    async with (
        FaultyProvider(script) as server,
        Agent(config=config_for(server.url, tmp_path), directory=str(tmp_path)) as agent,
    ):
        assert (await agent.run("What is in a.txt?")).text == "Read."
        assert "In the mill." in server.requests[1].json()["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("question", "error", "words"),
    [
        ("", TailraceError, "nothing was asked"),
        (" \n", TailraceError, "nothing was asked"),
        (None, TypeError, "a question is a str, not NoneType"),
        (["x"], TypeError, "a question is a str, not list"),
    ],
)
async def test_what_is_no_question_is_sent_to_nobody(
    question: Any, error: type[Exception], words: str, tmp_path: Path
) -> None:
    async with opened(tmp_path) as (agent, server):
        with pytest.raises(error, match=words):
            await agent.run(question)
        assert not server.requests


async def test_an_agent_is_opened_once_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Still here."), reply("And again.")) as (agent, _):
        with pytest.raises(TailraceError, match="the agent is open already"):
            await agent.__aenter__()
        assert (await agent.run("Are you there?")).text == "Still here."
    async with agent:
        pass


async def test_a_busy_session_is_waited_for_where_the_agent_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("First."), reply("Second."), busy="queue") as (agent, _):
        results = await asyncio.gather(agent.run("One?"), agent.run("Two?"))
    assert [(result.status, result.text) for result in results] == [("completed", "First."), ("completed", "Second.")]


async def test_an_agent_that_is_not_open_says_so() -> None:
    with pytest.raises(TailraceError, match="async with"):
        await Agent().run("Hi.")


@pytest.mark.parametrize("iterated", [False, True])
async def test_I102_a_turn_that_is_set_aside_is_told_and_left_alone(tmp_path: Path, iterated: bool) -> None:
    async with opened(tmp_path, STALLED) as (agent, server):
        app = agent._opened()

        async def ask() -> None:
            async with agent.stream("Count.") as run:
                if iterated:
                    async for _ in run:
                        pass
                await run.result()

        asking = asyncio.create_task(ask())
        await server.request(0)
        run_id = await park_turn(app)
        with pytest.raises(RunParked, match=REASON):
            await asking
        assert (await app.journal.get(run_id)).state == "parked"


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────


def ordering() -> tuple[Any, list[str]]:
    """A tool that needs an approval, and what it has ordered."""
    orders: list[str] = []

    @tool(effect="external")
    def order(what: str) -> str:
        """Orders something."""
        orders.append(what)
        return "ordered"

    return order, orders


def asks_for(*orders: str) -> Reply:
    return reply(*(call("order", {"what": what}) for what in orders))


def allow(asked: ApprovalAsked) -> bool:
    return "tea" in asked.command


async def allow_later(asked: ApprovalAsked) -> Decision:
    return "once" if allow(asked) else "deny"


class AllowingObject:
    async def __call__(self, asked: ApprovalAsked) -> Decision:
        return await allow_later(asked)


NOT_COAL = NotExecuted("order", 'order {"what":"coal"}', "acts outside this machine; denied", "denied")


@pytest.mark.parametrize("on_approval", [allow, allow_later, AllowingObject()])
async def test_an_approval_is_asked_of_the_callback(tmp_path: Path, on_approval: OnApproval) -> None:
    order, orders = ordering()
    script = asks_for("tea", "coal"), reply("Tea.")
    async with opened(tmp_path, *script, tools=[order], on_approval=on_approval) as (agent, _):
        result = await agent.run("Order.")
    assert orders == ["tea"]
    assert (result.text, result.status, result.not_executed) == ("Tea.", "completed", (NOT_COAL,))


async def test_a_callback_that_raises_or_talks_nonsense_denies_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(asked: ApprovalAsked) -> bool:
        if "coal" in asked.command:
            raise RuntimeError("no one is in")
        return "perhaps"  # type: ignore[return-value]

    order, orders = ordering()
    script = asks_for("coal", "tea"), reply("Nothing.")
    async with opened(tmp_path, *script, tools=[order], on_approval=broken) as (agent, _):
        result = await agent.run("Order.")
    assert orders == []
    assert [(action.command, action.kind) for action in result.not_executed] == [
        ('order {"what":"coal"}', "denied"),
        ('order {"what":"tea"}', "denied"),
    ]
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [("raised" in line, "'perhaps'" in line) for line in logged] == [(True, False), (False, True)]


async def test_without_a_callback_it_says_that_no_one_could_be_asked(tmp_path: Path) -> None:
    order, orders = ordering()
    async with opened(tmp_path, asks_for("tea"), asks_for("tea"), reply("Nothing."), tools=[order]) as (agent, _):
        result = await agent.run("Order.")
        agent.on_approval = allow
    assert orders == []
    assert [action.kind for action in result.not_executed] == ["no_one_to_ask"]  # once, though it was tried twice


async def test_what_the_rules_forbid_is_told_without_asking(tmp_path: Path) -> None:
    script = reply(call("terminal", {"command": "rm -rf /"})), reply("I may not.")
    async with FaultyProvider(script) as server:
        config = config_for(server.url, tmp_path, tools="[terminal]")
        async with Agent(config=config, directory=tmp_path, yolo=True, on_approval=lambda _: True) as agent:
            result = await agent.run("Go.")
    assert [(action.command, action.kind) for action in result.not_executed] == [("rm -rf /", "forbidden")]


# ── the blocking facade ──────────────────────────────────────────────────────────────────────────────────────


def test_the_callback_gets_each_piece_and_none_at_the_end_of_each_response(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("text", encoding="utf-8")
    heard: list[str | None] = []
    script = [reply("Let me see.", call("read_file", {"path": "x.txt"})), reply("It says text.")]
    with provider(*script) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=heard.append) as agent:
            answer = agent.run_conversation("What is in x.txt?")
    assert answer["final_response"] == "It says text."
    assert answer["completed"] is True
    assert answer["usage"]["output_tokens"] > 0
    assert [m["role"] for m in answer["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert heard.count(None) == 2
    assert "".join(piece or "|" for piece in heard) == "Let me see.|It says text.|"


def test_every_response_ends_with_none_also_one_that_only_calls_tools(tmp_path: Path) -> None:
    heard: list[str | None] = []
    looking = reply(call("read_file", {"path": "x.txt"}))
    with provider(looking, looking, reply("Nothing there. \n\n")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path) as agent:
            agent.stream_callback = heard.append
            answer = agent.run_conversation("What is in x.txt?")
    assert answer["final_response"] == "Nothing there."
    assert "".join(piece or "|" for piece in heard) == "||Nothing there. \n\n|"


def test_a_text_that_came_whole_reaches_the_callback_too(tmp_path: Path) -> None:
    heard: list[str | None] = []
    looking = Scenario(reply=reply("Let me see.", call("read_file", {"path": "x"})), instead="no-streaming")
    with provider(looking, looking, reply("Gone.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=heard.append) as agent:
            agent.run_conversation("Look.")
    assert "".join(piece or "|" for piece in heard) == "Let me see.|Gone.|"


def test_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    agent = AIAgent()
    with pytest.raises(AttributeError):
        agent.callback = print  # type: ignore[attr-defined]
    agent.close()
    with pytest.raises(TailraceError, match="closed"):
        agent.run_conversation("Hi.")


def test_a_function_that_is_no_tool_is_refused_by_name() -> None:
    def look(path: str) -> str:
        return path

    with pytest.raises(TypeError, match="tools: 'look' is no tool: put @tool before it"):
        Agent(tools=[look])  # type: ignore[list-item]


def test_an_object_that_is_no_tool_is_told_what_it_lacks() -> None:
    class Adder:
        def preview(self, _args: object) -> str:
            return "adds"

    class Named(Adder):
        spec = ToolSpec("add", "Adds.", {"type": "object"})

    lacking = "spec, repeatable, parallel, invalid, effect, run of tailrace.ports.Tool"
    with pytest.raises(TypeError, match=f"is no tool: it lacks {lacking}"):
        Agent(tools=[Adder()])  # type: ignore[list-item]
    with pytest.raises(
        TypeError, match="tools: 'add' is no tool: it lacks repeatable, parallel, invalid, effect, run of"
    ):
        Agent(tools=[Named()])  # type: ignore[list-item]


def test_no_module_takes_any_name_for_one_of_its_own_where_a_type_checker_reads() -> None:
    """`from tailrace import Agnet` is an error for mypy too: a plain module's `__getattr__` would hide it."""
    package = Path(tailrace.__file__).parent
    plain = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"^def __getattr__", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert plain == []
    assert {"Agent", "AIAgent", "tool"} <= set(dir(tailrace))
    with pytest.raises(ImportError, match="Agnet"):
        from tailrace import Agnet  # type: ignore[attr-defined] # noqa: F401


def test_an_agent_that_nobody_closed_lets_go_when_it_is_collected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to stay open, and to end in tracebacks of tasks that were destroyed."""
    with provider(reply("Hello.")) as server:
        before = set(threading.enumerate())
        answer = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path).run_conversation("Hi.")
        (thread,) = [t for t in threading.enumerate() if t not in before and t.name == "tailrace-agent"]
        for _ in range(600):  # a thread that is about to let go of it may keep it from the first collection
            gc.collect()
            thread.join(0.1)
            if not thread.is_alive():
                break
    assert answer["final_response"] == "Hello."
    assert not thread.is_alive()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


class Owner:
    """An object with an agent, whose callbacks are its own methods."""

    def __init__(self, config: Config, directory: Path) -> None:
        callbacks: dict[str, Any] = {"stream_callback": self.on_piece, "on_approval": self.on_approval}
        self.agent = AIAgent(config=config, directory=directory, **callbacks)
        self.pieces: list[str | None] = []

    def on_piece(self, piece: str | None) -> None:
        self.pieces.append(piece)

    def on_approval(self, _asked: ApprovalAsked) -> bool:
        return False


def test_an_owner_whose_methods_are_the_callbacks_of_its_agent_is_collected(tmp_path: Path) -> None:
    with provider(reply("Hello.")) as server:
        before = set(threading.enumerate())
        owner = Owner(config_for(server.url, tmp_path), tmp_path)
        assert owner.agent.run_conversation("Hi.")["final_response"] == "Hello."
        (thread,) = [t for t in threading.enumerate() if t not in before and t.name == "tailrace-agent"]
        known = weakref.ref(owner)
        del owner
        for _ in range(600):  # a thread that is about to let go of it may keep it from the first collection
            gc.collect()
            thread.join(0.1)
            if not thread.is_alive():
                break
    assert known() is None
    assert not thread.is_alive()


@pytest.mark.parametrize("text", ["", " \n"])
async def test_a_turn_that_asks_nothing_is_refused_and_costs_no_call(tmp_path: Path, text: str) -> None:
    async with opened(tmp_path, reply("Hello.")) as (agent, server):
        with pytest.raises(TailraceError, match="nothing was asked: the text is empty"):
            await agent.run(text)
        assert (await agent.run("Hi.")).text == "Hello."
    assert len(server.requests) == 1


def test_the_blocking_facade_refuses_a_turn_that_asks_nothing(tmp_path: Path) -> None:
    with provider() as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)
        with agent, pytest.raises(TailraceError, match="nothing was asked"):
            agent.run_conversation("")
    assert server.requests == []


def leave_by_exit() -> None:
    sys.exit(4)


def leave_by_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("leave", "raised"), [(leave_by_exit, SystemExit), (leave_by_interrupt, KeyboardInterrupt)])
def test_leaving_the_program_in_a_callback_ends_the_turn(
    tmp_path: Path, leave: Callable[[], None], raised: type[BaseException]
) -> None:
    def on_piece(piece: str | None) -> None:
        if piece and not left:
            left.append(piece)
            leave()

    left: list[str] = []
    with provider(STALLED, reply("Again.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=on_piece, session="s") as agent:
            with pytest.raises(raised):
                agent.run_conversation("Count.")
            assert agent.run_conversation("And?")["messages"][1]["content"].startswith("One")
    assert [run.state for run in runs_of(config)] == ["completed", "stopped"]


@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_the_program_in_an_approval_ends_the_turn(tmp_path: Path, is_async: bool) -> None:
    def on_approval(_asked: ApprovalAsked) -> bool:
        sys.exit(4)

    async def on_approval_later(asked: ApprovalAsked) -> bool:
        return on_approval(asked)

    order, orders = ordering()
    with provider(asks_for("tea")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, tools=[order]) as agent:
            agent.on_approval = on_approval_later if is_async else on_approval
            with pytest.raises(SystemExit):
                agent.run_conversation("Order.")
    assert orders == []
    assert [run.state for run in runs_of(config)] == ["stopped"]


@pytest.mark.parametrize("on_approval", [allow, allow_later])
def test_a_blocking_agent_asks_too(tmp_path: Path, on_approval: OnApproval) -> None:
    order, orders = ordering()
    with provider(asks_for("tea", "coal"), reply("Tea.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, tools=[order], on_approval=on_approval) as agent:
            answer = agent.run_conversation("Order.")
    assert orders == ["tea"]
    assert answer["not_executed"] == [msgspec.to_builtins(NOT_COAL)]


def test_a_blocking_agent_denies_what_its_callback_raises_at(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_asked: ApprovalAsked) -> bool:
        raise RuntimeError("no one is in")

    order, orders = ordering()
    with provider(asks_for("tea"), reply("Nothing.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, tools=[order], on_approval=broken) as agent:
            answer = agent.run_conversation("Order.")
    assert (orders, [action["kind"] for action in answer["not_executed"]]) == ([], ["denied"])
    assert "on_approval raised" in caplog.text


def test_a_tool_that_leaves_the_program_is_a_tool_that_failed(tmp_path: Path) -> None:
    @tool
    async def leave() -> None:
        """Leaves."""
        sys.exit(3)

    with provider(reply(call("leave", {})), reply("It failed.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, tools=[leave]) as agent:
            answer = agent.run_conversation("Leave.")
    assert (answer["final_response"], answer["messages"][2]["content"]) == ("It failed.", "Error: SystemExit: 3")


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "nowhere/model"])
def test_a_turn_that_fails_says_why(tmp_path: Path, model: str) -> None:
    """No key, no such provider: the answer is empty and the reason is not."""
    with provider() as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, model=model) as agent:
            answer = agent.run_conversation("Hi.")
    assert (answer["final_response"], answer["completed"], answer["status"]) == ("", False, "failed")
    assert model.partition("/")[0].upper() in answer["error"].upper()


def test_I102_a_conversation_that_is_set_aside_raises(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)
        agent.stream_callback = lambda piece: agent._wait(park_turn(agent._agent._opened())) if piece else None
        with agent, pytest.raises(RunParked, match=REASON):
            agent.run_conversation("Count.")


def test_a_callback_may_interrupt_the_turn_itself(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent = AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path)
        agent.stream_callback = lambda piece: agent.interrupt() if piece else None
        with agent:
            answer = agent.run_conversation("Count.")
    assert answer["status"] == "stopped"


def runs_of(config: Config) -> list[Run]:
    """The runs in the agent's database, the newest first."""

    async def read() -> list[Run]:
        async with open_app(config) as app:
            return await app.journal.runs()

    return asyncio.run(read())


def test_a_callback_that_raises_changes_nothing(tmp_path: Path) -> None:
    def broken(_piece: str | None) -> None:
        raise RuntimeError("no")

    with provider(reply("Hello."), reply("Again.")) as server:
        config = config_for(server.url, tmp_path)
        with AIAgent(config=config, directory=tmp_path, stream_callback=broken) as agent:
            assert agent.run_conversation("Hi.")["final_response"] == "Hello."
        with AIAgent(config=config, directory=tmp_path) as silent:
            assert silent.run_conversation("Hi.")["final_response"] == "Again."


def test_an_interrupt_from_another_thread_returns_what_there_is(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        agent: AIAgent

        def on_piece(piece: str | None) -> None:
            if piece is not None:
                threading.Thread(target=agent.interrupt).start()

        with AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path, stream_callback=on_piece) as agent:
            answer = agent.run_conversation("Count.")
    assert answer["completed"] is False
    assert answer["status"] == "stopped"
    assert "One two three four five".startswith(answer["final_response"])


def test_F68_ctrl_c_stops_the_turn_and_the_conversation_goes_on(tmp_path: Path) -> None:
    def on_piece(piece: str | None) -> None:
        if piece is not None and not interrupted:
            interrupted.append(piece)
            signal.pthread_kill(main, signal.SIGINT)

    interrupted: list[str] = []
    main = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            provider(STALLED, reply("Again.")) as server,
            AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path, stream_callback=on_piece) as agent,
        ):
            with pytest.raises(KeyboardInterrupt):
                agent.run_conversation("Count.")
            answer = agent.run_conversation("And?")
    finally:
        signal.signal(signal.SIGINT, before)
    assert answer["final_response"] == "Again."
    assert answer["messages"][1]["content"].startswith("One")


def test_an_agent_that_cannot_open_says_why_each_time(tmp_path: Path) -> None:
    (tmp_path / "tailrace.db").write_bytes(b"no database")
    with provider() as server, AIAgent(config=config_for(server.url, tmp_path), directory=tmp_path) as agent:
        for _ in range(2):
            with pytest.raises(CorruptLog, match="is not a database"):
                agent.run_conversation("Hi.")
