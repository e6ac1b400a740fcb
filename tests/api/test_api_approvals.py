"""Approvals of the programming interface: whom `Agent` and `AIAgent` ask, and what is told of the rest."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from provider_thread import provider
from scripted_agent import config_for, opened, runs_of
from tailrace import Agent, AIAgent, tool
from tailrace.api import OnApproval
from tailrace.events import ApprovalAsked, Decision, NotExecuted
from tailrace.testing.provider import FaultyProvider, Reply, call, reply


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
        config = config_for(server.url, tmp_path)
        agent = Agent(config=config, directory=tmp_path, builtin=["terminal"], yolo=True, on_approval=lambda _: True)
        async with agent:
            result = await agent.run("Go.")
    assert [(action.command, action.kind) for action in result.not_executed] == [("rm -rf /", "forbidden")]


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
