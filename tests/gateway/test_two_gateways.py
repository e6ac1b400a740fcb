"""Two gateways on one journal: a webhook may call either, and the one that holds the lease sends (L170)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proof.memory_platform import MemoryPlatform

from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.delivery.port import (
    ButtonPressed,
    Capabilities,
    HookAnswer,
    HookRequest,
    Inbox,
    MessageReceived,
    Place,
    Sender,
    Update,
    Window,
)
from tailrace.errors import PlatformError
from tailrace.events import ApprovalAsked
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.inbound import pastes
from tailrace.runs.recovery import finished
from tailrace.testing.provider import FaultyProvider, Reply, call, reply

PLACE, ADA = Place("telegram", "42"), Sender("1", "Ada")
FAST = Capabilities(mode="edit", edits=True, buttons=True, windows=(Window(100, 1.0),))
CONFIG = """
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001}}}}
store: {{lease_s: 60}}
platforms: {{telegram: {{enabled: true, allow: ["1"]}}}}
"""


class Hooked(MemoryPlatform):
    """A platform that calls a webhook."""

    hook_path = "/hook"

    def __init__(self, capabilities: Capabilities) -> None:
        super().__init__(capabilities)
        self.calls: list[Update] = []
        self.inbox: Inbox | None = None

    async def run(self, inbox: Inbox) -> None:
        self.inbox = inbox
        await super().run(inbox)

    async def hook(self, _request: HookRequest, inbox: Inbox) -> HookAnswer:
        self.inbox = inbox
        for update in self.calls:
            await inbox.put(update)
        self.calls.clear()
        return HookAnswer(200)


Hook = Callable[[Update], Awaitable[None]]


@asynccontextmanager
async def pair(
    home: Path, *script: Reply, capabilities: Capabilities = FAST
) -> AsyncGenerator[tuple[App, Hooked, Hooked, Hook], None]:
    """The application, the platform of the process that holds the lease, that of the other one, and its webhook."""
    async with FaultyProvider(script=script) as provider:
        (home / "config.yaml").write_text(CONFIG.format(url=provider.url), encoding="utf-8")
        config = load({}, home)
        holding, other = Hooked(capabilities), Hooked(capabilities)
        async with (
            open_app(config, directory=home) as first,
            Gateway(first, [holding]),
            open_app(config, directory=home) as second,
        ):
            await holding._here.wait()
            async with Gateway(second, [other]) as gateway:

                async def hook(update: Update) -> None:
                    other.calls.append(update)
                    assert (await gateway.hook(HookRequest("POST", "/hook", {}, {}, b""))).status == 200

                yield second, holding, other, hook


async def delivered(app: App) -> None:
    [delivery] = await app.journal.runs(kind="delivery")
    await finished(app.journal, delivery.id)


async def test_L170_what_a_webhook_brings_to_one_process_is_sent_by_the_one_that_holds_the_lease(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, reply("Hello, Ada.")) as (app, holding, other, hook):
        await hook(MessageReceived("u1", PLACE, ADA, "Hello."))
        await delivered(app)
    assert holding.chat("42").texts == ("Hello, Ada.",)
    assert other.performed == []


async def test_L170_how_far_a_platform_was_read_is_known_to_all_and_kept_by_the_one_that_polls_it(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, reply("Hello, Ada.")) as (app, holding, other, hook):
        await hook(MessageReceived("u1", PLACE, ADA, "Hello."))
        await delivered(app)
        assert holding.inbox is not None
        assert other.inbox is not None
        assert await holding.inbox.position() == ""
        assert await holding.inbox.keep_position("s1")
        assert await other.inbox.position() == "s1"
        with pytest.raises(PlatformError, match="another process polls it now"):
            await other.inbox.keep_position("s0")
        assert await holding.inbox.position() == "s1"


async def test_a_position_that_storage_does_not_take_is_said_not_to_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (app, holding, _, _):
        assert holding.inbox is not None
        assert await holding.inbox.keep_position("s1")
        [(account, stored)] = (await app.journal.list_values("platforms.positions")).items()
        assert await app.journal.swap_value("platforms.positions", account, stored, b"7")
        assert not await holding.inbox.keep_position("s2")
    assert "how far it was read is not kept" in caplog.text


async def test_L170_an_approval_is_answered_through_a_process_that_does_not_deliver_the_run(tmp_path: Path) -> None:
    dangerous = reply(call("terminal", {"command": "rm -rf build"}))
    async with pair(tmp_path, dangerous, reply("Done.")) as (app, holding, other, hook):
        await hook(MessageReceived("u1", PLACE, ADA, "Clean up."))
        [run] = await app.journal.runs(kind="agent")
        asked = await question(app, run.id)
        await hook(ButtonPressed("u2", PLACE, ADA, f"{asked.approval_id}:deny"))
        await delivered(app)
    assert holding.chat("42").texts[-1] == "Done."
    assert other.performed == [], "nothing was said of a question that is not open"


async def test_L170_a_command_of_one_process_reaches_the_run_of_another(tmp_path: Path) -> None:
    dangerous = reply(call("terminal", {"command": "rm -rf build"}))
    async with pair(tmp_path, dangerous, reply("Done.")) as (app, holding, _, hook):
        await holding.receive(MessageReceived("u1", PLACE, ADA, "Clean up."))
        [run] = await app.journal.runs(kind="agent")
        await question(app, run.id)
        await hook(MessageReceived("u2", PLACE, ADA, "/deny"))
        await delivered(app)
    assert holding.chat("42").texts[-1] == "Done."


async def question(app: App, run_id: str) -> ApprovalAsked:
    async for batch in app.journal.tail(run_id):
        for entry in batch:
            if isinstance(entry.event, ApprovalAsked):
                return entry.event
    raise AssertionError("it was not asked")


async def test_L171_a_question_to_a_process_that_ends_is_answered_by_the_other_one_without_a_word(
    tmp_path: Path,
) -> None:
    """It was polled just before the first process left the platform to the other one."""
    async with FaultyProvider(script=[reply("Hello, Ada.")]) as provider:
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=provider.url), encoding="utf-8")
        config = load({}, tmp_path)
        leaving, staying = Hooked(FAST), Hooked(FAST)
        async with (
            open_app(config, directory=tmp_path) as other,
            open_app(config, directory=tmp_path) as ending,
            Gateway(ending, [leaving]) as gateway,
        ):
            await leaving._here.wait()
            async with Gateway(other, [staying]):
                taking_over = asyncio.create_task(other.keep_recovering())
                gateway.take_no_more()
                await leaving.receive(MessageReceived("u1", PLACE, ADA, "Hello."))
                await gateway.hand_over()
                await ending.hand_over()
                async with asyncio.timeout(30):
                    await delivered(other)
                taking_over.cancel()
    assert staying.chat("42").texts == ("Hello, Ada.",)
    assert leaving.performed == [], "no chat is told of a restart"


async def test_a_part_that_a_webhook_brings_after_the_hand_over_is_released_when_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pastes, "PASTE_GAP_S", 0.01)
    async with FaultyProvider(script=[reply("Read.")]) as provider:
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=provider.url), encoding="utf-8")
        config = load({}, tmp_path)
        leaving, staying = Hooked(FAST), Hooked(FAST)
        async with (
            open_app(config, directory=tmp_path) as other,
            open_app(config, directory=tmp_path) as ending,
            Gateway(ending, [leaving]) as gateway,
        ):
            await leaving._here.wait()
            async with Gateway(other, [staying]):
                await gateway.hand_over()
                leaving.calls = [MessageReceived("u1", PLACE, ADA, "the first part", at_limit=True)]
                await gateway.hook(HookRequest("POST", "/hook", {}, {}, b""))
                assert leaving.inbox is not None
                async with asyncio.timeout(5):
                    await leaving.inbox.until_released("u1")
                assert len(await other.journal.runs(kind="agent")) == 1
