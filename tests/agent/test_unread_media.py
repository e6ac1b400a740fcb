"""A conversation with images in it goes on at a model that takes text alone; over a real socket, as the provider sees
it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.turns import Note, NoteArgs, Played, Stage
from tailrace.agent.context import IMAGE_NOTE, IMAGES, without_earlier_media
from tailrace.agent.session import history_of
from tailrace.agent.turn import Turn
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.events import AnyEvent, AttemptStarted, GatewayNotice, MessageChunk, MessageRecorded, ToolOutputRecorded
from tailrace.messages import Dialect, File, Image, Message, Text, ToolCall, ToolFile, ToolResult, assistant, user
from tailrace.ports import ToolContext, ToolOutcome
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, call, reply
from tailrace.testing.scripted.failures import Failure
from tailrace.testing.scripted.request_reader import ScriptedRequest

PNG = Image(data="iVBORw==", media_type="image/png")
SEEN = [Message("user", (Text("what is this?"), PNG)), assistant("A cat.")]
UNREAD = Failure(400, "this model does not support image input", "invalid_request_error", "invalid_request_error")


class TextOnly(FaultyProvider):
    """Refuses each request with an image in it, once `failure` is there."""

    failure: Failure | None = UNREAD

    def refusal(self, request: ScriptedRequest, headers: Mapping[str, str], counting: bool) -> Failure | None:
        has_image = "iVBORw==" in str(request.body)
        return self.failure if has_image else super().refusal(request, headers, counting)

    @property
    def images(self) -> list[bool]:
        """Of each request, whether it had an image."""
        return ["iVBORw==" in str(request.json()) for request in self.requests]


@asynccontextmanager
async def text_only(directory: Path, *script: Scenario | Reply, **fields: Any) -> AsyncGenerator[Stage, None]:
    async with TextOnly(script) as server, open_transport() as transport:
        yield Stage(server, transport, directory, **fields)


def images(s: Stage) -> list[bool]:
    assert isinstance(s.server, TextOnly)
    return s.server.images


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_an_image_of_an_earlier_turn_does_not_stop_the_conversation(
    tmp_path: Path, dialect: Dialect, whole: bool
) -> None:
    """The answer is the same streamed and whole."""
    script = [Scenario(reply=reply("Hi."), instead="no-streaming" if whole else None)] * 2
    async with text_only(tmp_path, *script, dialect=dialect) as s:
        played = await s.play("And now?", SEEN)
        asked = str(s.server.requests[-1].json())
    assert (played.finished.status, played.finished.output, played.shown) == ("completed", "Hi.", "Hi.")
    assert images(s) == [True, False, False][: 3 if whole else 2]
    assert ("what is this?" in asked, IMAGE_NOTE in asked, "And now?" in asked) == (True, True, True)
    assert [event for event in played.events if isinstance(event, GatewayNotice)] == []


async def test_a_message_that_had_an_image_is_sent_as_one_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tailrace.providers")
    async with text_only(tmp_path, reply("Hi.")) as s:
        await s.play("And now?", SEEN)
        _, earlier, *_ = s.server.requests[-1].json()["messages"]
    assert earlier["content"] == f"what is this?\n{IMAGE_NOTE}"
    assert caplog.messages[-1].endswith("the model is asked again without the images and files of earlier turns")


@pytest.mark.parametrize(
    "message",
    [
        "image input is not supported - hint: provide the mmproj",
        "missing data required for image input",
        'Failed to parse messages: Unsupported content part type: "image_url"; messages = [{"role": "tool"}]',
        "qwen3-8b is not a multimodal model",
        "Model does not support images. Please use a model that does.",
    ],
)
async def test_a_server_that_calls_it_a_failure_of_its_own_is_not_tried_again_with_the_image(
    tmp_path: Path, message: str
) -> None:
    async with text_only(tmp_path, reply("Hi.")) as s:
        assert isinstance(s.server, TextOnly)
        s.server.failure = Failure(500, message, "server_error", "api_error")
        played = await s.play("And now?", SEEN)
    assert (played.finished.status, images(s)) == ("completed", [True, False])


async def play(s: Stage, question: Message, history: list[Message]) -> Played:
    run_id, runner = await s.start(history)
    return await s.played(run_id, await runner.run(question))


@pytest.mark.parametrize(("history", "asked"), [([user("Hi."), assistant("Hi.")], [True]), (SEEN, [True, True])])
async def test_an_image_in_the_question_itself_is_refused(
    tmp_path: Path, history: list[Message], asked: list[bool]
) -> None:
    """What earlier turns have brought is left out once, and the request is refused again."""
    async with text_only(tmp_path) as s:
        played = await play(s, Message("user", (Text("and this?"), PNG)), history)
    assert images(s) == asked
    assert played.finished.error is not None
    assert (played.finished.status, played.finished.error.status) == ("failed", 400)
    assert "does not support image input" in played.finished.error.message


async def test_a_refusal_that_speaks_of_no_image_is_not_asked_again(tmp_path: Path) -> None:
    async with text_only(tmp_path) as s:
        assert isinstance(s.server, TextOnly)
        s.server.failure = msgspec.structs.replace(UNREAD, message="temperature is out of range")
        played = await s.play("And now?", SEEN)
    assert (played.finished.status, images(s)) == ("failed", [True])


class _Drawing(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        await super().execute(args, context)
        return ToolOutcome("drawn", files=(ToolFile("chart.png", "image/png", b"\x89PNG"),))


async def test_an_image_of_a_tool_is_left_out_and_no_tool_runs_twice(tmp_path: Path) -> None:
    """The log has the image, and the rest of the turn is not refused again."""
    script = [reply(call("note", {"text": "a"})), reply(call("note", {"text": "b"})), reply("Done.")]
    async with text_only(tmp_path, *script, note=_Drawing()) as s:
        played = await s.play("Draw.")
        given = [m["content"] for m in s.server.requests[-1].json()["messages"] if m["role"] == "tool"]
    assert (played.finished.status, played.finished.output) == ("completed", "Done.")
    assert s.note.notes == ["a", "b"]
    assert images(s) == [False, True, False, False]
    assert given == [f"drawn\n{IMAGE_NOTE}"] * 2
    drawn = [event.files for event in played.events if isinstance(event, ToolOutputRecorded)]
    assert drawn == [(ToolFile("chart.png", "image/png", b"\x89PNG"),)] * 2


async def test_an_answer_that_a_crash_cut_goes_on_without_the_images(tmp_path: Path) -> None:
    async with text_only(tmp_path, reply(" and whole.")) as s:
        run_id, _ = await s.start()
        lease = await s.journal.claim(run_id, "me")
        facts: list[AnyEvent] = [
            MessageRecorded(user("And now?")),
            AttemptStarted("faulty", "ok"),
            MessageChunk("Half"),
        ]
        s.journal.append(lease, facts, attempt=1)
        await s.journal.commit(lease)
        turn = Turn(SEEN)
        turn.replay(await s.journal.read(run_id))
        played = await s.played(run_id, await s.runner(lease, turn).run())
    assert (played.finished.status, played.shown) == ("completed", "Half and whole.")
    assert images(s) == [True, False]


async def test_a_conversation_with_images_is_summarised_as_text(tmp_path: Path) -> None:
    history = [*SEEN, user("a" * 4000), assistant("b" * 4000)]
    async with text_only(tmp_path, reply("They saw a cat."), reply("Hi."), context_tokens=2000) as s:
        played = await s.play("And now?", history)
        asked = str(s.server.requests[-1].json())
    assert played.finished.output == "Hi."
    assert images(s) == [True, False, False]
    assert "They saw a cat." in asked


CONFIG = """
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001}}}}
"""


async def test_a_session_goes_on_after_its_model_was_changed(tmp_path: Path) -> None:
    """The one model sees images, the next one does not: only a question with an image is refused, and none after it."""
    async with TextOnly([reply("A cat."), reply("A pet."), reply("Yes.")]) as server:
        server.failure = None
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:

            async def ask(question: Message) -> tuple[str, str]:
                run = await app.agents.submit(TurnSpec(question), session="s")
                end = await app.agents.finished(run.id)
                return end.status, end.output

            assert await ask(SEEN[0]) == ("completed", "A cat.")
            server.failure = UNREAD
            assert await ask(user("What is a cat?")) == ("completed", "A pet.")
            assert await ask(Message("user", (Text("And this?"), PNG))) == ("failed", "")
            assert await ask(user("Are you there?")) == ("completed", "Yes.")
            history = await history_of(app.journal, "s")
    assert [message.text for message in history if message.role == "user"] == [
        "what is this?",
        "What is a cat?",
        "Are you there?",
    ]
    assert PNG in history[0].parts, "the log has it: a model that sees images is shown it again"


async def test_a_model_that_takes_no_images_is_not_asked_with_those_of_earlier_turns_again(tmp_path: Path) -> None:
    """Until it reads one: an image in the question itself is always sent."""
    async with TextOnly([reply(text) for text in ("A cat.", "A pet.", "Yes.", "A dog.", "Both.")]) as server:
        server.failure = None
        (tmp_path / "config.yaml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:

            async def ask(question: Message) -> list[bool]:
                before = len(server.images)
                run = await app.agents.submit(TurnSpec(question), session="s")
                await app.agents.finished(run.id)
                return server.images[before:]

            assert await ask(SEEN[0]) == [True]
            server.failure = UNREAD
            assert await ask(user("What is a cat?")) == [True, False]
            assert await ask(user("Are you there?")) == [False]
            assert await ask(Message("user", (Text("And this?"), PNG))) == [True], "it may have learnt to see"
            server.failure = None
            assert await ask(Message("user", (Text("And this?"), PNG))) == [True]
            assert await ask(user("Which of the two?")) == [True]
            last = str(server.requests[-1].json())
    assert (last.count("iVBORw=="), IMAGE_NOTE in last) == (2, False)


def test_what_stands_where_images_alone_were() -> None:
    pdf = File(data="aGk=", media_type="application/pdf", name="bill.pdf")
    drawn = Message("tool", (ToolResult("c1", (Text("drawn"), PNG, pdf)), ToolResult("c2", (PNG,))))
    messages = [Message("user", (PNG, pdf)), drawn, user("And now?")]
    first = Message("user", (Text(IMAGE_NOTE), pdf))
    noted = Message("tool", (ToolResult("c1", (Text("drawn"), Text(IMAGE_NOTE), pdf)), ToolResult("c2", IMAGE_NOTE)))
    assert without_earlier_media(messages, IMAGES) == (first, noted, user("And now?"))


def test_what_stands_where_media_were() -> None:
    pdf = File(data="aGk=", media_type="application/pdf", name="bill.pdf")
    drawn = Message("tool", (ToolResult("c1", (Text("drawn"), PNG)),))
    asked = Message("assistant", (ToolCall("c1", "note"),))
    newest = Message("user", (Text("and this?"), PNG))
    messages = [Message("user", (PNG, pdf, File(data="aGk="))), asked, drawn, newest, asked, drawn]
    bill = "[the file bill.pdf was here; this model cannot read it]"
    noted = Message("tool", (ToolResult("c1", f"drawn\n{IMAGE_NOTE}"),))
    first = user(f"{IMAGE_NOTE}\n{bill}\n[a file was here; this model cannot read it]")
    assert without_earlier_media(messages) == (first, asked, noted, newest, asked, noted)
    assert without_earlier_media([user("Hi."), assistant("Hi.")]) == (user("Hi."), assistant("Hi."))
