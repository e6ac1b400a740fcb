"""The scenes: what is asked, how the provider or the server fails meanwhile, and what is said about it.

A scene scripts the provider and may kill the server. It never touches the run: recovering is the runtime's part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.cli.demo.board import Board
from tailrace.cli.demo.stage import Seen, Stage
from tailrace.runs.view import RunView, changes
from tailrace.runs.view.changes import Change
from tailrace.testing.provider import Break, Offset, Scenario, call, reply

HALF = Offset(50, per_cent=True)
LIVE = (
    "A tailrace is the channel that carries the water away from a mill. In this one the water is tokens: each is "
    "written to the log, and then shown to everyone who watches: a terminal, a page, a chat."
)
STALLED = (
    "The first half of this sentence comes from one provider, which then falls silent; the second half comes from "
    "another one, which speaks another dialect, and the seam cannot be seen."
)
KILLED = (
    "While this is written the server is killed with signal 9. What was shown is on disk already. The next process "
    "finds the run, asks the model to go on after the last word, and the sentence ends as it should."
)
WRITE = call("write_file", {"path": "notes.txt", "content": "The river rises in spring.\n" * 4})
BEFORE_TOOL, AFTER_TOOL = "I write it down. ", "notes.txt is written, once."


class Scene(NamedTuple):
    """`script` is what the provider does, given the pause between tokens. `kill_at`: the server is killed when so many
    characters were shown."""

    title: str
    question: str
    opening: str
    script: Callable[[float], list[Scenario]]
    kill_at: int = 0


SCENES = (
    Scene(
        "Live",
        "What is a tailrace?",
        "Each token is committed to the log before any viewer sees it. The page shows the same run at the same moment.",
        lambda pace_s: [Scenario(reply=reply(LIVE), pace_s=pace_s)],
    ),
    Scene(
        "A provider falls silent",
        "What happens when a provider stalls?",
        "In a moment the provider stops sending, with the connection open: the worst kind of failure.",
        lambda pace_s: [
            Scenario(reply=reply(STALLED), pace_s=pace_s, broken=Break("stall", HALF)),
            Scenario(continues=STALLED, pace_s=pace_s),
        ],
    ),
    Scene(
        "A tool call breaks off",
        "Write down when the river rises.",
        "The connection is cut in the middle of the arguments of write_file. The broken call is never run.",
        lambda pace_s: [
            Scenario(reply=reply(BEFORE_TOOL, WRITE), pace_s=pace_s, broken=Break("cut", Offset(75, per_cent=True))),
            Scenario(reply=reply(WRITE), pace_s=pace_s),
            Scenario(reply=reply(AFTER_TOOL), pace_s=pace_s),
        ],
    ),
    Scene(
        "kill -9",
        "And when the server itself dies?",
        "The server is about to be killed with signal 9 in the middle of a sentence.",
        lambda pace_s: [Scenario(reply=reply(KILLED), pace_s=pace_s), Scenario(continues=KILLED, pace_s=pace_s)],
        kill_at=len(KILLED) // 2,
    ),
)


async def play(scene: Scene, stage: Stage, board: Board, *, session: str, pace_s: float) -> Seen:
    """Raises `TailraceError` where the server does not come back."""
    stage.provider.extend(*scene.script(pace_s))
    seen = await stage.ask(scene.question, session)
    board.note(scene.opening)
    killed = not scene.kill_at
    view = RunView()
    async for entry in stage.entries(seen):
        for change in view.apply(entry):
            _apply(seen, change, board)
        if not killed and len(seen.text) >= scene.kill_at:
            killed = True
            pid = await stage.kill()
            board.note(f"kill -9 {pid}: the server is gone. The viewer keeps what it has and tries again.", "✗")
            await stage.start()
            board.note("Another process has started on the same log. It finds the run and claims it.", "✓")
    seen.status, seen.output = await stage.stored(seen)
    return seen


def _apply(seen: Seen, change: Change, board: Board) -> None:
    """What a viewer does with a change, and what the demo says about it."""
    match change:
        case changes.TextGrew(text=text, ends=ends, final=final):
            seen.text += text + ("\n" if ends and not final else "")
            board.show(seen.text)
        case changes.UserNotice(text=text):
            board.note(text.removeprefix("⚠️ "), "✗")
        case changes.AttemptBegan(asked=asked):
            seen.attempts += 1
            if seen.attempts > 1:
                who = f"the provider {asked.provider}"
                board.note(f"Attempt {seen.attempts}: {who} goes on after the last word that was shown.", "✓")
        case changes.CallRuns(tool_name=name):
            board.note(f"{name}: its arguments are complete now; only a complete call is run.", "✓")
        case changes.CallEnded(tool_name=name, output=None):
            board.note(f"{name} ran once, and its output is on record before the model reads it.", "✓")
            seen.attempts = 0  # what follows is another call
        case changes.Ended():
            seen.ended = True
        case _:
            pass
