"""What a tool must be able to do, and what it may know: import it from `ports`, which has every port."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from tailrace.events import AnyEvent
from tailrace.messages import FileChange, JsonObject, ToolFile, ToolSpec

EffectKind = Literal["none", "command", "write", "external"]


class Effect(msgspec.Struct, frozen=True):
    """What a call would do, so that the user can be asked first. `text` is exactly what would run or change, in full:
    the approval shows it and is bound to it. `directory` is where it would happen, relative to the working directory;
    the approval shows that and is bound to it too."""

    kind: EffectKind = "none"
    text: str = ""
    directory: str = "."
    shell: str = "bash"  # that reads the text of a command: "sh" may read it otherwise
    whole: str = ""  # what the approval is bound to beside `text`, where that shows a part of a long change


class ToolOutcome(msgspec.Struct, frozen=True):
    """`output` is what the model reads, `files` what the user gets beside it, `change` what the user is shown of a file
    that was written. A tool that failed is an outcome, not an exception."""

    output: str
    ok: bool = True
    files: tuple[ToolFile, ...] = ()
    change: FileChange | None = None


class ToolContext(Protocol):
    """What a tool may know of the run that calls it."""

    @property
    def directory(self) -> Path:
        """The working directory; file tools stay inside it and the allowed roots."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """Further directories that the user has allowed."""

    def progress(self, text: str) -> None:
        """A progress line while the tool runs: shown to live viewers, never stored."""

    def ask(self, question: str, /) -> Awaitable[bool]:
        """Whether a person says yes, in the middle of the call. Takes the way of every approval."""


class Budget(NamedTuple):
    """What a run may still use; None where there is no limit."""

    turns: int
    tokens: int | None = None
    usd: float | None = None


@runtime_checkable
class CallContext(ToolContext, Protocol):
    """The same, for a tool that begins a run of its own."""

    @property
    def call_index(self) -> int:
        """Which of the run's calls this is, counted from 0."""

    def record(self, event: AnyEvent) -> None:
        """Adds it to the log of the run that calls."""

    def budget(self) -> Budget:
        """This call's share of what the run may still use: calls side by side have equal shares of tokens and money."""

    def is_stopped(self) -> bool:
        """Whether the run was stopped, where the call is cancelled: else another process goes on with it."""


class Tool(Protocol):
    """A function that a model may call. Cancelling `run` ends every process that it started."""

    @property
    def spec(self) -> ToolSpec:
        """As it is offered to the model."""

    @property
    def repeatable(self) -> bool:
        """Running it twice does no more than running it once: after a crash it may run again."""

    @property
    def parallel(self) -> bool:
        """It may run beside other tools of the same answer."""

    def invalid(self, args: JsonObject) -> str:
        """Why these arguments violate the spec's schema, for the model to read; empty when they are valid."""

    def preview(self, args: JsonObject) -> str:
        """One short line for people."""

    def effect(self, args: JsonObject) -> Effect:
        """What this call would do. Raises nothing: invalid arguments have no effect."""

    async def run(self, args: JsonObject, context: ToolContext) -> ToolOutcome:
        """Executes the call. `args` are valid by the spec's schema. Any exception but `CancelledError` is reported to
        the model as a failure."""


@runtime_checkable
class FileTool(Tool, Protocol):
    """A tool that changes one file, and can say beforehand how."""

    async def change_of(self, args: JsonObject, context: ToolContext) -> FileChange | ToolOutcome:
        """What `run` would change now; the outcome of a call that would fail."""
