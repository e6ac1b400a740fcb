"""Forks: a run that begins from the facts of another one, from any of its events, in a session of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from parked_turns import park_turn
from server.http_server import RunningServer, running_server, sse
from server.routes.forked_runs import QUESTION, Look, asked, ended, fork
from server.routes.test_runs import ANN, BOB, KEY_ENV, KEYS, STALLED, Launch, LaunchArgs, text_of
from tailrace.agent.fork import ForkRequest, forked_log, inherited
from tailrace.agent.turn_spec import TurnSpec
from tailrace.messages import user
from tailrace.ports import NewRun, ToolContext, ToolOutcome
from tailrace.testing.provider import call, reply

# ── where it begins ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fork_at_the_question_asks_it_again_and_says_where_it_came_from(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("First."), reply("Second.")) as server:
        run = await server.start("Go.", session="s")
        before = (await ended(server, run), await server.json("GET", f"/runs/{run}"))
        made = await fork(server, run, QUESTION)
        log = await ended(server, made["id"])
        _, shown = await server.json("GET", f"/runs/{made['id']}")
        _, listed = await server.json("GET", "/runs")
        after = (await ended(server, run), await server.json("GET", f"/runs/{run}"))
    origin = {"run_id": run, "after": QUESTION}
    assert set(made) == {"id", "status", "session", "forked_from"}
    assert made["forked_from"] == origin
    assert made["session"] not in ("", "s")
    assert (shown["forked_from"], shown["session"], shown["input"]) == (origin, made["session"], "Go.")
    assert [each["forked_from"] for each in listed["data"]] == [origin, None]
    assert [(event["type"], event.get("run_id")) for event in log if event["type"] == "run_forked"] == [
        ("run_forked", run)
    ]
    assert (shown["output"], text_of(log)) == ("Second.", "Second.")
    assert asked(server, 1) == asked(server, 0) == [("user", "Go.")]
    assert before == after, "the other run stays as it is"


@pytest.mark.parametrize("after", [0, 1, QUESTION])
async def test_a_fork_at_the_question_with_an_input_is_the_question_edited(tmp_path: Path, after: int) -> None:
    async with running_server(tmp_path, reply("First."), reply("Second.")) as server:
        run = await server.start("Go.")
        await ended(server, run)
        made = await fork(server, run, after, input="Stay.")
        log = await ended(server, made["id"])
        _, shown = await server.json("GET", f"/runs/{made['id']}")
    assert asked(server, 1) == [("user", "Stay.")]
    assert (shown["input"], log[-1]["output"]) == ("Stay.", "Second.")


@pytest.mark.parametrize("keep", [True, False])
async def test_an_edited_question_has_the_files_of_the_first_one_where_they_are_kept(
    tmp_path: Path, keep: bool
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    content = [{"type": "text", "text": "Whta is this?"}, picture, {"type": "text", "text": "\n\n<file>…</file>"}]
    async with running_server(tmp_path, *(reply(f"Answer {number}.") for number in range(3))) as server:
        _, made = await server.json("POST", "/runs", {"input": [{"role": "user", "content": content}]})
        await ended(server, made["id"])
        edited = await fork(server, made["id"], 0, input="What is this?", keep_files=keep)
        await ended(server, edited["id"])
        last = (await server.app.journal.get(made["id"])).last_seq
        follows = await fork(server, made["id"], last, input="And this?", keep_files=keep)
        await ended(server, follows["id"])
        told = [request.json()["messages"][-1]["content"] for request in server.provider.requests]
    typed = {"type": "text", "text": "What is this?"}
    assert told[1] == ([typed, *told[0][1:]] if keep else "What is this?")
    assert told[2] == "And this?", "a message that follows has files of its own"


async def test_the_session_of_a_fork_goes_on_and_that_of_the_other_run_does_not_know(tmp_path: Path) -> None:
    script = [reply(text) for text in ("A1.", "A2.", "F1.", "F2.", "A3.")]
    async with running_server(tmp_path, *script) as server:
        for text in ("Q1.", "Q2."):
            run = await server.start(text, session="s")
            log = await ended(server, run)
        made = await fork(server, run, log[-1]["seq"], input="Other.")
        await ended(server, made["id"])
        await ended(server, await server.start("More.", session=made["session"]))
        await ended(server, await server.start("Q3.", session="s"))
    said = [("user", "Q1."), ("assistant", "A1."), ("user", "Q2."), ("assistant", "A2.")]
    assert asked(server, 2) == [*said, ("user", "Other.")]
    assert asked(server, 3) == [*said, ("user", "Other."), ("assistant", "F1."), ("user", "More.")]
    assert asked(server, 4) == [*said, ("user", "Q3.")]


async def test_a_client_s_own_account_of_the_conversation_is_inherited(tmp_path: Path) -> None:
    roles = ("system", "user", "assistant", "user")
    given = [{"role": role, "content": f"{role} {at}"} for at, role in enumerate(roles)]
    async with running_server(tmp_path, reply("One."), reply("Two."), reply("Three.")) as server:
        _, created = await server.json("POST", "/runs", {"input": given})
        await ended(server, created["id"])
        again = await fork(server, created["id"], QUESTION)
        await ended(server, again["id"])
        other = await fork(server, created["id"], 0, input=[{"role": "user", "content": "Other."}])
        await ended(server, other["id"])
    systems = [request.json()["messages"][0] for request in server.provider.requests]
    assert asked(server, 1) == asked(server, 0)
    assert asked(server, 2) == [("user", "user 1"), ("assistant", "assistant 2"), ("user", "Other.")]
    assert systems == [{"role": "system", "content": "system 0"}] * 3


async def test_a_fork_outlives_the_run_that_it_came_from(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two."), reply("Three.")) as server:
        run = await server.start("Go.", session="s")
        await server.app.agents.finished(run)
        await server.app.journal.compact(run)
        made = await fork(server, run, (await server.app.journal.get(run)).last_seq, input="And?")
        await ended(server, made["id"])
        await server.app.journal.delete(run)
        log = await ended(server, made["id"])
        await ended(server, await server.start("More.", session=made["session"]))
        gone = await server.json("POST", f"/runs/{run}/fork", {"after": 0})
    assert [e["messages"] for e in log if e["type"] == "history_compressed"]
    assert [text for _, text in asked(server, 2)] == ["Go.", "One.", "And?", "Two.", "More."]
    assert gone[0] == 404


async def test_what_the_other_run_has_used_is_not_counted_again(tmp_path: Path) -> None:
    turn = (reply("Looking.", call("look", {})), reply("Done."), reply("Done again."))
    async with running_server(tmp_path, *turn, tools=(Look(),)) as server:
        run = await server.start()
        log = await ended(server, run)
        output = next(event["seq"] for event in log if event["type"] == "tool_output_recorded")
        copy = await ended(server, (await fork(server, run, output))["id"])
    calls = [event["usage"] for event in log if event["type"] == "usage_recorded"]
    own = [event["usage"] for event in copy if event["type"] == "usage_recorded"]
    assert (len(calls), len(own)) == (2, 1)
    assert copy[-1]["usage"] == own[0]
    assert copy[-1]["output"] == "Done again."
    assert text_of(copy) == "Looking.Done again."
    assert [event["tool_name"] for event in copy if event["type"] == "tool_call_finished"] == ["look"]


# ── what was under way ───────────────────────────────────────────────────────────────────────────────────────


async def first(server: RunningServer, run: str, kind: str, **kwargs: Any) -> int:
    """The number of the first event of this type, as soon as it is there."""
    async with server.client.get(f"{server.url}/runs/{run}/stream", **kwargs) as response:
        async for event in sse(response):
            if event["type"] == kind:
                return int(event["seq"])
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize("question", ["", "Shorter!"])
async def test_a_fork_in_the_middle_of_a_text_goes_on_from_it(tmp_path: Path, question: str) -> None:
    """The other run is not disturbed: it is still under way."""
    script = (STALLED, reply(" and so on."), reply("Shorter."))
    async with running_server(tmp_path, *script, config="call: {idle_timeout_s: 600}\n") as server:
        run = await server.start()
        after = await first(server, run, "message_chunk")
        fields = {"input": question} if question else {}
        made = await fork(server, run, after, **fields)
        log = await ended(server, made["id"])
        _, source = await server.json("GET", f"/runs/{run}")
    partial = source["messages"][0]["text"]
    assert source["status"] == "running"
    begun = log[-1]["output"].removesuffix(" and so on.")
    if question:
        assert [role for role, _ in asked(server, 1)] == ["user", "assistant", "user"]
        assert asked(server, 1)[-1] == ("user", question)
        assert partial.startswith(asked(server, 1)[1][1])
        assert log[-1]["output"] == " and so on."
    else:
        assert begun
        assert partial.startswith(begun)
        assert begun in str(asked(server, 1)), "the model is asked to go on from it"


async def test_a_run_that_is_set_aside_can_be_forked(tmp_path: Path) -> None:
    script = (STALLED, reply("Done."))
    async with running_server(tmp_path, *script, config="call: {idle_timeout_s: 600}\n") as server:
        run = await server.start("Go.")
        await first(server, run, "message_chunk")
        assert await park_turn(server.app) == run
        log = await ended(server, (await fork(server, run, 0))["id"])
        _, source = await server.json("GET", f"/runs/{run}")
    assert (log[-1]["output"], source["status"]) == ("Done.", "parked")


@pytest.mark.parametrize(("repeatable", "looks"), [(False, 1), (True, 2)])
async def test_a_call_without_a_result_is_made_again_only_where_that_is_safe(
    tmp_path: Path, repeatable: bool, looks: int
) -> None:
    look = Look(repeatable=repeatable)
    script = (reply(call("look", {})), reply("Done."), reply("Forked."))
    async with running_server(tmp_path, *script, tools=(look,)) as server:
        run = await server.start()
        log = await ended(server, run)
        calling = next(e["seq"] for e in log if e["type"] == "message_recorded" and e["message"]["role"] == "assistant")
        copy = await ended(server, (await fork(server, run, calling))["id"])
    [output] = [event for event in copy if event["type"] == "tool_output_recorded"]
    assert look.looks == looks
    assert output["ok"] == repeatable
    assert "not run again" in output["output"] or repeatable
    assert copy[-1]["output"] == "Forked."


class CountedLaunch(Launch):
    launched = 0

    async def execute(self, args: LaunchArgs, context: ToolContext) -> ToolOutcome:
        self.launched += 1
        return await super().execute(args, context)


@pytest.mark.parametrize("fields", [{}, {"input": "Leave it."}])
async def test_a_fork_at_an_approval_that_waits_launches_nothing(tmp_path: Path, fields: dict[str, str]) -> None:
    launch = CountedLaunch()
    script = (reply(call("launch", {"what": "it"})), reply("Left."), reply("Done."))
    async with running_server(tmp_path, *script, tools=(launch,)) as server:
        run = await server.start("Launch it.")
        waiting = await first(server, run, "approval_asked")
        made = await fork(server, run, waiting, **fields)
        log = await ended(server, made["id"])
        _, source = await server.json("GET", f"/runs/{run}")
        answer = {"approval_id": source["approvals"][0]["asked"]["approval_id"], "decision": "once"}
        theirs = await server.json("POST", f"/runs/{made['id']}/approval", answer)
        ours = await server.json("POST", f"/runs/{run}/approval", answer)
        await ended(server, run)
    assert (log[-1]["output"], log[-1]["status"]) == ("Left.", "completed")
    assert not [event for event in log if event["type"] == "approval_asked"]
    assert source["status"] == "running"
    assert source["approvals"][0].get("decision") is None
    assert theirs[0] == 409
    assert (ours[0], launch.launched) == (200, 1)


@pytest.mark.parametrize("fields", [{}, {"input": "Once more."}])
async def test_M152_an_approval_for_the_session_holds_in_no_fork_of_it(tmp_path: Path, fields: dict[str, str]) -> None:
    launch = CountedLaunch()
    again = reply(call("launch", {"what": "it"}))
    async with running_server(tmp_path, again, reply("Done."), again, tools=(launch,)) as server:
        run = await server.start("Launch it.", session="s")
        await first(server, run, "approval_asked")
        _, waiting = await server.json("GET", f"/runs/{run}")
        answer = {"approval_id": waiting["approvals"][0]["asked"]["approval_id"], "decision": "session"}
        await server.json("POST", f"/runs/{run}/approval", answer)
        log = await ended(server, run)
        output = next(event["seq"] for event in log if event["type"] == "tool_output_recorded")
        made = await fork(server, run, output, **fields)
        async with server.client.get(f"{server.url}/runs/{made['id']}/stream") as response:
            asked_again = []
            async for event in sse(response):
                asked_again += [event["digest"]] if event["type"] == "approval_asked" and event["digest"] else []
                if asked_again or event["type"] == "run_finished":
                    break
    assert asked_again
    assert launch.launched == 1


async def test_J110_whoever_forks_a_run_is_asked_for_its_approvals(tmp_path: Path) -> None:
    """Any key of the scope may read and fork a run; what the fork does is then its own."""
    script = (reply("Fine."), reply(call("launch", {"what": "it"})), reply("Done."))
    async with running_server(tmp_path, *script, config=KEYS, env=KEY_ENV, tools=(Launch(),)) as server:
        _, created = await server.json("POST", "/runs", {"input": "Go."}, headers=ANN)
        await server.events(f"/runs/{created['id']}/stream", headers=ANN)
        made = await fork(server, created["id"], QUESTION, headers=BOB)
        await first(server, made["id"], "approval_asked", headers=BOB)
        _, state = await server.json("GET", f"/runs/{made['id']}", headers=BOB)
    assert [approval["asked"]["requester"] for approval in state["approvals"]] == ["bob"]


async def test_a_turn_that_approved_everything_makes_no_fork_that_does(tmp_path: Path) -> None:
    launch = CountedLaunch()
    script = (reply("Fine."), reply(call("launch", {"what": "it"})))
    async with running_server(tmp_path, *script, tools=(launch,)) as server:
        run = await server.app.agents.submit(TurnSpec(user("Go."), yolo=True, requester="cli"))
        await server.app.agents.finished(run.id)
        made = await fork(server, run.id, 0)
        await first(server, made["id"], "approval_asked")
    assert launch.launched == 0


# ── forks of forks ───────────────────────────────────────────────────────────────────────────────────────────


async def test_the_beginning_of_a_fork_is_where_its_own_part_begins(tmp_path: Path) -> None:
    script = [reply(text) for text in ("A1.", "F1.", "F1 again.", "F1 edited.", "Only.")]
    async with running_server(tmp_path, *script) as server:
        run = await server.start("Q1.")
        log = await ended(server, run)
        made = await fork(server, run, log[-1]["seq"], input="Q2.")
        await ended(server, made["id"])
        again = await fork(server, made["id"], 0)
        await ended(server, again["id"])
        edited = await fork(server, made["id"], 0, input="Q2 edited.")
        await ended(server, edited["id"])
        whole = await fork(server, again["id"], 1, input="Q3.")
        await ended(server, whole["id"])
    said = [("user", "Q1."), ("assistant", "A1.")]
    assert asked(server, 1) == asked(server, 2) == [*said, ("user", "Q2.")]
    assert asked(server, 3) == [*said, ("user", "Q2 edited.")]
    assert asked(server, 4) == [*said, ("user", "Q3.")]
    assert again["forked_from"]["run_id"] == made["id"]


# ── a process that dies ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("written", [0, 1, 3])
async def test_a_fork_whose_process_died_before_it_had_everything_gets_the_rest(tmp_path: Path, written: int) -> None:
    script = (reply("Looking.", call("look", {})), reply("Done."), reply("Forked."))
    async with running_server(tmp_path, *script, tools=(Look(),)) as server:
        run = await server.start()
        log = await ended(server, run)
        output = next(event["seq"] for event in log if event["type"] == "tool_output_recorded")
        agents, journal = server.app.agents, server.app.journal
        spec = await agents.forked_turn(ForkRequest(run, output))
        assert spec.forked_from is not None
        whole = inherited(spec.forked_from, (), await forked_log(journal, await journal.get(run), output))
        new = NewRun("agent", msgspec.to_builtins(spec), session="f")
        died, lease = await journal.start(new, "a process that dies")
        assert lease is not None
        journal.append(lease, [entry.event for entry in whole[:written]])
        await journal.release(lease)
        assert await agents.recover() == [died.id]
        finished = await agents.finished(died.id)
        entries = await journal.read(died.id)
    assert [entry.event for entry in entries[1 : len(whole) + 1]] == [entry.event for entry in whole]
    assert (finished.status, finished.output, len(server.provider.requests)) == ("completed", "Forked.", 3)


async def test_a_fork_whose_process_died_and_whose_source_is_gone_says_so(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One.")) as server:
        run = await server.start()
        await ended(server, run)
        spec = await server.app.agents.forked_turn(ForkRequest(run, 0))
        await server.app.journal.delete(run)
        died = await server.app.journal.create(NewRun("agent", msgspec.to_builtins(spec), session="f"))
        await server.app.agents.recover()
        finished = await server.app.agents.finished(died.id)
    assert finished.status == "failed"
    assert finished.error is not None
    assert f"{run}, which this run is a fork of, was deleted" in finished.error.message
