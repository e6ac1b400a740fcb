"""A raw model's answer to a client of the same dialect is the provider's own, field for field (K136)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from server.dialect_api import CALL, DIALECTS
from server.v1.replaying_provider import contradicts_itself, rebuilt, replaying
from tailrace.messages import Dialect, JsonObject
from tailrace.wire.dialects import ANTHROPIC, CHAT, RESPONSES
from tailrace.wire.dialects import DIALECTS as WIRES
from tailrace.wire.responses.response_fields import echoed_fields
from tailrace.wire.served_dialect import AnswerHeader
from tailrace.wire.sse import SseDecoder
from wire.recordings import load, needs_recordings

FORMATS = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}


def told(dialect: Dialect, body: JsonObject, own: JsonObject) -> JsonObject:
    """The body as a client of the dialect gets it, without what is ours in it; `own` is the provider's."""
    header = AnswerHeader("ours", "ours", 0, WIRES[dialect], fields=echoed_fields({"store": False}), ended=0)
    whole = FORMATS[dialect].encode_body(WIRES[dialect].completion_from_body(body), header)
    ours = {"id", "model"} | {name for name in ("created", "created_at") if name not in own}
    return {name: value for name, value in whole.items() if name not in ours}


@needs_recordings
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_recorded_stream_reaches_a_client_of_its_dialect_field_for_field_K136(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Streamed and whole, in every field but the id and the model."""
    wrong: list[tuple[str, str]] = []
    tried = 0
    async with replaying(tmp_path, b"") as server:
        for recording in load(dialect):
            if (own := rebuilt(dialect, recording.raw)) is None:
                continue
            tried += 1
            server.answers[:] = [recording.raw]
            expected = told(dialect, own, own)
            status, whole = await server.whole(dialect)
            if status != 200 or told(dialect, whole, own) != expected:
                wrong.append((recording.id, "whole"))
            streamed = rebuilt(dialect, await server.streamed(dialect))
            if contradicts_itself(dialect, recording.raw):
                assert streamed is None, recording.id
            elif streamed is None or told(dialect, streamed, own) != expected:
                wrong.append((recording.id, "streamed"))
    assert not wrong
    assert tried > 50


@needs_recordings
async def test_a_stored_response_keeps_every_field_K136(tmp_path: Path) -> None:
    """As it is streamed, resumed in the middle, and read as a body afterwards."""
    tried = 0
    state = {"store", "background", "previous_response_id"}
    async with replaying(tmp_path, b"") as server:
        for recording in load("responses")[::4]:
            own = rebuilt("responses", recording.raw)
            if own is None or contradicts_itself("responses", recording.raw):
                continue
            tried += 1
            server.answers[:] = [recording.raw]
            raw = await server.streamed("responses", store=True)
            streamed = rebuilt("responses", raw)
            assert streamed is not None, recording.id
            expected, got = told("responses", own, own), told("responses", streamed, own)
            assert _without(got, state) == _without(expected, state), recording.id
            path = f"{server.url}/v1/responses/{streamed['id']}"
            async with server.session.get(path) as response:
                assert await response.json() == streamed, recording.id
            async with server.session.get(f"{path}?stream=true&starting_after=2") as response:
                assert await response.read() == b"".join(event + b"\n\n" for event in raw.split(b"\n\n")[3:-1])
    assert tried > 20


def _without(body: JsonObject, names: set[str]) -> JsonObject:
    return {name: value for name, value in body.items() if name not in names}


# ── what is mended, streamed and whole alike ─────────────────────────────────────────────────────────────────


def chat_stream(*choices: JsonObject, **fields: object) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", **fields}
    chunks = [{**head, "choices": [{"index": 0, "finish_reason": None, **choice}]} for choice in choices]
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


def named_stream(*events: JsonObject) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), msgspec.json.encode(e)) for e in events)


CALL_WITHOUT_ID = {"index": 0, "type": "function", "function": {"name": "look", "arguments": "{}"}}


async def test_calls_outweigh_stop_and_have_ids_streamed_and_whole_K137(tmp_path: Path) -> None:
    raw = chat_stream(
        {"delta": {"tool_calls": [CALL_WITHOUT_ID]}}, {"delta": {}, "finish_reason": "stop"}, service_tier="flex"
    )
    async with replaying(tmp_path, raw) as server:
        _, whole = await server.whole("chat")
        streamed = rebuilt("chat", await server.streamed("chat"))
    assert streamed is not None
    for body in (whole, streamed):
        (choice,) = body["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["role"] == "assistant"
        assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_c1_0"]
        assert (body["service_tier"], body["created"]) == ("flex", 5)


async def test_a_messages_call_has_an_id_and_its_stop_reason_K137(tmp_path: Path) -> None:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "container": {"id": "x"}}
    usage = {"input_tokens": 3, "output_tokens": 1, "server_tool_use": {"web_search_requests": 1}}
    raw = named_stream(
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "look", "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    async with replaying(tmp_path, raw) as server:
        _, whole = await server.whole("anthropic")
        streamed = rebuilt("anthropic", await server.streamed("anthropic"))
        _, chat = await server.whole("chat", "anthropic")
    assert streamed is not None
    for body in (whole, streamed):
        assert body["content"] == [{"type": "tool_use", "name": "look", "input": {}, "id": "toolu_0"}]
        assert (body["stop_reason"], body["container"]) == ("tool_use", {"id": "x"})
        assert body["usage"] == {**usage, "output_tokens": 9}
    assert chat["choices"][0]["message"]["tool_calls"][0]["id"] == "toolu_0"


RESPONSE: JsonObject = {"id": "resp_theirs", "object": "response", "created_at": 5, "model": "m", "output": []}


def called(arguments: str) -> JsonObject:
    return {"type": "function_call", "id": "fc_1", "call_id": "c_1", "name": "pay", "arguments": arguments}


def response_with_call(streamed: str, last_word: str) -> bytes:
    place = {"item_id": "fc_1", "output_index": 0}
    done = {**RESPONSE, "status": "completed", "output": [called(last_word)]}
    return named_stream(
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": called("")},
        {"type": "response.function_call_arguments.delta", **place, "delta": streamed},
        {"type": "response.function_call_arguments.done", **place, "arguments": last_word},
        {"type": "response.output_item.done", "output_index": 0, "item": called(last_word)},
        {"type": "response.completed", "response": done},
    )


@pytest.mark.parametrize("down", DIALECTS)
async def test_arguments_that_contradict_their_pieces_end_a_stream_in_an_error(tmp_path: Path, down: Dialect) -> None:
    """Whole, the last word holds (B40); the same arguments in another spacing are no contradiction."""
    async with replaying(tmp_path, response_with_call('{"sum": 1}', '{"sum": 1000}')) as server:
        raw = await server.streamed(down, "responses")
        assert rebuilt(down, raw) is None
        assert b"differs from what it streamed" in raw
        status, body = await server.whole(down, "responses")
        assert status == 200
        (call,) = WIRES[down].completion_from_body(body).tool_calls
        assert call.parsed() == {"sum": 1000}
        server.answers[:] = [response_with_call('{"sum": 1}', '{"sum":1}')]
        assert rebuilt(down, await server.streamed(down, "responses")) is not None


async def test_two_texts_of_a_response_are_two_blocks_of_a_message(tmp_path: Path) -> None:
    parts: list[JsonObject] = [{"type": "output_text", "text": text, "annotations": []} for text in ("One.", "Two.")]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": parts}
    body = {**RESPONSE, "status": "completed", "output": [item]}
    events = [*part_events(0, "One."), *part_events(1, "Two.")]
    raw = named_stream(
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *events,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": body},
    )
    async with replaying(tmp_path, raw) as server:
        _, whole = await server.whole("anthropic", "responses")
        streamed = rebuilt("anthropic", await server.streamed("anthropic", "responses"))
    assert streamed is not None
    assert [block["text"] for block in whole["content"]] == ["One.", "Two."]
    assert [block["text"] for block in streamed["content"]] == ["One.", "Two."]


def part_events(index: int, text: str) -> list[JsonObject]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": index}
    part = {"type": "output_text", "text": "", "annotations": []}
    return [
        {"type": "response.content_part.added", **place, "part": part},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text},
        {"type": "response.content_part.done", **place, "part": {**part, "text": text}},
    ]


# ── an answer that came whole, and one that broke off ────────────────────────────────────────────────────────


@needs_recordings
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_provider_that_does_not_stream_is_streamed_with_every_field(tmp_path: Path, dialect: Dialect) -> None:
    tried = 0
    async with replaying(tmp_path, b"{}") as server:
        for recording in load(dialect)[::7]:
            own = rebuilt(dialect, recording.raw)
            if own is None or contradicts_itself(dialect, recording.raw):
                continue
            tried += 1
            server.answers[:] = [msgspec.json.encode(own)]
            streamed = rebuilt(dialect, await server.streamed(dialect))
            assert streamed is not None, recording.id
            assert told(dialect, streamed, own) == told(dialect, own, own), recording.id
    assert tried > 10


CUT: dict[Dialect, list[JsonObject]] = {
    "anthropic": [
        {
            "type": "message_start",
            "message": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One, two, "}},
    ],
    "responses": [
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []},
        },
        *part_events(0, "One, two, ")[:2],
    ],
}
REST: dict[Dialect, bytes] = {
    "chat": chat_stream({"delta": {"content": "three."}}, {"delta": {}, "finish_reason": "stop"}),
    "anthropic": named_stream(
        *CUT["anthropic"][:2],
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "three."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ),
    "responses": named_stream(
        *CUT["responses"][:2],
        *part_events(0, "three."),
        {"type": "response.completed", "response": {**RESPONSE, "status": "completed"}},
    ),
}


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "stored"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_that_breaks_off_goes_on_in_one_text(tmp_path: Path, dialect: Dialect, stored: bool) -> None:
    """Relayed up to the cut, encoded anew after it: one text, one end."""
    if stored and dialect != "responses":
        pytest.skip("only responses are stored")
    if dialect == "chat":
        cut = chat_stream({"delta": {"role": "assistant", "content": "One, two, "}}).removesuffix(b"data: [DONE]\n\n")
    else:
        cut = named_stream(*CUT[dialect])
    async with replaying(tmp_path, cut, REST[dialect]) as server:
        raw = await (server.streamed(dialect, store=stored) if dialect == "responses" else server.streamed(dialect))
    streamed = rebuilt(dialect, raw)
    assert streamed is not None, raw
    completion = WIRES[dialect].completion_from_body(streamed)
    assert completion.text == "One, two, three."
    if dialect == "anthropic":
        assert [block["type"] for block in streamed["content"]] == ["text"]
    elif dialect == "responses":
        assert [item["type"] for item in streamed["output"]] == ["message"]


LONG = "".join(f"{number}, " for number in range(100))  # half of it is sent before the cut


def _texts(*texts: str, opened: bool) -> list[JsonObject]:
    """Deltas of one message, whose item and part are opened or not."""
    first = CUT["responses"][:2] if opened else CUT["responses"][:1]
    part = part_events(0, "")[:1] if opened else []
    named = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0}
    return [*first, *part, *({**named, "delta": text, "logprobs": []} for text in texts)]


@pytest.mark.parametrize("again_opened", [True, False], ids=["continued in an item", "continued in none"])
@pytest.mark.parametrize("opened", [True, False], ids=["cut in an item", "cut in none"])
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "plain"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_N172_a_text_that_was_continued_after_a_cut_is_whole_in_every_body(
    tmp_path: Path, stream: bool, stored: bool, opened: bool, again_opened: bool
) -> None:
    half = len(LONG) // 2
    rest = LONG[half - 60 :]  # a model begins a little before the cut
    whole: JsonObject = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    whole["content"] = [{"type": "output_text", "text": rest, "annotations": [], "logprobs": []}]
    end = {"type": "response.completed", "response": {**RESPONSE, "status": "completed", "output": [whole]}}
    cut = named_stream(*_texts(LONG[: half // 2], LONG[half // 2 : half], opened=opened))
    again = named_stream(*_texts(rest, opened=again_opened), end)
    async with replaying(tmp_path, cut, again) as server:
        if stream:
            raw = await server.streamed("responses", store=stored)
            body = rebuilt("responses", raw)
        else:
            status, body = await server.whole("responses", store=stored)
            assert status == 200, body
        assert body is not None
        assert WIRES["responses"].completion_from_body(body).text == LONG
        assert (body["status"], [item["type"] for item in body["output"]]) == ("completed", ["message"])
        if stored:
            async with server.session.get(f"{server.url}/v1/responses/{body['id']}") as response:
                assert (await response.json())["output"] == body["output"]


def _cut_and_continued(up: Dialect) -> tuple[bytes, bytes]:
    """Half of the long text, and an answer that goes on from a little before the cut."""
    half = len(LONG) // 2
    first, rest = LONG[:half], LONG[half - 60 :]
    if up == "chat":
        cut = chat_stream({"delta": {"content": first}}).removesuffix(b"data: [DONE]\n\n")
        return cut, chat_stream({"delta": {"content": rest}}, {"delta": {}, "finish_reason": "stop"})
    if up == "responses":
        end = {"type": "response.completed", "response": {**RESPONSE, "status": "completed"}}
        return named_stream(*_texts(first, opened=False)), named_stream(*CUT[up][:2], *part_events(0, rest), end)
    delta = {"type": "content_block_delta", "index": 0}
    said = [{**delta, "delta": {"type": "text_delta", "text": text}} for text in (first, rest)]
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    ends: list[JsonObject] = [{"type": "content_block_stop", "index": 0}, stop, {"type": "message_stop"}]
    return named_stream(CUT[up][0], said[0]), named_stream(*CUT[up][:2], said[1], *ends)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("up", DIALECTS)
@pytest.mark.parametrize("down", DIALECTS)
async def test_N172_it_is_whole_for_a_client_of_any_dialect(
    tmp_path: Path, down: Dialect, up: Dialect, stream: bool
) -> None:
    async with replaying(tmp_path, *_cut_and_continued(up)) as server:
        if stream:
            body = rebuilt(down, await server.streamed(down, up))
        else:
            _, body = await server.whole(down, up)
    assert body is not None
    assert WIRES[down].completion_from_body(body).text == LONG


@pytest.mark.parametrize("begun", [True, False], ids=["behind its text", "behind nothing"])
@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
async def test_D48_an_answer_that_breaks_off_behind_its_finish_reason_has_one_end(
    tmp_path: Path, dialect: Dialect, begun: bool
) -> None:
    """The finish reason is not sent before the provider's last event: clients read no further than that."""
    ending: JsonObject = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {}}
    if dialect == "chat":
        text: list[JsonObject] = [{"delta": {"content": "One, "}}] if begun else []
        finish: JsonObject = {"delta": {"content": "two, "} if begun else {}, "finish_reason": "length"}
        cut = chat_stream({"delta": {"role": "assistant"}}, *text, finish).removesuffix(b"data: [DONE]\n\n")
    elif begun:
        cut = named_stream(*CUT["anthropic"], {"type": "content_block_stop", "index": 0}, ending)
    else:
        cut = named_stream(CUT["anthropic"][0], ending)
    async with replaying(tmp_path, cut, REST[dialect]) as server:
        raw = await server.streamed(dialect)
    body = rebuilt(dialect, raw)
    assert body is not None, raw
    completion = WIRES[dialect].completion_from_body(body)
    assert (completion.text, completion.stop) == ("One, two, three." if begun else "three.", "end")
    assert raw.count(b'"finish_reason":"') + raw.count(b'"stop_reason":"') == 1


THOUGHTS: dict[Dialect, list[JsonObject]] = {
    "anthropic": [
        CUT["anthropic"][0],
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    ],
    "responses": [
        CUT["responses"][0],
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "reasoning", "id": "rs_1", "summary": [], "status": "in_progress"},
        },
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": "hm",
        },
    ],
}


@pytest.mark.parametrize("dialect", ["anthropic", "responses"])
async def test_an_answer_that_breaks_off_in_its_thoughts_starts_over_behind_them(
    tmp_path: Path, dialect: Dialect
) -> None:
    """What the client has seen is closed; no index of it is used again."""
    async with replaying(tmp_path, named_stream(*THOUGHTS[dialect]), REST[dialect]) as server:
        raw = await server.streamed(dialect)
    body = rebuilt(dialect, raw)
    assert body is not None, raw
    assert WIRES[dialect].completion_from_body(body).text == "three."
    events = [msgspec.json.decode(event.data) for event in SseDecoder().feed(raw)]
    begun = [e for e in events if e["type"] in ("content_block_start", "response.output_item.added")]
    ended = [e for e in events if e["type"] in ("content_block_stop", "response.output_item.done")]
    place = "index" if dialect == "anthropic" else "output_index"
    assert [event[place] for event in begun] == [event[place] for event in ended] == [0, 1]
    if dialect == "responses":
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stand_in_of_another_dialect_takes_over_in_one_text(tmp_path: Path, dialect: Dialect) -> None:
    """The client sees one message: relayed from the first provider, encoded anew from the second."""
    other: Dialect = "anthropic" if dialect == "chat" else "chat"
    if dialect == "chat":
        cut = chat_stream({"delta": {"role": "assistant", "content": "One, two, "}}).removesuffix(b"data: [DONE]\n\n")
    else:
        cut = named_stream(*CUT[dialect])
    model = {"provider": f"up-{dialect}", "name": "any", "fallbacks": [{"provider": f"up-{other}", "name": "any"}]}
    call = {**CALL, "max_attempts": 1}
    async with replaying(tmp_path, cut, REST[other], model=model, call=call) as server:
        raw = await server.streamed(dialect)
    body = rebuilt(dialect, raw)
    assert body is not None, raw
    assert WIRES[dialect].completion_from_body(body).text == "One, two, three."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "behind its text"])
async def test_K129_a_stand_in_of_another_dialect_counts_and_ignores_as_its_own_does(
    tmp_path: Path, begun: bool, stream: bool
) -> None:
    """Anthropic counts the cached tokens apart from the input, and has no `seed`."""
    delta = {"role": "assistant", **({"content": "One, two, "} if begun else {})}
    cut = chat_stream({"delta": delta}).removesuffix(b"data: [DONE]\n\n")
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 9}
    rest = REST["anthropic"].replace(b'"usage":{"output_tokens":9}', b'"usage":%b' % msgspec.json.encode(usage))
    model = {"provider": "up-chat", "name": "any", "fallbacks": [{"provider": "up-anthropic", "name": "any"}]}
    async with replaying(tmp_path, cut, rest, model=model, call={**CALL, "max_attempts": 1}) as server:
        asked = server.request("chat", seed=1, stream=stream)
        async with server.session.post(server.url + "/v1/chat/completions", json=asked) as response:
            raw = await response.read()
            named = response.headers.get("x-tailrace-ignored", "")
    body = rebuilt("chat", raw) if stream else msgspec.json.decode(raw)
    assert body is not None, raw
    assert body["usage"]["prompt_tokens"] == 43
    assert named == ("" if stream and begun else "seed")  # the head is sent with the first text


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "stored"])
async def test_B34_a_relayed_call_is_not_begun_again_by_another_attempt(tmp_path: Path, stored: bool) -> None:
    """The client may have run it by then: its stream ends in an error, and the call is in it once."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "pay", "arguments": "{}"}
    events: list[JsonObject] = [
        CUT["responses"][0],
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
    ]
    end = {"type": "response.completed", "response": {**RESPONSE, "status": "completed", "output": [call]}}
    async with replaying(tmp_path, named_stream(*events), named_stream(*events, end)) as server:
        raw = await server.streamed("responses", store=stored)
    sent = [msgspec.json.decode(event.data) for event in SseDecoder().feed(raw)]
    done = [event for event in sent if event["type"] == "response.output_item.done"]
    assert (len(done), sent[-1]["type"]) == (1, "response.failed")
