"""Streamed and non-streamed answers to one request are the same `Completion`, byte for byte, over a real socket."""

from __future__ import annotations

import msgspec
import pytest

from providers.faulty_calls import ASK, DIALECTS, Bench, faulty
from tailrace.messages import Completion, Dialect
from tailrace.providers.http.streamed_answer import discard
from tailrace.testing.provider import REPLIES

FRAMINGS = ("crlf", "cr", "bom", "no-space", "multi-data", "comments", "gzip", "content-length")
# Deviations of the stream alone that say the same thing in the end.
DEVIATIONS: dict[Dialect, tuple[str, ...]] = {
    "chat": (
        *("late-text+ok", "usage-each-chunk+ok", "empty-choices+ok", "index-zero+parallel", "no-index+parallel"),
        *("double-first+tools", "name-resent+tools", "id-resent+tools", "arguments-first+tools"),
    ),
    "responses": (
        *("empty-completed+ok", "no-sequence+tools", "no-item-added+ok", "no-item-added+tools"),
        *("done-differs+ok", "done-differs+parallel", "unknown-events+tools"),
    ),
    "anthropic": ("interleaved+text-and-tools", "double-start+ok", "unknown-events+tools"),
}


def encoded(completion: Completion) -> bytes:
    return msgspec.json.encode(completion, order="deterministic")


async def both_ways(bench: Bench, dialect: Dialect, streamed_as: str, told_as: str = "") -> tuple[bytes, bytes]:
    """One request, answered by a stream and by a body: the ids of both depend on the request alone."""
    provider = bench.provider(dialect)
    bench.server.extend(streamed_as, told_as or streamed_as)
    async with provider.stream(ASK) as answer:
        await answer.pump(discard)
        streamed = answer.completion()
    return encoded(streamed), encoded(await provider.complete(ASK))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_reply_is_the_same_streamed_and_not(dialect: Dialect) -> None:
    async with faulty() as bench:
        for name in REPLIES:
            streamed, whole = await both_ways(bench, dialect, name)
            assert streamed == whole, name
            assert b'"input_tokens":' in streamed, name


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_framing_says_the_same(dialect: Dialect) -> None:
    """A01, A02, A04 to A09, A12, A13, A22: however the bytes are put, also a few at a time."""
    async with faulty() as bench:
        for framing in FRAMINGS:
            for name in ("parallel", "reasoning" if framing == "multi-data" else "unicode"):
                streamed, whole = await both_ways(bench, dialect, f"{name}+{framing}+drip@13", name)
                assert streamed == whole, (name, framing)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_deviant_streams_say_the_same(dialect: Dialect) -> None:
    """A16, A21, B23, B24, B26, B27, B29, B30, B33, B40, D54, D55, D58."""
    async with faulty() as bench:
        for name in DEVIATIONS[dialect]:
            streamed, whole = await both_ways(bench, dialect, name, name.rpartition("+")[2])
            assert streamed == whole, name


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_gives_the_same_answer_whether_it_streams_or_not(dialect: Dialect) -> None:
    """The provider that refuses to stream, the one that answers in JSON and the one that streams: one completion."""
    async with faulty("text-and-tools", "text-and-tools+json", "text-and-tools+no-streaming") as bench:
        bench.server.extend("text-and-tools+no-streaming")
        results = [await bench.call(bench.route(dialect)) for _ in range(3)]
        assert len({encoded(result.completion) for result in results}) == 1
        assert [result.attempts[0].streamed for result in results] == [True, False, False]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_that_nobody_asked_for_is_read(dialect: Dialect) -> None:
    async with faulty("reasoning-tools", "reasoning-tools+sse") as bench:
        provider = bench.provider(dialect)
        plain, streamed = await provider.complete(ASK), await provider.complete(ASK)
        assert streamed.message == plain.message  # chat streams no usage unless asked for it
