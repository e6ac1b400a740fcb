"""`/resume` joins a session whose run goes on elsewhere, and may end while it is joined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.cli.chat.conversation import Conversation
from tailrace.cli.chat.options import REQUESTER, Options
from tailrace.cli.chat.slash_commands import run_slash_command
from tailrace.cli.screen.input.choice_list import Choice
from tailrace.config.load import load
from tailrace.messages import user
from tailrace.ports import Run
from tailrace.testing.provider import FaultyProvider, reply

STALLED = "long+stall@10%"


class Shown:
    """A surface that remembers which runs it was given. `ends` is a run that is stopped by then."""

    def __init__(self, app: App, ends: Run | None = None) -> None:
        self._app = app
        self._ends = ends
        self.notes: list[str] = []
        self.replayed: list[str] = []
        self.watched: list[str] = []
        self.offered: list[str] = []  # to pick from; it takes the last one

    async def interrupt(self) -> bool:
        """Asked for once the session is found, before its runs are read."""
        if self._ends is not None:
            await self._app.agents.stop(self._ends.id)
            await self._app.agents.finished(self._ends.id)
        return False

    def notify(self, text: str) -> None:
        self.notes.append(text)

    async def replay(self, run: Run) -> None:
        self.replayed.append(run.id)

    async def watch(self, run: Run) -> None:
        self.watched.append(run.id)

    async def submit(self, spec: TurnSpec, *, with_question: bool = True) -> None:
        raise AssertionError(f"nothing is asked: {spec}")

    def leave(self) -> None: ...

    def clear(self) -> None: ...

    def listing(self, text: str, language: str) -> None: ...

    def copy(self, text: str) -> bool:
        return False

    def expand(self, number: int | None) -> bool:
        return False

    async def choose(self, choices: Sequence[Choice]) -> str | None:
        self.offered = [choice.label for choice in choices]
        return choices[-1].value

    def aside(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


async def resumed(home: Path, *, ends_meanwhile: bool) -> tuple[Shown, list[str]]:
    """What is shown of a session with an ended run and one that has not, and the ids of both."""
    async with FaultyProvider(script=[reply("One."), STALLED]) as provider:
        settings = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": provider.openai_url}},
        }
        (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        async with open_app(load({"TAILRACE_HOME": str(home)})) as app:
            first = await app.agents.submit(TurnSpec(user("First?"), requester=REQUESTER), session="ses_a")
            await app.agents.finished(first.id)
            second = await app.agents.submit(TurnSpec(user("Second?"), requester=REQUESTER), session="ses_a")
            await provider.request(1)
            surface = Shown(app, second if ends_meanwhile else None)
            await run_slash_command("/resume ses_a", Conversation(app, Options()), surface)
            if not ends_meanwhile:
                await app.agents.stop(second.id)
                await app.agents.finished(second.id)
    return surface, [first.id, second.id]


async def test_without_a_name_there_is_a_list_to_pick_from(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply("One."), reply("Two."), reply("Three.")]) as provider:
        settings = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"dialect": "chat", "base_url": provider.openai_url}},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        async with open_app(load({"TAILRACE_HOME": str(tmp_path)})) as app:
            for name in ("a", "b", "here"):
                run = await app.agents.submit(TurnSpec(user(f"In {name}?"), requester=REQUESTER), session=f"ses_{name}")
                await app.agents.finished(run.id)
            surface, conversation = Shown(app), Conversation(app, Options(session="ses_here"))
            await run_slash_command("/resume", conversation, surface)
    assert surface.offered == ["In b?", "In a?"]
    assert conversation.session == "ses_a"
    assert surface.notes == ["session ses_a"]
    assert len(surface.replayed) == 1


async def test_a_run_that_goes_on_is_watched_after_those_that_have_ended(tmp_path: Path) -> None:
    surface, (first, second) = await resumed(tmp_path, ends_meanwhile=False)
    assert (surface.replayed, surface.watched) == ([first], [second])
    assert surface.notes == ["session ses_a"]


async def test_a_run_that_ends_while_it_is_joined_is_shown_once(tmp_path: Path) -> None:
    surface, (first, second) = await resumed(tmp_path, ends_meanwhile=True)
    assert (surface.replayed, surface.watched) == ([first], [second])
