"""The first half of the recovery ladder, over real sockets: what becomes of an answer that broke off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from providers.faulty_calls import ASK, DIALECTS, Told, faulty
from tailrace.config.sections import CallPolicy
from tailrace.errors import PeerError, Permanent, ProviderError, Rejected, Retryable, StreamCut
from tailrace.messages import AnyDelta, Dialect, ToolCallDelta
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call import Caller
from tailrace.providers.call_listener import Verdict
from tailrace.providers.http.quirks import CONTINUE
from tailrace.providers.retry.continuation import MARK
from tailrace.testing.provider import Reply, call, reply, scenario
from tailrace.testing.scripted import Cut, ScriptedProvider
from tailrace.testing.scripted.reply import pieces_of

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
AGAIN: Any = {"backoff_s": 0.001}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_nothing_shown_is_retried_in_silence(dialect: Dialect) -> None:
    async with faulty("reasoning+cut@40%", "tools+cut@60%", "ok") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Told()))
        assert result.completion.text == told.text == OK
        assert MARK not in result.completion.body
        assert [fact for fact in told.facts if fact != ("deltas",)] == [
            *(("started", 1, "faulty"), ("discarded", 1), ("started", 2, "faulty"), ("discarded", 2)),
            ("started", 3, "faulty"),
        ]
        assert all("mill" not in str(request.json()) for request in bench.server.requests)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("then", ["the rest", "everything again", "the last words again"])
async def test_E63_E64_text_that_was_shown_is_gone_on_from(dialect: Dialect, then: str) -> None:
    async with faulty("ok+cut@60%") as bench:
        route = bench.route(dialect, **AGAIN)
        shown = (await bench.call(bench.route(dialect, max_attempts=1))).completion.text
        assert OK.startswith(shown)
        assert 5 < len(shown) < len(OK)
        rest = {"the rest": len(shown.rstrip()), "everything again": 0, "the last words again": len(shown) - 25}
        bench.server.extend("ok+cut@60%", reply(OK[max(0, rest[then]) :]))
        result = await bench.call(route, told=(told := Told()))
        assert result.completion.text == told.text == OK
        assert result.incomplete is None
        assert result.completion.body[MARK] == {"continued": True, "shown_characters": len(shown)}
        assert [fact[0] for fact in told.facts] == ["started", "deltas", "started", "deltas"]  # one seamless message


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_continuation_is_asked_for_by_instruction_or_by_prefill(dialect: Dialect) -> None:
    async with faulty("ok+cut@60%", "ok", "ok+cut@60%", "ok") as bench:
        await bench.call(bench.route(dialect, **AGAIN))
        provider = bench.provider(dialect, quirks=("prefill",))
        await bench.call(Route(provider, "ok", CallPolicy(backoff_s=0.001)))
        by_instruction, by_prefill = (bench.server.requests[n].json() for n in (1, 3))
        key = "input" if dialect == "responses" else "messages"
        assert CONTINUE in str(by_instruction[key][-1])
        assert by_instruction[key][-1]["role"] == "user"
        if dialect != "responses":  # which has no prefill: its encoder asks in words of its own
            assert by_prefill[key][-1]["role"] == "assistant"
            assert "The mill" in str(by_prefill[key][-1])


async def test_a_continuation_may_come_from_another_provider_in_another_dialect() -> None:
    async with faulty("ok+cut@60%", "ok") as bench:
        result = await bench.call(
            bench.route("chat", "first", max_attempts=1), bench.route("anthropic", "second"), told=(told := Told())
        )
        assert (result.completion.text, told.text, result.completion.dialect) == (OK, OK, "anthropic")
        assert result.tried == ("first", "second")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_continuation_that_is_cut_too_is_gone_on_from(dialect: Dialect) -> None:
    async with faulty("ok+cut@50%", "ok+cut@80%", "ok") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Told()))
        assert result.completion.text == told.text == OK


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("second", range(1, 8))
async def test_E63_a_second_cut_within_the_overlap_repeats_nothing(dialect: Dialect, second: int) -> None:
    first, rest = "Brook 5 feeds mill 41. Brook 6 feeds mill 42.", " Brook 7 feeds mill 43."
    again = reply(" Brook 6 feeds mill 42." + rest)
    script: list[Cut | Reply] = [Cut(reply(first + rest), after=len(pieces_of(first))), Cut(again, after=second), again]
    route = Route(ScriptedProvider(script, dialect=dialect), "scripted", CallPolicy(**AGAIN))
    result = await Caller().complete(ASK, [route], listener=(told := Told()))
    assert result.completion.text == told.text == first + rest
    assert len(result.attempts) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("then", ["ok+json", "ok+no-streaming"])
async def test_a_continuation_that_comes_whole_shows_the_rest(dialect: Dialect, then: str) -> None:
    async with faulty("ok+cut@60%", then) as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Told()))
        assert result.completion.text == told.text == OK


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_B34_B38_a_call_open_at_the_cut_is_made_anew(dialect: Dialect) -> None:
    async with faulty("text-and-tools+cut@70%", "text-and-tools") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Told()))
        assert result.completion.text == told.text == "Let me look that up."
        assert [call.name for call in result.completion.tool_calls] == ["get_weather", "get_time"]
        assert all(call.parsed() is not None for call in result.completion.tool_calls)
        asked = str(bench.server.requests[1].json())
        assert "Let me look" in asked
        assert "call_" not in asked.replace("tool_call", "")  # no half call in what the model is shown


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("reply_name", ["text-and-tools", "parallel"])
async def test_B34_B38_an_open_call_is_named_when_attempts_are_exhausted(dialect: Dialect, reply_name: str) -> None:
    async with faulty() as bench:
        result = await bench.call(bench.route(dialect, model=f"{reply_name}+cut@75%", **AGAIN), told=(told := Told()))
        assert result.incomplete is not None
        assert result.incomplete.open_calls[0] == "get_weather"
        assert isinstance(result.incomplete.error, StreamCut)
        assert result.completion.tool_calls == ()
        assert result.completion.text == told.text == ("Let me look that up." if "text" in reply_name else "")
        assert any(isinstance(delta, ToolCallDelta) for delta in told.seen)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_B38_a_call_is_still_open_when_later_attempts_do_not_get_to_it(dialect: Dialect) -> None:
    async with faulty("text-and-tools+cut@75%", "reasoning+cut@45%", "status-500") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN))
        assert result.incomplete is not None
        assert result.incomplete.open_calls[0] == "get_weather"
        assert result.completion.text == "Let me look that up."


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_alone_is_kept_without_a_word_when_attempts_are_exhausted(dialect: Dialect) -> None:
    async with faulty() as bench:
        result = await bench.call(bench.route(dialect, model="ok+cut@60%", **AGAIN), told=(told := Told()))
        assert result.incomplete is not None
        assert result.incomplete.open_calls == ()
        assert len(result.attempts) == 3
        assert result.completion.text == told.text
        assert OK.startswith(told.text)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_restart_withdraws_what_was_shown_and_gives_one_providers_one_answer(dialect: Dialect) -> None:
    async with faulty("text-and-tools+cut@60%", "ok") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Told("restart")))
        assert result.completion.text == OK
        assert MARK not in result.completion.body
        assert [fact[0] for fact in told.facts] == ["started", "deltas", "discarded", "started", "deltas"]
        assert bench.server.requests[0].body == bench.server.requests[1].body

        bench.server.extend(*["text-and-tools+cut@60%"] * 3)
        with pytest.raises(Retryable):
            await bench.call(bench.route(dialect, **AGAIN), told=Told("restart"))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_keep_leaves_the_text_and_asks_nobody_else(dialect: Dialect) -> None:
    async with faulty("ok+cut@60%") as bench:
        result = await bench.call(bench.route(dialect), told=(told := Told("keep")))
        assert result.incomplete is not None
        assert result.completion.text == told.text
        assert len(bench.server.requests) == 1


async def test_several_alternatives_at_once_are_kept_rather_than_repeated() -> None:
    async with faulty("ok+cut@60%", "ok") as bench:
        request = msgspec.structs.replace(ASK, extra={"n": 2})
        result = await bench.call(bench.route(**AGAIN), request=request)
        assert result.incomplete is not None
        assert len(bench.server.requests) == 1


async def test_the_verdict_may_look_at_what_was_shown() -> None:
    seen: list[str] = []

    class Deciding(Told):
        def verdict(self, error: ProviderError) -> Verdict:
            seen.append(self.text)
            self.seen.clear()
            return "restart" if seen[-1].startswith("<think>") else "continue"

    async with faulty("think-tags+cut@50%", "ok+cut@60%", "ok") as bench:
        result = await bench.call(bench.route(**AGAIN), told=(told := Deciding()))
        assert result.completion.text == OK
        assert (seen[0].startswith("<think>"), OK.startswith(seen[1])) == (True, True)
        assert ("discarded", 1) in told.facts
        assert ("discarded", 2) not in told.facts


class NotWanted(Exception):
    """What a listener stops a call with."""


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_listener_stops_the_call_in_the_middle_of_an_answer(dialect: Dialect) -> None:
    class Stopping(Told):
        def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
            super().deltas(deltas)
            return StopCall(NotWanted())

    async with faulty("ok", "ok") as bench:
        with pytest.raises(NotWanted):
            await bench.call(bench.route(dialect, **AGAIN), told=(told := Stopping()))
        assert told.facts == [("started", 1, "faulty"), ("deltas",)]
        assert [(attempt.interrupted, attempt.error) for attempt in told.attempts] == [(True, None)]
        assert len(bench.server.requests) == 1


@pytest.mark.parametrize("then", ["ok", "ok+json", "ok+no-streaming"])
async def test_a_listener_stops_the_call_at_the_last_piece_of_a_continuation(then: str) -> None:
    """Also where that piece was held back at the seam until the answer ended, or came whole."""

    class StoppingLater(Told):
        def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
            super().deltas(deltas)
            is_second = [fact for fact in self.facts if fact[0] == "started"][1:]
            return StopCall(NotWanted()) if is_second else None

    shown, held = "Brook 5 feeds mill 41. Brook 6 feeds mill 42.", reply(" Brook 6")
    request = msgspec.structs.replace(ASK, prefill=shown)
    answer = msgspec.structs.replace(scenario(then), reply=held)
    async with faulty("status-500", answer, answer) as bench:
        with pytest.raises(NotWanted):
            await bench.call(bench.route(**AGAIN), request=request, told=(told := StoppingLater()))
        assert told.text == " Brook 6"
        assert [attempt.interrupted for attempt in told.attempts] == [False, True]


@pytest.mark.parametrize("fault", ["ok+cut@60%", "status-500"])
async def test_a_listener_stops_the_call_after_an_attempt_that_failed(fault: str) -> None:
    async with faulty(fault, "ok") as bench:
        with pytest.raises(NotWanted):
            await bench.call(bench.route(**AGAIN), told=(told := Told(StopCall(NotWanted()))))
        assert [attempt.error is None for attempt in told.attempts] == [False]
        assert ("discarded", 1) not in told.facts
        assert len(bench.server.requests) == 1


async def test_a_permanent_error_after_text_keeps_the_text() -> None:
    async with faulty("ok+error-invalid") as bench:
        result = await bench.call(bench.route())
        assert result.incomplete is not None
        assert isinstance(result.incomplete.error, Permanent)
        assert OK.startswith(result.completion.text)


async def test_the_last_word_of_a_provider_after_text_is_its_error() -> None:
    """Another attempt at it would be refused again. A stand-in that only failed could still answer."""
    async with faulty("ok+cut@60%", "status-401", "ok+cut@60%", "status-401", "status-500") as bench:
        result = await bench.call(bench.route(**AGAIN))
        assert result.incomplete is not None
        assert (type(result.incomplete.error), len(result.attempts)) == (Rejected, 2)
        assert result.completion.text
        result = await bench.call(bench.route(**AGAIN), bench.route(name="stand-in", max_attempts=1))
        assert result.incomplete is not None
        assert isinstance(result.incomplete.error, Retryable)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_that_goes_on_from_a_text_is_answered_whole_and_shown_the_rest(dialect: Dialect) -> None:
    request = msgspec.structs.replace(ASK, prefill=OK[:30])
    async with faulty("status-500", "ok+cut@70%", "ok") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), request=request, told=(told := Told()))
        assert (result.completion.text, told.text) == (OK, OK[30:])
        assert all("The mill wheel turns, and" in str(sent.json()) for sent in bench.server.requests)

        bench.server.extend("status-400")
        with pytest.raises(Permanent):  # nothing was added to the text, so there is nothing to keep
            await bench.call(bench.route(dialect), request=request)


async def test_O178_an_answer_that_is_too_long_is_not_bought_again() -> None:
    """The arguments of a call are too long, or the text of a step, which starts over after any other failure."""
    written = reply(call("write_file", {"text": "a" * 5000}))
    async with faulty(written, "long", "long") as bench:
        request = msgspec.structs.replace(ASK, max_answer_bytes=1000)
        result = await bench.call(bench.route(), request=request)
        assert result.incomplete is not None
        assert result.incomplete.open_calls == ("write_file",)
        assert len(bench.server.requests) == 1
        with pytest.raises(PeerError, match="the answer exceeds 1000 bytes"):
            await bench.call(bench.route(), request=request, told=Told("restart"))
        assert len(bench.server.requests) == 2
