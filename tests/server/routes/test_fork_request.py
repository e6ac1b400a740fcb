"""What a fork may be asked for: its event, its model and its key, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.strict_provider import StrictProvider

from server.dialect_api import DIALECTS, DialectServer, dialect_server
from server.http_server import running_server
from server.routes.forked_runs import QUESTION, Look, ended, fork
from tailrace.messages import Dialect
from tailrace.ports import NewRun
from tailrace.testing.provider import call, reply, think

# ── another model ────────────────────────────────────────────────────────────────────────────────────────────

TURN = [
    reply(think("I should look."), "Let me look.", call("look", {})),
    reply(think("And once more."), call("look", {})),
    reply(think("Enough."), "There are trees."),
]


async def forks_of_every_event(server: DialectServer, run: str, last: int, model: str) -> list[str]:
    """The statuses of forks after each event, with and without an input."""
    statuses: list[str] = []
    for after in range(last + 1):
        for fields in ({}, {"input": "And now?"}):
            status, made = await server.post(f"/runs/{run}/fork", {"after": after, "model": model, **fields})
            if status == 400:
                statuses.append(made["error"]["kind"])
                continue
            assert status == 201, made
            statuses.append((await server.app.agents.finished(made["id"])).status)
    return statuses


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", DIALECTS)
async def test_every_event_of_a_turn_is_forked_to_every_dialect_and_nothing_is_refused(
    tmp_path: Path, source: Dialect, target: Dialect
) -> None:
    """The providers are as strict as the vendors: loose calls and results, and reasoning that another provider has
    sealed, are refused."""
    provider = StrictProvider(turns={"agentic": TURN})
    sections = {"model": {"provider": f"up-{source}", "name": "agentic"}}
    async with dialect_server(tmp_path, provider=provider, tools=[Look()], sections=sections) as server:
        _, created = await server.post("/runs", {"input": "What is there?"})
        await server.app.agents.finished(created["id"])
        last = (await server.app.journal.get(created["id"])).last_seq
        statuses = await forks_of_every_event(server, created["id"], last, f"up-{target}/agentic")
    assert provider.refusals == []
    assert set(statuses) == {"completed", "not_forkable"}
    assert statuses.count("not_forkable") == 3, "the answer, the last stop and the end, without an input"


async def test_a_fork_asks_the_model_that_is_named(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two."), reply("Three.")) as server:
        run = await server.start(model="other/ok")
        await ended(server, run)
        same = await fork(server, run, QUESTION)
        named = await fork(server, run, QUESTION, model="faulty/ok")
        default = await fork(server, run, QUESTION, model="tailrace")
        status, unknown = await server.json("POST", f"/runs/{run}/fork", {"after": QUESTION, "model": "nope/x"})
        models = [(await server.json("GET", f"/runs/{made['id']}"))[1]["model"] for made in (same, named, default)]
    assert models == ["other/ok", "faulty/ok", ""]
    assert (status, "providers.nope: no such provider; there are" in unknown["error"]["message"]) == (404, True)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("after", [-1, 1.5, "2", True, None, {}])
async def test_an_event_that_is_no_number_gets_400(tmp_path: Path, after: object) -> None:
    async with running_server(tmp_path, reply("Hi.")) as server:
        run = await server.start()
        await ended(server, run)
        refused = await server.json("POST", f"/runs/{run}/fork", {"after": after})
        missing = await server.json("POST", f"/runs/{run}/fork", {"input": "Go."})
        _, listed = await server.json("GET", "/runs")
    assert [(status, body["error"]["param"]) for status, body in (refused, missing)] == [(400, "after")] * 2
    assert len(listed["data"]) == 1


async def test_what_cannot_be_forked_is_said_in_one_line(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi.")) as server:
        run = await server.start()
        last = (await ended(server, run))[-1]["seq"]
        others = [(await server.app.journal.create(NewRun(kind))).id for kind in ("call", "sequence", "definition")]
        ahead = await server.json("POST", f"/runs/{run}/fork", {"after": last + 1})
        far = await server.json("POST", f"/runs/{run}/fork", {"after": 10**30})
        done = await server.json("POST", f"/runs/{run}/fork", {"after": last})
        nobody = await server.json("POST", "/runs/run_nobody/fork", {"after": 0})
        no_model = await server.json("POST", f"/runs/{run}/fork", {"after": 0, "model": "nobody/x"})
        nothing: tuple[object, ...] = ("", "  ", [], 3)
        empty = [await server.json("POST", f"/runs/{run}/fork", {"after": 0, "input": given}) for given in nothing]
        kinds = [await server.json("POST", f"/runs/{each}/fork", {"after": 0}) for each in others]
        _, listed = await server.json("GET", "/runs?kind=agent")
    assert (ahead[0], ahead[1]["error"]["kind"]) == (409, "cursor_ahead")
    assert far[0] in (400, 409)
    assert (done[0], done[1]["error"]["kind"]) == (400, "not_forkable")
    assert "after 0 asks its question again" in done[1]["error"]["message"]
    assert (nobody[0], no_model[0]) == (404, 404)
    assert [(status, body["error"]["param"]) for status, body in empty] == [(400, "input")] * 4
    assert [status for status, _ in kinds] == [400, 400, 400]
    assert "an instance of a sequence" in kinds[1][1]["error"]["message"]
    assert len(listed["data"]) == 1


async def test_an_idempotency_key_with_a_question_that_is_not_stored_as_it_came(tmp_path: Path) -> None:
    """A secret is removed before anything is stored: the request is the same all the same."""
    env = {"TAILRACE_API_KEY": "secret-of-ann"}
    asks = {"input": "Is secret-of-ann a key?", "idempotency_key": "k"}
    headers = {"Authorization": "Bearer secret-of-ann"}
    async with running_server(tmp_path, reply("Yes."), reply("Forked."), env=env, headers=headers) as server:
        runs = [await server.json("POST", "/runs", asks) for _ in range(2)]
        assert [status for status, _ in runs] == [201, 201], runs
        path = f"/runs/{runs[0][1]['id']}/fork"
        forks = [await server.json("POST", path, {**asks, "after": 0, "idempotency_key": "f"}) for _ in range(2)]
        _, shown = await server.json("GET", f"/runs/{runs[0][1]['id']}")
    assert [status for status, _ in forks] == [201, 201], forks
    assert [len({body["id"] for _, body in made}) for made in (runs, forks)] == [1, 1]
    assert "secret-of-ann" not in shown["input"]


async def test_an_idempotency_key_makes_one_fork(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two."), reply("Three.")) as server:
        run = await server.start()
        await ended(server, run)
        made = [await fork(server, run, 0, input="Again.", idempotency_key="k") for _ in range(3)]
        other = await server.json("POST", f"/runs/{run}/fork", {"after": 0, "input": "Not.", "idempotency_key": "k"})
        await server.start("New.", idempotency_key="taken")
        taken = await server.json("POST", f"/runs/{run}/fork", {"after": 0, "idempotency_key": "taken"})
        await ended(server, made[0]["id"])
    assert len({each["id"] for each in made}) == len({each["session"] for each in made}) == 1
    assert [(status, body["error"]["param"]) for status, body in (other, taken)] == [(409, "idempotency_key")] * 2
