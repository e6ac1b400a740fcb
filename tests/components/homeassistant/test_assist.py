"""A real Home Assistant with the integration in it, spoken to through Assist.

Home Assistant takes long to start. So all of it is one test, with one instance, and each part of it a subtest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from components.homeassistant.furnished_house import KEY, WORDS, House, add_pipeline, entity_of, furnished_house
from tailrace.events import AnyEvent, AttemptDiscarded, Entry, MessageChunk, MessageStop, RunFinished, entry_to_json

ASKED_EN = "May I run this in {directory}? rm -rf build\n\nSay yes or no."
ASKED_DE = "Darf ich das in {directory} ausführen? rm -rf build\n\nSag ja oder nein."


async def it_streams_while_the_answer_is_written(house: House) -> None:
    heard = await house.say("count to thirty")
    assert len(heard.deltas) >= len(WORDS)
    assert heard.streamed == heard.speech == "".join(WORDS)
    assert heard.kind == "action_done"
    assert not heard.continues


async def the_text_before_a_tool_is_part_of_the_answer(house: House) -> None:
    heard = await house.say("look into the notes")
    assert heard.speech == heard.streamed == "Let me look.\n\nThere is nothing."


async def a_satellite_has_one_session_whatever_its_conversations_are(house: House) -> None:
    first = await house.say("hello", device_id="kitchen")
    second = await house.say("earlier", device_id="kitchen")
    other = await house.say("earlier", device_id="bedroom")
    same = await house.say("earlier", conversation_id=other.conversation_id)
    assert first.conversation_id != second.conversation_id
    assert [second.speech, other.speech, same.speech] == ["2 questions.", "1 questions.", "1 questions."]


async def approvals_are_asked_and_answered_in_the_chat(house: House) -> None:
    await _approval(house, "en", ASKED_EN, ["what?", "Yes, please."], "once")
    await _approval(house, "de", ASKED_DE, ["Nein!"], "deny")


async def _approval(house: House, language: str, asked: str, answers: list[str], decision: str) -> None:
    heard = await house.say("remove the build", language, device_id="desk")
    run = await house.newest_run()
    directory = (await house.tailrace.get(f"/runs/{run['id']}"))["approvals"][0]["asked"]["directory"]
    asked = asked.format(directory=directory)
    assert heard.speech == heard.streamed == f"I would remove it.\n\n{asked}"
    assert heard.continues
    await house.home.http("POST", f"/api/config/config_entries/entry/{house.entry}/reload")
    for unclear in answers[:-1]:
        heard = await house.say(unclear, language, device_id="desk", conversation_id=heard.conversation_id)
        assert heard.speech.endswith(asked)
        assert heard.continues
    heard = await house.say(answers[-1], language, device_id="desk", conversation_id=heard.conversation_id)
    assert heard.speech == heard.streamed == "That is settled."
    state = await house.tailrace.get(f"/runs/{run['id']}")
    assert (await house.newest_run())["id"] == run["id"]
    assert state["approvals"][0]["decision"] == decision


async def a_failed_run_is_told_as_an_error(house: House) -> None:
    heard = await house.say("fail now")
    assert heard.kind == "error"
    assert heard.speech.startswith("That did not work: ")
    heard = await house.say("refuse now")
    assert (heard.kind, heard.speech.startswith("That did not work: ")) == ("error", True)
    assert heard.speech.endswith("\n\nWhoever runs Tailrace has to check the key, the account and the model.")


async def a_variant_of_a_language_is_answered_in_that_language(house: House) -> None:
    for variant in ("de-AT", "de_CH"):
        asked = {"text": "fail now", "agent_id": house.entity, "language": variant}
        told = await house.home.http("POST", "/api/conversation/process", asked)
        assert told["response"]["speech"]["plain"]["speech"].startswith("Das hat nicht geklappt: ")


async def a_run_that_ends_without_a_word_is_told_as_an_error(house: House) -> None:
    for question in ("nothing please", "blanks please"):
        heard = await house.say(question)
        assert (await house.newest_run())["status"] == "incomplete"
        assert (heard.kind, heard.speech) == ("error", "That did not work: the model gave no answer")
    asked = {"text": "nothing please", "agent_id": house.entity, "language": "fr"}
    told = await house.home.http("POST", "/api/conversation/process", asked)
    speech = told["response"]["speech"]["plain"]["speech"]
    assert speech == "Cela n'a pas marché : le modèle n'a donné aucune réponse"


async def an_utterance_without_words_is_asked_for_again(house: House) -> None:
    before = await house.newest_run()
    heard = await house.say("  ")
    assert (heard.kind, heard.speech) == ("error", "I heard nothing. Please say it again.")
    assert (await house.newest_run())["id"] == before["id"]


async def a_new_conversation_begins_where_somebody_asks_for_it(house: House) -> None:
    await house.say("hello", device_id="loft")
    assert (await house.say("/new", device_id="loft")).speech == "A new conversation begins."
    assert (await house.say("earlier", device_id="loft")).speech == "1 questions."
    assert (await house.say("/new earlier", device_id="loft")).speech == "1 questions."
    assert (await house.say("Neue Unterhaltung", "de", device_id="loft")).speech == "Eine neue Unterhaltung beginnt."
    await house.say("remove the build", device_id="loft")
    waits = await house.newest_run()
    assert (await house.say("/new", device_id="loft")).speech == "A new conversation begins."
    await house.tailrace.ended(waits["id"])
    assert (await house.say("earlier", device_id="loft")).speech == "1 questions."
    assert (await house.say("/help", device_id="loft")).speech.startswith("Here there are /new")


async def stop_stops_what_is_under_way(house: House) -> None:
    utterance = await house.home.say(house.pipelines["en"], "slowly count", device_id="cellar")
    await utterance.until(lambda heard: len(heard.deltas) > 3)
    assert (await house.say("Stopp", "de", device_id="cellar")).speech == "Angehalten."
    assert (await utterance.answer()).speech.endswith("\n\nStopped.")
    assert (await house.newest_run())["status"] == "stopped"
    assert (await house.say("/stop", device_id="cellar")).speech == "Nothing is running."
    assert (await house.say("stop", device_id="cellar")).speech == "Hello!", "it may be meant for the blinds"
    utterance = await house.home.say(house.pipelines["en"], "slowly count", device_id="cellar")
    await utterance.until(lambda heard: len(heard.deltas) > 3)
    await utterance.cancel()  # as the wake word does
    assert (await house.say("stop", device_id="cellar")).speech == "Stopped."


async def a_cancelled_utterance_stops_its_run(house: House) -> None:
    utterance = await house.home.say(house.pipelines["en"], "slowly count")
    await utterance.until(lambda heard: len(heard.deltas) > 3)
    await utterance.cancel()
    run = await house.newest_run()
    async with asyncio.timeout(10):
        await house.tailrace.ended(run["id"])
    assert (await house.tailrace.get(f"/runs/{run['id']}"))["status"] == "stopped"


async def an_answer_that_is_spoken_while_the_entry_is_reloaded_is_told_once(house: House) -> None:
    utterance = await house.home.say(house.pipelines["en"], "slowly count", device_id="attic")
    await utterance.until(lambda heard: len(heard.deltas) > 3)
    await house.home.http("POST", f"/api/config/config_entries/entry/{house.entry}/reload")
    assert (await utterance.answer()).speech == "".join(WORDS)
    run = await house.newest_run()
    kept = await house.home.http("GET", f"/api/diagnostics/config_entry/{house.entry}")
    assert run["id"] not in kept["data"]["unheard_runs"]
    shown = await house.home.ask("persistent_notification/get")
    assert run["id"] not in str(shown)


async def an_approval_that_is_given_elsewhere_is_told_later(house: House) -> None:
    await house.say("remove the build", device_id="door")
    run = await house.newest_run()
    [asked] = (await house.tailrace.get(f"/runs/{run['id']}"))["approvals"]
    decision = {"approval_id": asked["asked"]["approval_id"], "decision": "deny"}
    await house.tailrace.request("POST", f"/runs/{run['id']}/approval", decision)
    shown = await house.home.notification(lambda each: run["id"] in each["notification_id"])
    assert shown["message"] == "> remove the build\n\nThat is settled."
    assert (await house.say("yes", device_id="door")).speech == "Hello!"  # it answers nothing any more


async def a_withdrawn_attempt_is_taken_back(house: House) -> None:
    async with withdrawing_server() as url:
        flow = await house.home.http("POST", "/api/config/config_entries/flow", {"handler": "tailrace"})
        path = f"/api/config/config_entries/flow/{flow['flow_id']}"
        made = (await house.home.http("POST", path, {"url": url, "verify_ssl": True}))["result"]
        assert made["title"] == f"Tailrace ({url.removeprefix('http://')})", "the first has the plain name"
        entry = made["entry_id"]
        pipeline = await add_pipeline(house.home, await entity_of(house.home, entry), "en")
        heard = await (await house.home.say(pipeline, "hello")).answer()
        assert [delta for delta in heard.deltas if "role" in delta] == [
            {"role": "assistant", "content": "Let me look."},
            {"role": "assistant", "content": "Let me look."},
        ]
        assert "Wrong" in str(heard.deltas)
        assert heard.speech == heard.streamed == "Let me look.\n\nRight."
        await house.home.http("DELETE", f"/api/config/config_entries/entry/{entry}")


async def another_agent_of_the_same_server_has_a_model_of_its_own(house: House) -> None:
    flow = await house.home.http("POST", "/api/config/config_entries/flow", {"handler": "tailrace"})
    path = f"/api/config/config_entries/flow/{flow['flow_id']}"
    flow = await house.home.http("POST", path, {"url": house.tailrace.url, "api_key": KEY, "verify_ssl": True})
    assert (flow["step_id"], flow["description_placeholders"]) == ("agent", {"url": house.tailrace.url})
    for given, errors in (
        ({"name": " ", "model": "fake/other"}, {"name": "no_name"}),
        ({"name": "Helper", "model": "nope/x"}, {"model": "unknown_model"}),
    ):
        assert (await house.home.http("POST", path, given))["errors"] == errors
    made = (await house.home.http("POST", path, {"name": " Helper ", "model": "fake/other"}))["result"]
    assert made["title"] == "Helper"
    entity = await entity_of(house.home, made["entry_id"])
    assert entity == "conversation.helper"
    pipeline = await add_pipeline(house.home, entity, "en")
    assert (await (await house.home.say(pipeline, "hello", device_id="desk")).answer()).speech == "Hello!"
    of_the_other = await house.newest_run()
    await house.say("hello", device_id="desk")
    of_the_first = await house.newest_run()
    assert of_the_other["model"] == "fake/other" != of_the_first["model"]
    assert of_the_other["session"] != of_the_first["session"]
    await house.home.http("DELETE", f"/api/config/config_entries/entry/{made['entry_id']}")


@asynccontextmanager
async def withdrawing_server() -> AsyncIterator[str]:
    """A server of which the only run has an attempt that is withdrawn after it was shown."""
    events: list[tuple[int, AnyEvent]] = [
        (1, MessageChunk("Let me look.")),
        (1, MessageStop()),
        (2, MessageChunk("Wrong.")),
        (2, AttemptDiscarded("cut")),
        (3, MessageChunk("Right.")),
        (3, RunFinished("completed", "Right.")),
    ]
    lines = [entry_to_json(Entry(seq, event, attempt)) for seq, (attempt, event) in enumerate(events, 1)]

    async def reply_with(request: web.Request) -> web.Response:
        if request.path == "/runs/r/stream":
            return web.Response(body=b"".join(b"data: %b\n\n" % line for line in lines))
        return web.json_response({"data": [], "id": "r", "status": "running"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", reply_with)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def nothing_leaves_this_machine(house: House) -> None:
    loopback = {"0100007F", "00000000", "0" * 24 + "01000000", "0" * 32, "0" * 16 + "FFFF00000100007F"}
    assert house.home.peers() <= loopback


async def options_and_diagnostics(house: House) -> None:
    flow = await house.home.http("POST", "/api/config/config_entries/options/flow", {"handler": house.entry})
    names = [each["name"] for each in flow["data_schema"]]
    assert names == ["model", "instructions", "session_minutes", "answer_seconds", "reconnect_seconds"]
    given = {"model": "fake/other", "session_minutes": 5, "answer_seconds": 1, "reconnect_seconds": 20}
    path = f"/api/config/config_entries/options/flow/{flow['flow_id']}"
    refused = await house.home.http("POST", path, given | {"model": "nope/x"})
    assert (refused["type"], refused["errors"]) == ("form", {"model": "unknown_model"})
    assert (await house.home.http("POST", path, given))["type"] == "create_entry"
    heard = await house.say("slowly count")
    assert heard.streamed == heard.speech
    assert heard.speech.endswith("\n\nThis takes longer. The answer will come as a notification.")
    run = await house.newest_run()
    shown = await house.home.notification(lambda each: run["id"] in each["notification_id"])
    assert shown["message"].endswith("".join(WORDS))
    flow = await house.home.http("POST", "/api/config/config_entries/options/flow", {"handler": house.entry})
    path = f"/api/config/config_entries/options/flow/{flow['flow_id']}"
    await house.home.http("POST", path, given | {"answer_seconds": 60})
    await house.say("hello")
    assert (await house.newest_run())["model"] == "fake/other"
    body = {"handler": "tailrace", "entry_id": house.entry}
    flow = await house.home.http("POST", "/api/config/config_entries/flow", body)
    assert flow["step_id"] == "reconfigure"
    path = f"/api/config/config_entries/flow/{flow['flow_id']}"
    given = {"url": house.tailrace.url, "api_key": KEY, "verify_ssl": False}
    async with house.home.reloading(house.entry):
        assert (await house.home.http("POST", path, given))["reason"] == "reconfigure_successful"
    kept = await house.home.http("GET", f"/api/diagnostics/config_entry/{house.entry}")
    assert kept["data"]["data"]["api_key"] == "**REDACTED**"
    assert kept["data"]["available"] is True
    assert kept["data"]["data"]["verify_ssl"] is False
    assert KEY not in str(kept)


async def a_restart_of_tailrace_in_mid_answer_loses_nothing(house: House) -> None:
    utterance = await house.home.say(house.pipelines["en"], "slowly count", device_id="barn")
    await utterance.until(lambda heard: len(heard.deltas) > 5)
    await house.tailrace.kill()
    away = await house.say("/stop", device_id="barn")
    assert (away.kind, away.speech) == ("error", "Tailrace cannot be reached. Please try again later.")
    await house.tailrace.start()
    heard = await utterance.answer()
    run = await house.newest_run()
    assert run["status"] == "completed"
    assert heard.speech == heard.streamed == await house.tailrace.text_of(run["id"])
    assert heard.speech.startswith("word0 word1 ")


async def while_the_server_is_away_assist_says_so_and_the_entity_is_unavailable(house: House) -> None:
    """It comes back with another key: the user is asked for it, once for all agents of the server."""
    flow = await house.home.http("POST", "/api/config/config_entries/flow", {"handler": "tailrace"})
    path = f"/api/config/config_entries/flow/{flow['flow_id']}"
    await house.home.http("POST", path, {"url": house.tailrace.url, "api_key": KEY, "verify_ssl": True})
    other = (await house.home.http("POST", path, {"name": "Other"}))["result"]["entry_id"]
    await house.tailrace.kill()
    heard = await house.say("hello", "de")
    assert heard.kind == "error"
    assert heard.speech == "Tailrace ist nicht erreichbar. Bitte versuche es später noch einmal."
    await house.home.until(house.entity, lambda state: state == "unavailable")
    house.tailrace.key = "another key"
    await house.tailrace.start()
    assert (await house.say("hello")).speech.startswith("Tailrace refuses the key.")
    flow = await house.home.flow_in_progress("tailrace")
    path = f"/api/config/config_entries/flow/{flow['flow_id']}"
    assert (await house.home.http("POST", path, {"api_key": "wrong"}))["errors"] == {"api_key": "invalid_auth"}
    async with house.home.reloading(house.entry):
        done = await house.home.http("POST", path, {"api_key": house.tailrace.key})
        assert done["reason"] == "reauth_successful"
    await house.home.until(house.entity, lambda state: state != "unavailable")
    assert (await house.say("hello")).speech == "Hello!"
    await house.home.until("conversation.other", lambda state: state != "unavailable")
    pipeline = await add_pipeline(house.home, "conversation.other", "en")
    assert (await (await house.home.say(pipeline, "hello")).answer()).speech == "Hello!"
    assert await house.home.ask("config_entries/flow/progress") == []
    kept = await house.home.http("GET", f"/api/diagnostics/config_entry/{house.entry}")
    assert (kept["data"]["available"], kept["data"]["failure"]) == (True, None)
    await house.home.http("DELETE", f"/api/config/config_entries/entry/{other}")


async def a_restart_of_home_assistant_in_mid_answer_loses_nothing(house: House) -> None:
    utterance = await house.home.say(house.pipelines["en"], "slowly count", device_id="hall")
    await utterance.until(lambda heard: len(heard.deltas) > 5)
    await house.home.kill()
    await house.home.start()
    run = await house.newest_run()
    shown = await house.home.notification(lambda each: run["id"] in each["notification_id"])
    assert shown["message"] == f"> slowly count\n\n{''.join(WORDS)}"
    assert (await house.say("earlier", device_id="hall")).speech == "2 questions."


PARTS: tuple[Callable[[House], Awaitable[None]], ...] = (
    it_streams_while_the_answer_is_written,
    the_text_before_a_tool_is_part_of_the_answer,
    a_satellite_has_one_session_whatever_its_conversations_are,
    approvals_are_asked_and_answered_in_the_chat,
    a_failed_run_is_told_as_an_error,
    a_variant_of_a_language_is_answered_in_that_language,
    a_run_that_ends_without_a_word_is_told_as_an_error,
    an_utterance_without_words_is_asked_for_again,
    a_new_conversation_begins_where_somebody_asks_for_it,
    stop_stops_what_is_under_way,
    a_cancelled_utterance_stops_its_run,
    an_answer_that_is_spoken_while_the_entry_is_reloaded_is_told_once,
    an_approval_that_is_given_elsewhere_is_told_later,
    a_withdrawn_attempt_is_taken_back,
    another_agent_of_the_same_server_has_a_model_of_its_own,
    nothing_leaves_this_machine,
    options_and_diagnostics,
    a_restart_of_tailrace_in_mid_answer_loses_nothing,
    while_the_server_is_away_assist_says_so_and_the_entity_is_unavailable,
    a_restart_of_home_assistant_in_mid_answer_loses_nothing,
)


async def test_assist(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with furnished_house(tmp_path) as house:
        for part in PARTS:
            with subtests.test(part.__name__):
                await part(house)
