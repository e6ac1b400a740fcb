"""The embedded model in every dialect that its server, which nobody here wrote, offers: real tokens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from tailrace.errors import ConfigError, Rejected, StreamCut
from tailrace.messages import AnyDelta, Completion, Dialect, Image, Message, ModelRequest, Text, TextDelta, user
from tailrace.ports import AnswerStream, Provider
from tailrace.providers.http.streamed_answer import discard
from tailrace.providers.local.provider import MODEL_NAME, LocalProvider, LocalServer
from tailrace.providers.local.weights import SMOLLM2
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import Transport

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
# What the provider itself gives differently each time, or in one of the two ways only.
VOLATILE = {"id", "created", "created_at", "completed_at", "timings"}


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with open_transport() as transport:
        yield transport


@pytest.fixture
async def server(real_models: Path) -> AsyncIterator[LocalServer]:
    """One slot: a second answer begins when the first has ended or was given up."""
    server = LocalServer(real_models, slots=1)
    yield server
    await server.aclose()


def asking(text: str, max_tokens: int = 24, **fields: Any) -> ModelRequest:
    request = ModelRequest(MODEL_NAME, (user(text),), max_tokens=max_tokens, temperature=0.0)
    # Without the cache an answer does not depend on what was asked before.
    return msgspec.structs.replace(request, extra={"seed": 7, "cache_prompt": False}, **fields)


async def streamed(provider: Provider, request: ModelRequest) -> tuple[list[str], Completion]:
    pieces: list[str] = []
    async with provider.stream(request) as answer:
        await answer.pump(lambda deltas: pieces.extend(_texts(deltas)))
        return pieces, answer.completion()


def _texts(deltas: list[AnyDelta]) -> list[str]:
    return [delta.text for delta in deltas if isinstance(delta, TextDelta)]


class _TextCame(Exception):
    """Ends the reading of an answer at its first text."""


async def first_text(answer: AnswerStream) -> str:
    def take(deltas: list[AnyDelta]) -> None:
        if text := "".join(_texts(deltas)):
            raise _TextCame(text)

    with pytest.raises(_TextCame) as came:
        await answer.pump(take)
    return str(came.value)


def lasting(value: Any) -> Any:
    """The body without what differs each time."""
    match value:
        case dict():
            return {name: lasting(item) for name, item in value.items() if name not in VOLATILE}
        case list():
            return [lasting(item) for item in value]
        case _:
            return value


async def test_streamed_equals_whole_in_every_dialect(server: LocalServer, transport: Transport) -> None:
    texts = set()
    for dialect in DIALECTS:
        provider = LocalProvider(server, transport, dialect=dialect)
        request = asking("What is a river?")
        pieces, grown = await streamed(provider, request)
        whole = await provider.complete(request)
        assert len(pieces) > 10  # token by token
        assert "".join(pieces) == grown.text == whole.text
        assert grown.usage == whole.usage
        assert grown.usage.output_tokens == 24
        assert (grown.finish_reason, grown.stop, grown.model) == (whole.finish_reason, whole.stop, MODEL_NAME)
        assert lasting(grown.body) == lasting(whole.body)
        texts.add(whole.text)
    assert len(texts) == 1  # the dialects differ in words, not in what the model says


async def test_the_end_of_an_answer_is_told_from_its_limit(server: LocalServer, transport: Transport) -> None:
    provider = LocalProvider(server, transport)
    whole = await provider.complete(asking("Say hi.", 200))
    cut = await provider.complete(asking("Say hi.", 2))
    assert (whole.stop, cut.stop) == ("end", "length")
    assert whole.usage.output_tokens < 200


async def test_a_continuation_goes_on_from_the_text_before(server: LocalServer, transport: Transport) -> None:
    provider = LocalProvider(server, transport)
    _, whole = await streamed(provider, asking("What is a river?"))
    begun = whole.text[: whole.text.index(" ", 20)]
    pieces, _ = await streamed(provider, asking("What is a river?", prefill=begun))
    assert begun + "".join(pieces)[:10] == whole.text[: len(begun) + 10]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_F68_leaving_the_stream_stops_generation(
    server: LocalServer, transport: Transport, dialect: Dialect
) -> None:
    """With one slot the next answer has to wait for this one of 4,000 tokens, which would take over a minute."""
    provider = LocalProvider(server, transport, dialect=dialect)
    async with provider.stream(asking("Write a very long story.", 4000)) as answer:
        assert await first_text(answer)
    left_at = time.monotonic()
    await provider.complete(asking("Say hi.", 1))
    assert time.monotonic() - left_at < 30


async def test_F68_cancelling_a_whole_answer_stops_generation(server: LocalServer, transport: Transport) -> None:
    provider = LocalProvider(server, transport)
    await server.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await provider.complete(asking("Write a very long story.", 4000))
    left_at = time.monotonic()
    await provider.complete(asking("Say hi.", 1))
    assert time.monotonic() - left_at < 30


async def test_several_answers_grow_at_once(real_models: Path, transport: Transport) -> None:
    server = LocalServer(real_models, slots=3)
    provider = LocalProvider(server, transport)
    try:
        async with contextlib.AsyncExitStack() as stack:
            answers = [
                await stack.enter_async_context(provider.stream(asking("Tell me a story.", 400))) for _ in range(3)
            ]
            texts = await asyncio.gather(*map(first_text, answers))
        assert all(texts)
    finally:
        await server.aclose()


async def test_D48_a_crash_in_mid_answer_is_a_cut_stream_and_the_next_call_works(
    server: LocalServer, transport: Transport
) -> None:
    provider = LocalProvider(server, transport)

    async def interrupted() -> None:
        async with provider.stream(asking("Write a very long story.", 4000)) as answer:
            await first_text(answer)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGABRT)
            await answer.pump(discard)

    with pytest.raises(StreamCut, match=r"the embedded model's server died \(SIGABRT\)") as caught:
        await interrupted()
    assert caught.value.provider == "local"
    assert (await provider.complete(asking("Say hi.", 2))).usage.output_tokens == 2


async def test_a_model_it_does_not_have_is_refused(tmp_path: Path, transport: Transport) -> None:
    provider = LocalProvider(LocalServer(tmp_path), transport)
    with pytest.raises(Rejected, match=r"smollm2-135m, not gpt-5: set providers\.local\.model_path"):
        await provider.complete(msgspec.structs.replace(asking("hi"), model="gpt-5"))


async def test_a_file_of_ones_own_goes_by_any_name(real_models: Path, transport: Transport) -> None:
    server = LocalServer(Path("/nonexistent"), model_path=real_models / SMOLLM2.file_name, model_name="mine")
    try:
        answer = await LocalProvider(server, transport).complete(
            msgspec.structs.replace(asking("hi", 1), model="whatever")
        )
    finally:
        await server.aclose()
    assert answer.model == "mine"


async def test_a_prompt_past_the_context_is_refused_not_retried(real_models: Path, transport: Transport) -> None:
    server = LocalServer(real_models, slots=1, context_tokens=512)
    provider = LocalProvider(server, transport)
    try:
        with pytest.raises(
            Rejected, match=r"exceeds the available context size \(512 tokens\): ask for less"
        ) as caught:
            async with provider.stream(asking("river stone " * 600)):
                raise AssertionError("a refused request has no answer")
    finally:
        await server.aclose()
    assert caught.value.status == 400


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_the_model_cannot_read_is_refused_not_retried(
    server: LocalServer, transport: Transport, dialect: Dialect
) -> None:
    """llama.cpp calls an image a failure of its own, with status 500."""
    provider = LocalProvider(server, transport, dialect=dialect)
    seen = Message("user", (Text("What is this?"), Image(data=PIXEL, media_type="image/png")))
    request = asking("", messages=(seen,))
    with pytest.raises(Rejected, match=r"^local/smollm2-135m takes no images: it reads and writes text alone") as whole:
        await provider.complete(request)
    with pytest.raises(Rejected, match="takes no images") as streamed:
        async with provider.stream(request):
            raise AssertionError("a refused request has no answer")
    assert (whole.value.status, streamed.value.status) == (400, 400)


async def test_what_the_user_must_change_is_not_a_provider_failure(tmp_path: Path, transport: Transport) -> None:
    server = LocalServer(tmp_path, model_path=tmp_path / "missing.gguf")
    with pytest.raises(ConfigError, match=r"missing\.gguf cannot be read"):
        await LocalProvider(server, transport).complete(asking("hi"))
