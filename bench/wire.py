"""Decoding a burst of provider bytes to typed deltas and the final body, against the official SDKs and a bare minimum.

All rivals get the same bytes in one piece, in turns within one run, and the best of each counts: ratios are the result.
The bare minimum splits at blank lines and decodes each event into the smallest typed struct that holds its text, and
does nothing else: no line ends but LF, no errors, no body, no exactness.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import httpx2
import httpx_sse
import msgspec
import openai
from anthropic.types import RawMessageStreamEvent
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from bench.table import Table
from tailrace.config.quirks import NONE
from tailrace.messages import Dialect
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.sse import SseDecoder

CHUNKS = 2_000
TURNS = 15
SDK_TURNS = 3
WORDS = [" the", " stream", " żółw", ' "quoted"', " and", "\n", " tail", "race", " 🐢", " of"]
Run = Callable[[], object]


def words(count: int) -> list[str]:
    return [WORDS[i % len(WORDS)] for i in range(count)]


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ── the bytes ────────────────────────────────────────────────────────────────────────────────────────────────


def chat_stream(count: int, *, obfuscated: bool = False, growing: str = "content") -> bytes:
    head = {"id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG", "object": "chat.completion.chunk", "created": 1741570283,
            "model": "gpt-4o-mini-2024-07-18"}  # fmt: skip

    def chunk(delta: object, finish: str | None = None, i: int = 0) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        padding = {"obfuscation": format(i * 7919 % 99991, "x")} if obfuscated else {}
        return f"data: {compact({**head, 'choices': [choice], **padding})}\n\n"

    parts = [chunk({"role": "assistant", "content": ""})]
    parts += [chunk({growing: word}, i=i) for i, word in enumerate(words(count))]
    parts.append(chunk({}, "stop"))
    usage = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": count + 9}
    parts.append(f"data: {compact({**head, 'choices': [], 'usage': usage})}\n\n")
    return ("".join(parts) + "data: [DONE]\n\n").encode()


def responses_stream(count: int) -> bytes:
    item: dict[str, Any] = {"id": "msg_67ccd2bf17f0819081ff3bb2cf6508e6", "type": "message", "status": "in_progress",
                            "role": "assistant", "content": []}  # fmt: skip
    part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    response: dict[str, Any] = {
        "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "object": "response", "created_at": 1741476542,
        "status": "in_progress", "model": "gpt-4.1-2025-04-14", "output": [], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    text = "".join(words(count))
    whole = {**part, "text": text}
    done = {**item, "status": "completed", "content": [whole]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 9, "output_tokens": count, "total_tokens": count + 9, **details}
    ended = {**response, "status": "completed", "output": [done], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **where, "part": part},
        *({"type": "response.output_text.delta", **where, "delta": word, "logprobs": []} for word in words(count)),
        {"type": "response.output_text.done", **where, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **where, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": ended},
    ]
    return "".join(
        f"event: {event['type']}\ndata: {compact({**event, 'sequence_number': i})}\n\n"
        for i, event in enumerate(events)
    ).encode()


def anthropic_stream(count: int) -> bytes:
    message: dict[str, Any] = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "content": [],
        "model": "claude-sonnet-4-5-20250929", "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
            for word in words(count)
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": count}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return "".join(f"event: {event['type']}\ndata: {compact(event)}\n\n" for event in events).encode()


# ── the bare minimum ─────────────────────────────────────────────────────────────────────────────────────────


class _ChatDelta(msgspec.Struct):
    content: str | None = None


class _ChatChoice(msgspec.Struct):
    delta: _ChatDelta


class _ChatChunk(msgspec.Struct):
    choices: list[_ChatChoice]


class _ResponsesEvent(msgspec.Struct):
    type: str
    delta: str = ""


class _AnthropicDelta(msgspec.Struct):
    text: str = ""


class _AnthropicEvent(msgspec.Struct):
    type: str
    delta: _AnthropicDelta | None = None


BARE: dict[Dialect, tuple[type[msgspec.Struct], bytes]] = {
    "chat": (_ChatChunk, b"data: "),
    "responses": (_ResponsesEvent, b"\ndata: "),
    "anthropic": (_AnthropicEvent, b"\ndata: "),
}


def bare(dialect: Dialect, raw: bytes) -> Run:
    kind, before = BARE[dialect]
    decode = msgspec.json.Decoder(kind).decode
    skip = len(before)
    body = raw.removesuffix(b"data: [DONE]\n\n").removesuffix(b"\n\n")

    def run() -> list[Any]:
        if dialect == "chat":
            return [decode(block[skip:]) for block in body.split(b"\n\n")]
        return [decode(block[block.index(before) + skip :]) for block in body.split(b"\n\n")]

    return run


# ── the rivals ───────────────────────────────────────────────────────────────────────────────────────────────


def _plain_response(raw: bytes) -> httpx.Response:
    """For httpx-sse, which stands on httpx; the official SDKs stand on its successor."""
    request = httpx.Request("POST", "http://127.0.0.1/")
    return httpx.Response(200, content=raw, headers={"content-type": "text/event-stream"}, request=request)


def _response(raw: bytes) -> httpx2.Response:
    request = httpx2.Request("POST", "http://127.0.0.1/")
    return httpx2.Response(200, content=raw, headers={"content-type": "text/event-stream"}, request=request)


def sdk(dialect: Dialect, raw: bytes) -> Run:
    """The official client's own stream over the same bytes: its typed events, the text joined."""
    oai = openai.OpenAI(api_key="none", base_url="http://127.0.0.1/")

    def chat() -> str:
        stream = openai.Stream[ChatCompletionChunk](cast_to=ChatCompletionChunk, response=_response(raw), client=oai)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    def responses() -> str:
        kind: Any = ResponseStreamEvent
        stream = openai.Stream[Any](cast_to=kind, response=_response(raw), client=oai)
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")

    def messages() -> str:
        kind: Any = RawMessageStreamEvent
        client = anthropic.Anthropic(api_key="none", base_url="http://127.0.0.1/")
        stream = anthropic.Stream[Any](cast_to=kind, response=_response(raw), client=client)
        return "".join(event.delta.text for event in stream if event.type == "content_block_delta")

    runs: dict[Dialect, Run] = {"chat": chat, "responses": responses, "anthropic": messages}
    return runs[dialect]


def chat_sdk_with_body(raw: bytes) -> Run:
    """The same with the SDK's own accumulator: what gives a final body there."""
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1/")

    def run() -> object:
        state = ChatCompletionStreamState()
        for chunk in openai.Stream(cast_to=ChatCompletionChunk, response=_response(raw), client=client):
            state.handle_chunk(chunk)
        return state.get_final_completion()

    return run


def ours(dialect: Dialect, raw: bytes) -> Run:
    def run() -> object:
        decoder = DIALECTS[dialect].decoder(NONE)
        deltas = decoder.feed(raw) + decoder.close()
        assert decoder.complete
        return deltas, decoder.rebuilt_body()

    return run


def ours_live(dialect: Dialect, raw: bytes) -> Run:
    """One event per read, as a live stream brings them."""
    reads = [block + b"\n\n" for block in raw.split(b"\n\n") if block]

    def run() -> object:
        decoder = DIALECTS[dialect].decoder(NONE)
        deltas = [delta for read in reads for delta in decoder.feed(read)]
        decoder.close()
        return deltas, decoder.rebuilt_body()

    return run


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Rival:
    name: str
    run: Run
    turns: int = TURNS
    best_s: float = float("inf")


def race(rivals: list[Rival]) -> dict[str, float]:
    """Seconds of the best turn of each; they take turns, so that a noisy neighbour hurts all alike."""
    for turn in range(TURNS):
        for rival in rivals:
            if turn < rival.turns:
                start = time.perf_counter()
                rival.run()
                rival.best_s = min(rival.best_s, time.perf_counter() - start)
    return {rival.name: rival.best_s for rival in rivals}


def burst(dialect: Dialect, title: str, raw: bytes, *extra: Rival) -> Table:
    events = raw.count(b"\n\n")
    seconds = race([
        Rival("tailrace: deltas and body", ours(dialect, raw)),
        Rival("tailrace: one event per read", ours_live(dialect, raw)),
        Rival("bare minimum", bare(dialect, raw)),
        Rival("official SDK: events", sdk(dialect, raw), SDK_TURNS),
        *extra,
    ])  # fmt: skip
    table = Table(
        f"{title}: {events:,} events of {len(raw) // events} bytes",
        "",
        "events/s",
        "µs/event",
        "× SDK's rate",
        "× bare time",
    )
    for name, best in seconds.items():
        rate = seconds["official SDK: events"] / best
        table.row(name, events / best, best / events * 1e6, rate, best / seconds["bare minimum"])
    return table


def framing(raw: bytes) -> Table:
    events = raw.count(b"\n\n")
    seconds = race([
        Rival("tailrace.wire.sse", lambda: SseDecoder().feed(raw)),
        Rival("httpx-sse", lambda: list(httpx_sse.EventSource(_plain_response(raw)).iter_sse()), SDK_TURNS),
    ])  # fmt: skip
    table = Table("server-sent events alone", "", "events/s", "× httpx-sse")
    for name, best in seconds.items():
        table.row(name, events / best, seconds["httpx-sse"] / best)
    return table


STREAMS: dict[Dialect, Callable[[int], bytes]] = {
    "chat": chat_stream,
    "responses": responses_stream,
    "anthropic": anthropic_stream,
}


def flatness() -> Table:
    """What an answer costs beyond one without a token, by token. Small answers are decoded often, so that every size
    sees as many tokens."""
    sizes = (10, 100, 1_000, 10_000, 100_000)
    table = Table(
        "µs per token by the length of the answer, one event per read; and what an empty answer costs in µs",
        "", *(f"{n:,}" for n in sizes), "empty",
    )  # fmt: skip
    for dialect, stream in STREAMS.items():
        rivals = [Rival(str(size), _often(ours_live(dialect, stream(size)), _repeats(size)), 7) for size in (0, *sizes)]
        seconds = {int(name): best / _repeats(int(name)) for name, best in race(rivals).items()}
        table.row(dialect, *((seconds[n] - seconds[0]) / n * 1e6 for n in sizes), seconds[0] * 1e6)
    return table


def _repeats(size: int) -> int:
    return max(1, 20_000 // max(size, 10))


def _often(run: Run, times: int) -> Run:
    def many() -> None:
        for _ in range(times):
            run()

    return many


def main() -> list[Table]:
    chat = chat_stream(CHUNKS)
    with_body = Rival("official SDK: events and body", chat_sdk_with_body(chat), SDK_TURNS)
    tables = [
        burst("chat", "chat", chat, with_body),
        burst("chat", "chat with obfuscation", chat_stream(CHUNKS, obfuscated=True)),
        burst("responses", "responses", responses_stream(CHUNKS)),
        burst("anthropic", "anthropic", anthropic_stream(CHUNKS)),
    ]
    return [*tables, framing(chat), flatness()]
