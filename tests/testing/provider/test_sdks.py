"""The official SDKs against the provider: they must understand every reply, and hear the same streamed or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from tailrace.testing.provider import REPLIES, FaultyProvider, call, reply, say, think

# What the SDKs' accumulators add on their own; the services send none of it.
SDK_FIELDS = {"parsed", "parsed_arguments", "stop_details", "audio", "function_call"}
TYPED = sorted(set(REPLIES) - {"surrogate", "long"})  # half a surrogate pair is no text; the long reply is `ok` again


@asynccontextmanager
async def openai_client(server: FaultyProvider, retries: int = 0) -> AsyncIterator[openai.AsyncOpenAI]:
    web = openai.DefaultAsyncHttpxClient(verify=False)  # plain HTTP: what it saves is loading the CA bundle
    async with openai.AsyncOpenAI(
        base_url=server.openai_url, api_key="any", max_retries=retries, http_client=web
    ) as client:
        yield client


@asynccontextmanager
async def anthropic_client(server: FaultyProvider) -> AsyncIterator[anthropic.AsyncAnthropic]:
    web = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0, http_client=web) as client:
        yield client


def as_sent(value: Any, *, in_call: bool = False) -> Any:
    """The value without what the SDK added: its own fields, and null for fields that never came."""
    if isinstance(value, list):
        return [as_sent(item, in_call=in_call) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: as_sent(item, in_call=key == "tool_calls")
        for key, item in value.items()
        if item is not None and key not in SDK_FIELDS and not (in_call and key == "index")
    }


@pytest.mark.parametrize("name", TYPED)
async def test_chat_adds_up_to_the_plain_answer(name: str) -> None:
    ask: Any = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
    async with FaultyProvider() as server, openai_client(server) as client:
        plain = (await client.chat.completions.create(**ask)).to_dict()
        state, finishes = openai.lib.streaming.chat.ChatCompletionStreamState(), []
        asked_usage: Any = {"include_usage": True}
        async for chunk in await client.chat.completions.create(**ask, stream=True, stream_options=asked_usage):
            for choice in chunk.choices:
                if choice.finish_reason:
                    finishes.append(choice.finish_reason)
                    choice.finish_reason = "stop"  # the accumulator raises at what cut the answer short
            state.handle_chunk(chunk)
    heard = as_sent(state.get_final_completion().to_dict())
    heard["choices"][0]["finish_reason"] = "".join(finishes)
    assert heard == as_sent(plain)


def is_done(event: Any) -> bool:
    return str(event.type).endswith(("text.done", "refusal.done", "arguments.done"))


def final_text(event: Any) -> str:
    field = {"response.refusal.done": "refusal", "response.function_call_arguments.done": "arguments"}
    return str(getattr(event, field.get(event.type, "text")))


def said(events: list[Any]) -> dict[tuple[str, int], str]:
    """Each part's deltas, joined."""
    parts = {where(event): "" for event in events if is_done(event)}
    for event in events:
        if event.type.endswith(".delta"):
            parts[where(event)] += event.delta
    return parts


def where(event: Any) -> tuple[str, int]:
    return event.item_id, getattr(event, "content_index", 0)


@pytest.mark.parametrize("name", TYPED)
async def test_responses_add_up_to_the_plain_answer(name: str) -> None:
    ask: Any = {"model": name, "input": "hi", "temperature": 0.5, "instructions": "be brief"}
    async with FaultyProvider() as server, openai_client(server) as client:
        plain = (await client.responses.create(**ask)).to_dict()
        events = [event async for event in await client.responses.create(**ask, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response.to_dict() == plain
    # and without the last event, which tells it all: from the items as they were done, and from the deltas
    assert [event.item.to_dict() for event in events if event.type == "response.output_item.done"] == plain["output"]
    assert said(events) == {where(event): final_text(event) for event in events if is_done(event)}
    assert (plain["temperature"], plain["instructions"]) == (0.5, "be brief")


@pytest.mark.parametrize("name", TYPED)
async def test_messages_add_up_to_the_plain_answer(name: str) -> None:
    ask: Any = {"model": name, "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
    async with FaultyProvider() as server, anthropic_client(server) as client:
        plain = await client.messages.create(**ask)
        async with client.messages.stream(**ask) as stream:
            heard = await stream.get_final_message()
    assert as_sent(heard.to_dict()) == as_sent(plain.to_dict())


async def test_a_reply_of_ones_own_is_heard_in_every_dialect() -> None:
    own = reply(think("hm", "sig"), say("Yes. "), call("look", {"at": ["a", 1]}, id="call_own"))
    async with (
        FaultyProvider(script=[own] * 3) as server,
        openai_client(server) as ours,
        anthropic_client(server) as theirs,
    ):
        chat = await ours.chat.completions.create(model="any", messages=[])
        response = await ours.responses.create(model="any", input="hi")
        message = await theirs.messages.create(model="any", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    tool_call = (chat.choices[0].message.tool_calls or [])[0]
    assert tool_call.type == "function"
    assert (tool_call.id, tool_call.function.name, tool_call.function.arguments) == (
        "call_own",
        "look",
        '{"at":["a",1]}',
    )
    assert chat.choices[0].message.content == "Yes. "
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output_text == "Yes. "
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"


async def test_several_choices_come_interleaved() -> None:
    async with FaultyProvider() as server, openai_client(server) as client:
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(model="ok", messages=[], n=2, stream=True)
            if chunk.choices
        ]
        plain = await client.chat.completions.create(model="ok", messages=[], n=2)
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in plain.choices]
    assert [chunk.choices[0].index for chunk in chunks[:4]] == [0, 1, 0, 1]


async def test_usage_is_streamed_to_those_who_ask_for_it() -> None:
    async with FaultyProvider() as server, openai_client(server) as client:
        silent = [chunk async for chunk in await client.chat.completions.create(model="ok", messages=[], stream=True)]
        asked = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="ok", messages=[], stream=True, stream_options={"include_usage": True}
            )
        ]
    assert all(chunk.usage is None for chunk in silent)
    assert asked[-1].choices == []
    assert asked[-1].usage is not None


async def test_both_families_can_list_the_models() -> None:
    async with FaultyProvider() as server, openai_client(server) as ours, anthropic_client(server) as theirs:
        assert [model.id async for model in ours.models.list()] == list(REPLIES)
        assert [model.id async for model in theirs.models.list()] == list(REPLIES)


OPENAI_ERRORS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
}


@pytest.mark.parametrize(("status", "error"), OPENAI_ERRORS.items())
async def test_openai_reads_every_status(status: int, error: type[openai.APIStatusError]) -> None:
    async with FaultyProvider() as server, openai_client(server) as client:
        with pytest.raises(error) as raised:
            await client.chat.completions.create(model=f"status-{status}-after-7", messages=[])
    assert raised.value.status_code == status
    assert raised.value.response.headers["retry-after"] == "7"
    assert raised.value.body is not None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529])
async def test_anthropic_reads_every_status(status: int) -> None:
    async with FaultyProvider() as server, anthropic_client(server) as client:
        with pytest.raises(anthropic.APIStatusError) as raised:
            await client.messages.create(
                model=f"status-{status}", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            )
    assert raised.value.status_code == status
    assert raised.value.body["error"]["type"].endswith(("_error", "_large"))  # type: ignore[index]


async def test_D51_an_error_in_mid_stream_is_one_to_each_sdk() -> None:
    async with FaultyProvider() as server, openai_client(server) as ours, anthropic_client(server) as theirs:
        with pytest.raises(openai.APIError, match="Overloaded"):
            async for _ in await ours.chat.completions.create(model="error-overloaded", messages=[], stream=True):
                pass
        with pytest.raises(openai.APIError, match="Overloaded"):
            async for _ in await ours.responses.create(model="error-overloaded", input="hi", stream=True):
                pass
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            async with theirs.messages.stream(
                model="error-overloaded", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            ) as stream:
                await stream.get_final_message()


async def test_a_script_is_used_up_request_by_request_and_a_retry_succeeds() -> None:
    async with (
        FaultyProvider(script=["status-500-after-0", "drop", "ok"]) as server,
        openai_client(server, 2) as client,
    ):
        answer = await client.chat.completions.create(model="whatever", messages=[])
    assert answer.choices[0].message.content == REPLIES["ok"].reply.text
    assert [request.scenario for request in server.requests] == ["status-500-after-0", "drop", "ok"]
    assert [request.json()["model"] for request in server.requests] == ["whatever"] * 3


async def test_an_unknown_model_is_told_what_there_is() -> None:
    async with FaultyProvider() as server, openai_client(server) as client:
        with pytest.raises(openai.NotFoundError, match="--list"):
            await client.chat.completions.create(model="gpt-unheard-of", messages=[])
        with pytest.raises(openai.NotFoundError, match="only in: anthropic"):
            await client.chat.completions.create(model="interleaved", messages=[])
