"""`/tailrace stop`, given again before the first one is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proof.platforms.slack import FakeSlack

from gateway.gateways import running_gateway
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply

TEXT = " ".join(f"word{number}" for number in range(60))


@pytest.mark.parametrize("pause_s", [0.0, 0.1, 1.5])
def test_a_second_stop_is_told_after_the_first_and_stops_nothing(tmp_path: Path, pause_s: float) -> None:
    @driven
    async def scenario() -> None:
        slow = Scenario(reply=reply(TEXT), pace_s=0.5)
        async with FakeSlack() as slack:
            settings = f'slack: {{enabled: true, allow: ["U7", "U8"], base_url: "{slack.api_url}"}}'
            env = {"SLACK_BOT_TOKEN": slack.token, "SLACK_APP_TOKEN": slack.app_token}
            async with running_gateway(tmp_path, [slow, slow, slow], settings, env):
                general, clock = slack.channel("C1"), asyncio.get_running_loop().time
                mine = [await slack.write(general, f"<@U0BOT> hello {number}") for number in range(2)]
                theirs = await slack.write(general, "<@U0BOT> hello", user="U8")
                await slack.until(lambda: sum(text.startswith("word0") for text in general.texts) == 3)
                began = clock()
                await slack.command(general, "/tailrace", "stop")
                await asyncio.sleep(pause_s)
                await slack.command(general, "/tailrace", "stop")
                await slack.until(lambda: len(general.whispers) == 2)
                assert clock() - began <= 2.0, "nobody waits for answers that grow, or end, in threads"
                assert general.whispers[0] == ("U7", "⏹ Stopped.")
                # At once, the first may have ended the runs already, or not.
                told = ("Nothing of yours is running",) if pause_s else ("⏹ Stopped.", "Nothing of yours is running")
                assert general.whispers[1][1].startswith(told)
                await slack.until(lambda: sum(text.endswith("word59") for text in general.texts) == 1)
                whole = [answer.thread_ts for answer in general.answers if answer.text == TEXT]
                stopped = [answer.thread_ts for answer in general.answers if answer.text == "⏹ Stopped."]
                assert (whole, sorted(stopped)) == ([theirs], sorted(mine))

    scenario()
