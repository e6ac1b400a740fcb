"""Names of a workspace's people: asked for once in a while, and nobody waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.slack import FakeSlack, flood, refusal

from tailrace.delivery.port import Sender
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.integrations.slack.user_names import ASK_S, KEPT_S, RETRY_S
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, bad_gateway, json_fault, silence

ANNA = Sender("U7")


@asynccontextmanager
async def workspace() -> AsyncIterator[tuple[FakeSlack, SlackPlatform]]:
    async with FakeSlack() as slack:
        slack.names = {"U7": "Anna"}
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        try:
            yield slack, platform
        finally:
            await platform.close()


@driven
async def test_a_name_is_kept_for_an_hour() -> None:
    async with workspace() as (slack, platform):
        assert [await platform.display_name(ANNA) for _ in range(3)] == ["Anna"] * 3
        assert len(slack.called("users.info")) == 1
        slack.names["U7"] = "Annie"
        await asyncio.sleep(KEPT_S + 1)
        assert await platform.display_name(ANNA) == "Annie"


@pytest.mark.parametrize("fault", [refusal("missing_scope"), flood(30), bad_gateway(), silence()])
@driven
async def test_a_name_that_is_not_told_within_a_second_is_asked_for_again_later(fault: Fault) -> None:
    async with workspace() as (slack, platform):
        slack.fail("users.info", fault)
        asked_at = asyncio.get_running_loop().time()
        assert await platform.display_name(ANNA) == ""
        assert asyncio.get_running_loop().time() - asked_at <= ASK_S + 0.5
        assert await platform.display_name(Sender("U7", "anna.k")) == "anna.k", "what the update had, if anything"
        assert len(slack.called("users.info")) == 1
        await asyncio.sleep(RETRY_S + 1)
        assert await platform.display_name(ANNA) == "Anna"


@pytest.mark.parametrize(
    ("user", "name"),
    [
        pytest.param({"profile": {"display_name": "Anna", "real_name": "Anna K."}, "name": "ak"}, "Anna", id="chosen"),
        pytest.param({"profile": {"display_name": " ", "real_name": "Anna K."}, "name": "ak"}, "Anna K.", id="full"),
        pytest.param({"profile": {}, "real_name": "Anna K.", "name": "ak"}, "Anna K.", id="full, elsewhere"),
        pytest.param({"name": "ak"}, "ak", id="short"),
        pytest.param({"profile": {"display_name": 7}, "name": None}, "", id="none"),
        pytest.param("U7", "", id="no object"),
    ],
)
@driven
async def test_a_person_is_called_as_clients_show_them(user: object, name: str) -> None:
    async with workspace() as (slack, platform):
        slack.fail("users.info", json_fault(200, {"ok": True, "user": user}))
        assert await platform.display_name(ANNA) == name
