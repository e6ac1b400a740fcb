"""The integration's client against a real server: streams, lost connections, approvals, refusals."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import aiohttp
import pytest
from custom_components.tailrace.client import (
    KeyMayNot,
    KeyRefused,
    NoTls,
    NotTailrace,
    OverLimit,
    Refused,
    TailraceClient,
    Unreachable,
    persist,
)
from custom_components.tailrace.log_view import Ask, Ended, LogView, Say, Told
from custom_components.tailrace.sse import MAX_EVENT_BYTES, EventTooLong, ServerEvent, SseReader
from hypothesis import given
from hypothesis import strategies as st

from server.http_server import running_server as server
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, call, reply
from tcp_proxy import proxied

WORDS = [f"word{number} " for number in range(30)]
KEYS = "server: {drain_s: 0.05, keys: [{name: models, key_env: M, scopes: [models]}]}\n"
BODY = b': hello\n\nid: 1\nevent: a\ndata: {"x":1}\n\nevent: b\ndata: one\ndata: two\n\n: still\n\ndata: c\n\n'


async def told_of(client: TailraceClient, run_id: str, view: LogView | None = None) -> list[Told]:
    told = client.follow(run_id, view or LogView(), patience_s=5.0)
    return [each async for batch in told for each in batch]


def text_of(told: Sequence[Told]) -> str:
    return "".join(each.text for each in told if isinstance(each, Say))


@given(cuts=st.lists(st.integers(0, len(BODY))))
def test_any_split_gives_the_same_events(cuts: list[int]) -> None:
    reader, edges = SseReader(), sorted({0, len(BODY), *cuts})
    events = [event for start, end in itertools.pairwise(edges) for event in reader.feed(BODY[start:end])]
    assert events == [ServerEvent("a", b'{"x":1}'), ServerEvent("b", b"one\ntwo"), ServerEvent("message", b"c")]


def test_an_event_without_end_is_refused() -> None:
    with pytest.raises(EventTooLong):
        SseReader().feed(b"x" * (MAX_EVENT_BYTES + 1))


async def test_an_address_with_tls_where_there_is_none(tmp_path: Path) -> None:
    async with server(tmp_path) as running:
        url = running.url.replace("http://", "https://")
        async with aiohttp.ClientSession() as session:
            with pytest.raises(NoTls):
                await TailraceClient(session, url).check()


async def test_a_model_is_known_by_its_provider(tmp_path: Path) -> None:
    async with server(tmp_path / "open") as running:
        client = TailraceClient(running.client, running.url)
        names = ("tailrace", "faulty/any model:7b", "nope/x", "x", "nope/x?y#z")
        known = [await client.knows_model(name) for name in names]
    assert known == [True, True, False, False, False]
    keys = "server: {drain_s: 0.05, keys: [{name: runs, key_env: R, scopes: [runs]}]}\n"
    async with server(tmp_path / "keyed", config=keys, env={"R": "secret"}) as running:
        client = TailraceClient(running.client, running.url, "secret")
        assert await client.knows_model("nope/x"), "a key that may not ask about models"


async def test_an_answer_comes_whole_through_lost_connections(tmp_path: Path) -> None:
    scenario = Scenario(reply=reply(*WORDS), pace_s=0.01)
    async with server(tmp_path, scenario) as running, proxied(running.port()) as proxy:
        client = TailraceClient(running.client, f"http://127.0.0.1:{proxy.port}")
        run_id = await client.start("Go.", session="s", key="k", instructions="Be brief.")
        assert await client.start("Go.", session="s", key="k", instructions="Be brief.") == run_id
        told = list[Told]()
        async for batch in client.follow(run_id, LogView(), patience_s=5.0):
            told += batch
            proxy.lose_all()
        assert text_of(told) == "".join(WORDS)
        assert told[-1] == Ended("completed")
        assert b"Be brief." in running.provider.requests[0].body
        newest = await client.newest_run("s")
        assert newest is not None
        assert newest["id"] == run_id
        assert await told_of(client, run_id, LogView(newest["last_seq"])) == []


async def test_patience_ends_where_the_server_stays_away(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session:
        client = TailraceClient(session, "http://127.0.0.1:9")
        with pytest.raises(Unreachable):
            await anext(client.follow("r", LogView(), patience_s=0.3))
        with pytest.raises(Unreachable):
            await persist(lambda: client.start("Go.", session="", key="k"), patience_s=0.3)


@driven
async def test_whoever_speaks_waits_for_a_server_that_is_away_as_long_as_patience_lasts_and_no_longer() -> None:
    clock = asyncio.get_running_loop().time
    begun, tried_at = clock(), list[float]()

    async def away() -> str:
        tried_at.append(clock() - begun)
        raise Unreachable("away")

    with pytest.raises(Unreachable):
        await persist(away, patience_s=5.0)
    assert tried_at == pytest.approx([0, 0.25, 0.75, 1.75, 3.75, 5.0])


@pytest.mark.parametrize(("allowed", "decision"), [(True, "once"), (False, "deny")])
async def test_an_approval_is_answered_and_the_rest_is_told(tmp_path: Path, allowed: bool, decision: str) -> None:
    turn = reply("I would.", call("terminal", {"command": "rm -rf build"}))
    async with server(tmp_path, turn, reply("Settled.")) as running:
        client = TailraceClient(running.client, running.url)
        run_id = await client.start("Go.", session="", key="")
        told = list[Told]()
        async with aclosing(client.follow(run_id, LogView(), patience_s=5.0)) as batches:
            async for batch in batches:
                told += batch
                if isinstance(told[-1], Ask):
                    break
        asked = told[-1]
        assert isinstance(asked, Ask)
        assert asked.command == "rm -rf build"
        await client.answer(run_id, asked.approval_id, allowed=allowed)
        assert text_of(await told_of(client, run_id, LogView(asked.seq))) == "Settled."
        assert (await client.state(run_id))["approvals"][0]["decision"] == decision
        await client.answer(run_id, asked.approval_id, allowed=True)  # too late: nothing happens
        with pytest.raises(Refused):
            await client.answer("none", asked.approval_id, allowed=True)


async def test_a_run_is_stopped(tmp_path: Path) -> None:
    async with server(tmp_path, Scenario(reply=reply(*WORDS), pace_s=0.2)) as running:
        client = TailraceClient(running.client, running.url)
        run_id = await client.start("Go.", session="", key="")
        await client.stop(run_id)
        assert (await told_of(client, run_id))[-1] == Ended("stopped", "interrupted")


async def test_refusals_are_told_apart(tmp_path: Path) -> None:
    env = {"TAILRACE_API_KEY": "secret", "M": "models only"}
    async with server(tmp_path, config=KEYS, env=env) as running:
        with pytest.raises(KeyRefused):
            await TailraceClient(running.client, running.url).check()
        with pytest.raises(KeyMayNot):
            await TailraceClient(running.client, running.url, "models only").check()
        good = TailraceClient(running.client, running.url + "/", "secret")
        await good.check()
        await good.ready()
        assert "tailrace" in await good.models()
        with pytest.raises(Refused, match="no such"):
            await good.start("Go.", session="", key="", model="nobody/any")
        with pytest.raises(NotTailrace):
            await TailraceClient(running.client, running.provider.url, "secret").check()


async def test_a_limit_is_no_absence_and_a_model_that_a_key_may_not_use_is_no_wrong_key(tmp_path: Path) -> None:
    house = "{name: house, key_env: H, scopes: [runs], models: [faulty/any], requests_per_minute: 1}"
    config = f"server: {{drain_s: 0.05, keys: [{house}]}}\n"
    async with server(tmp_path, config=config, env={"H": "secret"}) as running:
        client = TailraceClient(running.client, running.url, "secret")
        with pytest.raises(Refused, match="may not use 'faulty/other'; it may use: faulty/any"):
            await client.start("Go.", session="", key="1", model="faulty/other")
        tried = 0

        async def start() -> str:
            nonlocal tried
            tried += 1
            return await client.start("Go.", session="", key=str(tried), model="faulty/any")

        async def start_too_often() -> None:
            for _ in range(4):  # a minute of the clock may end in between
                await persist(start, patience_s=5.0)

        with pytest.raises(OverLimit, match="a minute of the clock; it may again in"):
            await start_too_often()
        assert tried <= 3
