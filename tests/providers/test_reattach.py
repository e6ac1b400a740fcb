"""An answer that its provider keeps is read on when the connection breaks, and is asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from providers.faulty_calls import ASK, Bench, Told, faulty
from tailrace.config.sections import CallPolicy
from tailrace.errors import ANSWER_TOO_LONG, PeerError, Permanent, ProviderError, Retryable
from tailrace.messages import AnyDelta, JsonObject, ModelRequest, Usage
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.http.reattaching import MAX_POLLS
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.providers.reattach import ReattachPolicy
from tailrace.providers.retry.continuation import MARK
from tailrace.testing.provider import Scenario
from tailrace.testing.provider.server import FaultyProvider

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
SOON: Any = {"backoff_s": 0.001, "backoff_max_s": 0.002}


class Kept(Told):
    """Also notes what becomes of answers that the provider keeps."""

    goes_on = True

    def answer_resumable(self, answer_id: str) -> None:
        self.facts.append(("kept", answer_id))

    def answer_lost(self, provider: str, error: ProviderError) -> None:
        self.facts.append(("lost", provider))

    def resumes_later(self) -> bool:
        return self.goes_on

    def names(self) -> list[str]:
        return [fact[0] for fact in self.facts if fact[0] != "deltas"]


def kept_route(bench: Bench, model: str = "ok", name: str = "faulty", *, key: str = "", **policy: Any) -> Route:
    provider = bench.provider("responses", name, reattach=True, key=key)
    return Route(provider, model, CallPolicy(**{**SOON, **policy}))


def posts(server: FaultyProvider) -> int:
    """How many answers were asked for."""
    return sum(request.path == "/v1/responses" for request in server.requests)


def queries(server: FaultyProvider) -> list[str]:
    return [request.query for request in server.requests if request.method == "GET"]


async def whole_answer(model: str) -> CallResult:
    async with faulty() as bench:
        return await bench.call(kept_route(bench, model))


@pytest.mark.parametrize("model", ["ok", "reasoning", "text-and-tools", "parallel"])
@pytest.mark.parametrize("at", range(20, 100, 8))
async def test_an_answer_that_is_cut_anywhere_is_read_on_and_paid_for_once(model: str, at: int) -> None:
    wanted = await whole_answer(model)
    async with faulty(f"{model}+cut@{at}%") as bench:
        result = await bench.call(kept_route(bench, model), told=(told := Kept()))
        assert result.completion.body == wanted.completion.body
        assert result.completion.message == wanted.completion.message
        assert result.usage == wanted.usage != Usage()
        assert told.text == wanted.completion.text
        assert posts(bench.server) == 1
        assert len(result.attempts) == 1
        assert told.names() == ["started", "kept"]
        assert MARK not in result.completion.body
        assert [query.partition("starting_after=")[0] for query in queries(bench.server)] == ["stream=true&"]


async def test_the_rest_is_asked_for_by_the_number_of_the_last_event_that_was_read() -> None:
    async with faulty("ok+cut@50%", "ok+cut@50%", "ok+reset@50%") as bench:
        result = await bench.call(kept_route(bench), told=(told := Kept()))
        assert result.completion.text == told.text == OK
        numbers = [int(query.rpartition("=")[2]) for query in queries(bench.server)]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 3
        request = bench.server.requests[0].json()
        assert (request["background"], request["store"], request["stream"]) == (True, True, True)


async def test_without_reattach_nothing_is_kept_and_the_answer_is_continued() -> None:
    async with faulty("ok+cut@60%", "ok") as bench:
        result = await bench.call(bench.route("responses", **SOON), told=(told := Kept()))
        assert result.completion.text == told.text == OK
        assert posts(bench.server) == 2
        assert "background" not in bench.server.requests[0].json()


@pytest.mark.parametrize("forbids", [{"store": False}, {"background": False}])
async def test_a_request_that_forbids_it_is_sent_as_it_is_and_not_kept(forbids: JsonObject) -> None:
    async with faulty("ok+cut@60%", "ok") as bench:
        request = msgspec.structs.replace(ASK, extra=forbids)
        await bench.call(kept_route(bench), request=request, told=(told := Kept()))
        sent = bench.server.requests[0].json()
        assert {name: sent.get(name) for name in ("store", "background")} == {
            "store": False,  # as of every request of our own making
            "background": None,
            **forbids,
        }
        assert "kept" not in told.names()
        assert posts(bench.server) == 2


@pytest.mark.parametrize("field", ["store", "background"])
async def test_a_provider_that_may_keep_nothing_is_asked_without_and_remembered(field: str) -> None:
    async with faulty(Scenario(refuses=(field,)), "ok", "ok+cut@60%", "ok") as bench:
        route = kept_route(bench)
        assert (await bench.call(route)).completion.text == OK
        result = await bench.call(route, told=(told := Kept()))
        assert result.completion.text == OK
        assert "kept" not in told.names()
        assert ["background" in request.json() for request in bench.server.requests] == [True, False, False, False]
        unkept = None if field == "store" else False
        assert [request.json().get("store") for request in bench.server.requests] == [True, unkept, unkept, unkept]


async def test_a_stall_is_told_and_read_on_over_another_connection() -> None:
    async with faulty("ok+stall@50%") as bench:
        result = await bench.call(kept_route(bench, idle_timeout_s=0.05), told=(told := Kept()))
        assert result.completion.text == told.text == OK
        assert told.names() == ["started", "kept", "stalled"]
        assert posts(bench.server) == 1


async def test_an_expired_answer_is_told_as_lost_and_continued() -> None:
    class Forgets(Kept):
        def answer_resumable(self, answer_id: str) -> None:
            super().answer_resumable(answer_id)
            bench.server.kept.forget()

    async with faulty("ok+cut@60%", "ok", "ok", "ok") as bench:
        result = await bench.call(kept_route(bench), told=(told := Forgets()))
        assert result.completion.text == told.text == OK
        assert told.names() == ["started", "kept", "lost", "started", "kept"]
        assert posts(bench.server) == 2


@pytest.mark.parametrize("then", ["ok+json", "status-400"])
async def test_an_answer_that_is_streamed_no_longer_is_taken_whole(then: str) -> None:
    """The stream has expired before the response has, or the provider never streams a kept one."""
    wanted = await whole_answer("text-and-tools")
    async with faulty("text-and-tools+cut@50%", then) as bench:
        result = await bench.call(kept_route(bench, "text-and-tools"), told=(told := Kept()))
        assert result.completion.message == wanted.completion.message
        assert told.text == wanted.completion.text
        assert result.usage == wanted.usage
        assert posts(bench.server) == 1


async def test_readings_in_a_row_that_bring_nothing_are_bounded_and_the_next_provider_is_asked() -> None:
    async with faulty("ok+cut@50%", "status-500", "ok") as bench:
        second = bench.route("chat", "second")
        result = await bench.call(kept_route(bench, max_attempts=1), second, told=(told := Kept()))
        assert result.completion.text == told.text == OK
        assert result.tried == ("faulty", "second")
        assert told.names() == ["started", "kept", "lost", "started"]
        assert len(queries(bench.server)) == 1
        assert bench.server.kept.cancelled  # it is not paid for any longer


async def test_every_piece_of_progress_renews_the_readings() -> None:
    async with faulty(*["ok+cut@30%"] * 4) as bench:
        result = await bench.call(kept_route(bench, max_attempts=1), told=(told := Kept()))
        assert result.completion.text == told.text == OK
        assert posts(bench.server) == 1


def test_O178_an_answer_that_is_too_long_is_not_read_on() -> None:
    too_long = PeerError("the answer exceeds 8 characters", code=ANSWER_TOO_LONG)
    assert ReattachPolicy(CallPolicy()).wait_s(too_long, queued=True) is None


def test_the_number_of_readings_is_bounded_and_only_a_queue_is_waited_for() -> None:
    cut = Retryable("cut")
    again = ReattachPolicy(CallPolicy(max_attempts=2))
    assert again.wait_s(cut) == 0.0
    assert (again.wait_s(cut) or 0.0) > 0.0
    assert again.wait_s(cut) is None
    assert again.wait_s(cut, queued=True) is not None
    again.progressed()
    assert again.wait_s(cut) == 0.0
    assert again.wait_s(Permanent("gone")) is None


async def test_a_listener_that_stops_the_call_cancels_the_answer() -> None:
    class Stops(Kept):
        def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
            super().deltas(deltas)
            return StopCall(LookupError("enough")) if self.text else None

    async with faulty() as bench:
        with pytest.raises(LookupError):
            await bench.call(kept_route(bench), told=Stops())
        assert len(bench.server.kept.cancelled) == 1


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_cancelled_task_cancels_the_answer_unless_another_process_goes_on(goes_on: bool) -> None:
    async with faulty("ok+stall@50%") as bench:
        told = Kept()
        told.goes_on = goes_on
        task = asyncio.create_task(bench.call(kept_route(bench), told=told))
        await told.heard.wait()
        task.cancel()
        await asyncio.wait([task])
        assert len(bench.server.kept.cancelled) == (0 if goes_on else 1)


@pytest.mark.parametrize("key", ["", "s-this-is-the-key"])
async def test_a_key_that_is_split_by_the_cut_stays_redacted(key: str) -> None:
    """J114: the end of a text that may begin a key waits for the next connection."""
    async with faulty(*[f"ok+cut@{at}%" for at in (35, 30, 30, 30)]) as bench:
        result = await bench.call(kept_route(bench, key=key), told=(told := Kept()))
        assert result.completion.text == told.text == OK


async def test_what_was_held_back_is_shown_when_the_answer_is_not_read_on() -> None:
    for at in range(40, 70, 2):
        async with faulty(f"ok+cut@{at}%", "status-404", "status-404", "ok") as bench:
            result = await bench.call(kept_route(bench, key="lost-and-found", max_attempts=1), told=(told := Kept()))
            assert result.incomplete is not None
            assert result.completion.text == told.text


# ── in another process ───────────────────────────────────────────────────────────────────────────────────────


async def begun(bench: Bench, route: Route) -> ResumableAnswer:
    """An answer that was asked for and left alone."""
    told = Kept()
    task = asyncio.create_task(bench.call(route, told=told))
    await told.heard.wait()
    task.cancel()
    await asyncio.wait([task])
    answer_id = next(fact[1] for fact in told.facts if fact[0] == "kept")
    return ResumableAnswer("faulty", route.model, answer_id)


async def reattached(bench: Bench, kept: ResumableAnswer, route: Route, told: Told) -> CallResult | None:
    return await Caller().reattach(kept, ASK, [route], listener=told)


@pytest.mark.parametrize("model", ["ok", "text-and-tools"])
async def test_another_process_reads_a_kept_answer_from_its_beginning(model: str) -> None:
    wanted = await whole_answer(model)
    async with faulty(f"{model}+stall@60%", f"{model}+cut@40%") as bench:
        route = kept_route(bench, model)
        result = await reattached(bench, await begun(bench, route), route, told := Kept())
        assert result is not None
        assert result.completion.body == wanted.completion.body
        assert told.text == wanted.completion.text
        assert result.usage == wanted.usage
        assert posts(bench.server) == 1
        assert queries(bench.server)[0] == "stream=true"


async def test_an_answer_that_has_expired_is_lost_to_another_process_too() -> None:
    async with faulty("ok+stall@60%") as bench:
        route = kept_route(bench)
        kept = await begun(bench, route)
        bench.server.kept.forget()
        assert await reattached(bench, kept, route, told := Kept()) is None
        assert told.names() == ["started", "lost"]


async def test_a_route_that_is_gone_or_keeps_nothing_reads_nothing() -> None:
    async with faulty() as bench:
        kept = ResumableAnswer("faulty", "ok", "resp_1")
        assert await reattached(bench, kept, bench.route("responses"), Kept()) is None
        assert await reattached(bench, kept, kept_route(bench, "another"), Kept()) is None
        assert bench.server.requests == []


# ── providers with a queue, failures and ids of their own ────────────────────────────────────────────────────


def sse(number: int, kind: str, **fields: Any) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode({"type": kind, "sequence_number": number, **fields})


def response(status: str, **fields: Any) -> JsonObject:
    return {"id": "resp_q", "object": "response", "status": status, "model": "m", "output": [], **fields}


ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}


@asynccontextmanager
async def scripted_api(post: list[bytes] | JsonObject, gets: list[Any]) -> AsyncGenerator[tuple[str, list[str]], None]:
    """A provider that answers a POST with these events, and each GET with the next of these: events, a body, a
    status."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(f"{request.method} {request.rel_url}")
        if request.path.endswith("/cancel"):
            return web.json_response(response("cancelled"))
        reply = post if request.method == "POST" else gets.pop(0)
        if isinstance(reply, int):
            return web.json_response({"error": {"message": "no"}}, status=reply)
        if isinstance(reply, dict):
            return web.json_response(reply)
        return web.Response(body=b"".join(reply), content_type="text/event-stream")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", seen
    finally:
        await runner.cleanup()


async def asked(url: str, told: Told, **policy: Any) -> CallResult:
    async with faulty() as bench:
        provider = bench.provider("responses", reattach=True, base_url=url)
        route = Route(provider, "m", CallPolicy(**{**SOON, "max_attempts": 1, **policy}))
        return await bench.call(route, request=ModelRequest("m", ASK.messages), told=told)


async def test_an_answer_in_the_providers_queue_is_waited_for() -> None:
    queued = [
        sse(0, "response.created", response=response("queued")),
        sse(1, "response.queued", response=response("queued")),
    ]
    ending = [
        sse(2, "response.in_progress", response=response("in_progress")),
        sse(3, "response.completed", response=response("completed", output=[ITEM])),
    ]
    async with scripted_api(queued, [[], [], [], ending]) as (url, seen):
        result = await asked(url, told := Kept())
        assert result.completion.text == told.text == "Done."
        assert seen == ["POST /v1/responses", *["GET /v1/responses/resp_q?stream=true&starting_after=1"] * 4]


async def test_a_provider_that_gives_no_stream_of_a_kept_answer_is_polled() -> None:
    polls = [response("queued"), response("in_progress"), response("completed", output=[ITEM])]
    async with scripted_api(response("queued"), list(polls)) as (url, seen):
        result = await asked(url, told := Kept())
        assert result.completion.text == told.text == "Done."
        assert len(seen) == 4


async def test_an_answer_that_is_never_ready_is_given_up_after_so_many_polls() -> None:
    """It was asked for until the total deadline, which by default there is none of."""
    async with scripted_api(response("in_progress"), [response("in_progress")] * 200) as (url, seen):
        with pytest.raises(Retryable, match="has not finished the answer"):
            await asked(url, Kept())
        assert len([each for each in seen if each.startswith("GET")]) == MAX_POLLS - 1  # the POST brought one


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_an_answer_that_the_provider_ended_is_not_read_on(end: str) -> None:
    error = {"code": "server_error", "message": "broken"} if end == "failed" else None
    events = [
        sse(0, "response.created", response=response("in_progress")),
        sse(1, f"response.{end}", response=response(end, error=error)),
    ]
    async with scripted_api(events, []) as (url, seen):
        with pytest.raises(Retryable):
            await asked(url, Kept())
        assert seen == ["POST /v1/responses"]


async def test_an_answer_that_ended_while_nobody_read_is_over() -> None:
    opening = [sse(0, "response.created", response=response("in_progress"))]
    failed = response("failed", error={"code": "server_error", "message": "broken"})
    async with scripted_api(opening, [failed]) as (url, seen):
        with pytest.raises(Retryable, match="broken"):
            await asked(url, told := Kept())
        assert told.names() == ["started", "kept", "lost", "discarded"]
        assert len(seen) == 2


async def test_an_error_of_the_connection_alone_is_read_on_after() -> None:
    """Its number is the connection's own: the event of that number is still to come."""
    opening = [
        sse(0, "response.created", response=response("in_progress")),
        sse(1, "error", code="x", message="restart"),
    ]
    ending = [sse(1, "response.completed", response=response("completed", output=[ITEM]))]
    async with scripted_api(opening, [ending]) as (url, seen):
        result = await asked(url, told := Kept())
        assert result.completion.text == told.text == "Done."
        assert seen[1] == "GET /v1/responses/resp_q?stream=true&starting_after=0"


@pytest.mark.parametrize("answer_id", ["../models", "a/b", "", "x" * 300, "resp_1?x=1"])
async def test_an_id_that_could_name_another_address_is_not_used(answer_id: str) -> None:
    opening = [sse(0, "response.created", response={**response("in_progress"), "id": answer_id})]
    async with scripted_api(opening, []) as (url, seen):
        with pytest.raises(Retryable):
            await asked(url, told := Kept())
        assert "kept" not in told.names()
        assert seen == ["POST /v1/responses"]
