"""Updates keep coming while the gateway is killed each second: each gets one answer, or one sentence why not (N170)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

pytest.importorskip("telegram", reason="the extra is not installed")

from proof.platforms.telegram import FakeTelegram

from gateway.gateway_process import gateway_process, kill_9
from tailrace.delivery.planning.presenter import CUT_OFF, UNSHOWN
from tailrace.testing.provider import REPLIES, FaultyProvider

CONFIG = """\
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: "{provider}"}}}}
store: {{url: "sqlite:///runs.db", lease_s: 1}}
streaming: {{enabled: false}}
platforms: {{telegram: {{enabled: true, token_env: TOKEN, base_url: "{telegram}", allow: ["*"], busy: queue}}}}
"""
ANSWER = REPLIES["ok"].reply.text


async def check(home: Path, *, updates: int, kills: int, polls: bool = False) -> None:
    """Twenty updates a second. With `polls` each gateway lives until it has asked for updates, and a moment longer."""
    try:
        told = await texts_of_chats(home, updates=updates, kills=kills, polls=polls)
    except TimeoutError:
        log = (home / "gateway.log").read_text(encoding="utf-8")
        pytest.fail(f"a gateway did not come, or an answer; the end of their log:\n{log[-4000:]}")
    assert [texts for texts in told if not is_told_once(texts)] == []
    assert sum(texts[0] == ANSWER for texts in told) > updates * (0.2 if polls else 0.8)


async def texts_of_chats(home: Path, *, updates: int, kills: int, polls: bool) -> list[list[str]]:
    moments = random.Random(170)
    async with FaultyProvider() as provider, FakeTelegram() as telegram:
        text = CONFIG.format(provider=provider.openai_url, telegram=telegram.url)
        (home / "config.yaml").write_text(text, encoding="utf-8")
        chats = [telegram.private(number) for number in range(1001, 1001 + updates)]

        async def write_all() -> None:
            for chat in chats:
                telegram.write(chat, "Where does the water go?")
                await asyncio.sleep(1 / 20)

        async def kill_each_second() -> None:
            for _ in range(kills):
                asked = len(telegram.called("getUpdates"))
                async with gateway_process(home, {"TOKEN": telegram.token}) as child:
                    if polls:
                        await telegram.until(lambda asked=asked: len(telegram.called("getUpdates")) > asked, 120)  # type: ignore[misc]
                    await asyncio.sleep(moments.random() if polls else 1)
                    await kill_9(child)

        await asyncio.gather(write_all(), kill_each_second())
        async with gateway_process(home, {"TOKEN": telegram.token}):
            await telegram.until(lambda: all(chat.texts for chat in chats), 300)
            await asyncio.sleep(3)  # a second answer must not come
        return [list(chat.texts) for chat in chats]


def is_told_once(texts: list[str]) -> bool:
    """The answer, or one sentence why not. Where the gateway died while it sent the answer, the sentence says so."""
    answers, others = [text for text in texts if text == ANSWER], [text for text in texts if text != ANSWER]
    if answers:
        return len(answers) == 1 and others in ([], [CUT_OFF])
    return len(others) == 1 and (others[0] in (CUT_OFF, UNSHOWN) or "is set aside" in others[0])


@pytest.mark.slow
async def test_N170_five_hundred_updates_while_the_gateway_is_killed_each_second_for_a_minute(tmp_path: Path) -> None:
    await check(tmp_path, updates=500, kills=60)


@pytest.mark.slow
async def test_N170_eighty_updates_and_ten_kills_of_gateways_that_had_begun(tmp_path: Path) -> None:
    await check(tmp_path, updates=80, kills=10, polls=True)
