"""What the app was given the right to: said before it is missed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from proof.platforms.slack import FakeSlack

from tailrace.errors import PlatformError
from tailrace.integrations.slack.adapter import SCOPES, SlackPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import running

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "slack.md"


@driven
async def test_scopes_that_the_app_lacks_are_named_by_doctor_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeSlack() as slack:
        slack.scopes = ",".join(scope for scope in SCOPES if scope not in ("files:read", "users:read"))
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        lacks = "the scopes files:read, users:read: add them, and install"
        assert f"tailrace in Testers, without {lacks} the app again" == await platform.check()
        async with running(platform):
            await slack.until(lambda: slack.connections)
        assert [f"slack: the app lacks {lacks} it again"] == [one for one in caplog.messages if "lacks" in one]


@driven
@pytest.mark.parametrize("vital", ["app_mentions:read", "chat:write", "im:history"])
async def test_an_app_that_can_hear_or_say_nothing_is_no_success_of_doctors(vital: str) -> None:
    async with FakeSlack() as slack:
        slack.scopes = ",".join(scope for scope in SCOPES if scope != vital)
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        with pytest.raises(PlatformError, match=f"the app lacks the scopes {vital}: add them"):
            await platform.check()
        await platform.close()


@driven
async def test_an_app_with_all_scopes_or_more_lacks_none() -> None:
    async with FakeSlack() as slack:
        slack.scopes = ", ".join((*SCOPES, "reactions:write"))
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        assert await platform.check() == "tailrace in Testers"
        await platform.close()


def test_the_scopes_are_those_of_the_manifest() -> None:
    manifest = re.search(r"bot: \[(.*)\]", PAGE.read_text(encoding="utf-8"))
    assert manifest is not None
    assert tuple(manifest[1].split(", ")) == SCOPES
