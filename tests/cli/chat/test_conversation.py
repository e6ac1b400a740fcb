"""A conversation on a real store, without a terminal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tailrace.agent.session import TURN_KIND
from tailrace.app import open_app
from tailrace.cli.chat.conversation import Conversation
from tailrace.cli.chat.options import Options
from tailrace.config.load import load
from tailrace.errors import TailraceError
from tailrace.ports import NewRun
from tailrace.testing.provider import FaultyProvider, Scenario
from tailrace.testing.scripted.reply import Reply


@asynccontextmanager
async def conversation_with(home: Path, *answers: Reply | Scenario | str) -> AsyncIterator[Conversation]:
    async with FaultyProvider(script=list(answers)) as provider:
        settings = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {
                "faulty": {"dialect": "chat", "base_url": provider.openai_url},
                "local": {"model_path": "none.gguf"},  # nothing is downloaded
            },
        }
        (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        async with open_app(load({"TAILRACE_HOME": str(home)}), directory=home) as app:
            yield Conversation(app, Options())


@pytest.mark.parametrize("name", ["faulty/a b", "faulty/a\nb", "faulty/a\tb"])
async def test_a_model_name_with_blanks_is_refused(name: str, tmp_path: Path) -> None:
    async with conversation_with(tmp_path) as conversation:
        with pytest.raises(TailraceError, match="a model's name has no blanks"):
            await conversation.use_model(name)
        assert conversation.choice.name == "ok"


@pytest.mark.parametrize(
    ("typed", "asked"), [("big", "faulty/big"), ("faulty/big", "faulty/big"), ("faulty", "faulty/ok")]
)
async def test_a_model_is_named_as_the_option_names_it(typed: str, asked: str, tmp_path: Path) -> None:
    async with conversation_with(tmp_path) as conversation:
        await conversation.use_model(typed)
        assert conversation.options.model == asked


async def test_a_provider_that_is_not_there_is_refused_and_the_model_stays(tmp_path: Path) -> None:
    async with conversation_with(tmp_path) as conversation:
        with pytest.raises(TailraceError, match="no such provider; did you mean faulty"):
            await conversation.use_model("fautly/big")
        assert conversation.choice.name == "ok"


@pytest.mark.parametrize(("claims", "found"), [(1, False), (2, True)])
async def test_an_answer_that_another_process_has_taken_over_is_told(claims: int, found: bool, tmp_path: Path) -> None:
    async with conversation_with(tmp_path) as conversation:
        journal = conversation.app.journal
        turn = msgspec.to_builtins(conversation.turn("Count to ten."))
        run = await journal.create(NewRun(TURN_KIND, turn, session="ses_cut"))
        for _ in range(claims):
            await journal.claim(run.id, "another")
        left = await conversation.left_behind()
    assert (left is not None) is found
    if left is not None:
        assert (left.id, left.question, left.taken_over) == ("ses_cut", "Count to ten.", True)
