"""`tailrace chat`: one question, or a conversation in the terminal.

Owns what is asked and where the answer goes: the answer alone to stdout, as it comes or whole at the end, all else to
stderr. Knows nothing of providers; a call is made by `Caller` on the routes that the config names.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from tailrace.cli._routes import chosen, default_model, open_routes
from tailrace.cli.main import DONE, INCOMPLETE, USAGE, complain
from tailrace.config import Config
from tailrace.errors import ConfigError, TailraceError
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    RunStatus,
    UsageRecorded,
    entry_to_json,
)
from tailrace.messages import AnyDelta, Message, ModelRequest, ReasoningDelta, RefusalDelta, TextDelta, assistant, user
from tailrace.providers.call import Attempt, Caller, CallResult, Silent

if TYPE_CHECKING:
    from tailrace.providers.attempt import Route

PROMPT: Final = "> "
STOPPED: Final = {"length": "the answer ran into the limit of tokens", "filter": "a content filter stopped the answer"}
# What may move the cursor, recolour the screen or reach the clipboard never gets to a terminal (J122).
_CONTROLS: Final = dict.fromkeys(i for i in (*range(0x20), *range(0x7F, 0xA0)) if chr(i) not in "\n\t")

Show = Callable[[Entry], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-q", metavar="QUESTION", help="ask this and end; without it, and with a pipe, ask what it says"
    )
    parser.add_argument("--provider", help="whom to ask: local, openai, anthropic, openrouter, … or one of the config")
    parser.add_argument("--model", help="the model's name there")
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show the answer as it comes, or at the end",
    )
    parser.add_argument("--json", action="store_true", help="print the events of the run, one a line")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 2 nothing was asked, 3 the answer was cut. Raises `TailraceError` and `KeyboardInterrupt`."""
    question: str | None = args.q
    if question is None and not sys.stdin.isatty():
        question = sys.stdin.buffer.read().decode(errors="replace")
    if question is not None and not question.strip():
        complain('nothing was asked: tailrace chat -q "…", or a question on stdin')
        return USAGE
    if args.provider and not args.model and default_model(config, args.provider) is None:
        complain(f"which model of {args.provider}? name it with --model")
        return USAGE
    choice = chosen(config, args.provider, args.model)
    show = as_json if args.json else as_text(streamed=_streams(config, args.stream))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        stack = AsyncExitStack()
        try:
            chat = Chat(runner.run(stack.enter_async_context(open_routes(config, choice))), show)
            if question is not None:
                return runner.run(chat.ask(question.strip()))
            _say(f"{choice.name} ({choice.provider}). Ctrl-C interrupts an answer, Ctrl-D leaves.\n")
            return _converse(runner, chat)
        finally:
            runner.run(stack.aclose())


def _converse(runner: asyncio.Runner, chat: Chat) -> int:
    while True:
        _say(PROMPT)
        try:
            line = input()
        except EOFError:
            _say("\n")
            return DONE
        except KeyboardInterrupt:
            _say("\n")
            continue
        if not line.strip():
            continue
        try:
            runner.run(chat.ask(line))
        except ConfigError:
            raise  # nothing that is asked next can go better
        except TailraceError as exc:
            complain(str(exc))
        except KeyboardInterrupt:
            _say("\ninterrupted\n")


class Chat:
    """A conversation: the history, and one call at a time."""

    def __init__(self, routes: Sequence[Route], show: Show) -> None:
        self._routes = routes
        self._show = show
        self._caller = Caller()
        self._history: tuple[Message, ...] = ()

    async def ask(self, question: str) -> int:
        """The exit code. An answer that was interrupted joins the history as far as it came; a question that
        brought no word of an answer does not. Raises `TailraceError`."""
        asked = (*self._history, user(question))
        turn = _Turn(self._show, self._routes[0].model)
        try:
            result = await self._caller.complete(ModelRequest("", asked), self._routes, listener=turn)
        except TailraceError as exc:
            turn.fail(exc)
            raise
        except asyncio.CancelledError:
            turn.interrupt()
            if turn.text:
                self._history = (*asked, assistant(turn.text))
            raise
        self._history = (*asked, result.completion.message)
        return turn.finish(result)


class _Turn(Silent):
    """One question's events, numbered, handed on as they happen."""

    def __init__(self, show: Show, model: str) -> None:
        self._show = show
        self._seq = 0
        self._attempt = 1
        self._pieces: list[str] = []
        self._emit(RunStarted("call", model, at=time.time()))

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._attempt = number
        self._emit(AttemptStarted(provider, model))

    def deltas(self, deltas: list[AnyDelta]) -> None:
        for delta in deltas:
            match delta:
                case TextDelta(text, 0) | RefusalDelta(text, 0) if text:
                    self._pieces.append(text)
                    self._emit(MessageChunk(text))
                case ReasoningDelta(text, 0) if text:
                    self._emit(ReasoningChunk(text))
                case _:
                    pass

    def attempt_ended(self, attempt: Attempt) -> None:
        self._emit(UsageRecorded(attempt.usage, attempt.provider, attempt.model))

    def attempt_discarded(self, number: int, reason: str) -> None:
        self._attempt = number
        self._emit(AttemptDiscarded(reason))

    def stalled(self, provider: str, silent_s: float) -> None:
        text = f"⚠️ No response from provider for {silent_s:.0f}s … Reconnecting…"
        self._emit(GatewayNotice("stalled", text, {"provider": provider}))

    def finish(self, result: CallResult) -> int:
        """0, or 3 where the answer is not whole: it broke off for good, or the model was stopped."""
        completion = result.completion
        output = completion.text + (completion.refusal or "")  # a refusal is what the user gets to read
        if output and not self._pieces:  # it came whole
            self._emit(MessageChunk(output))
        failure = None
        if result.incomplete is not None:
            failure = RunFailure(result.incomplete.error.kind, str(result.incomplete.error))
        elif completion.stop in STOPPED:
            failure = RunFailure(completion.stop, STOPPED[completion.stop])
        self._emit(MessageStop(final=True))
        status: RunStatus = "incomplete" if failure else "completed"
        self._emit(RunFinished(status, output, result.usage, failure, at=time.time()))
        return INCOMPLETE if failure else DONE

    def fail(self, error: TailraceError) -> None:
        self._emit(MessageStop(final=True))
        failure = RunFailure(getattr(error, "kind", "permanent"), str(error))
        self._emit(RunFinished("failed", self.text, error=failure, at=time.time()))

    def interrupt(self) -> None:
        self._emit(MessageStop(final=True))
        self._emit(RunFinished("stopped", self.text, at=time.time()))

    def _emit(self, event: AnyEvent) -> None:
        self._seq += 1
        self._show(Entry(self._seq, event, self._attempt))


def as_json(entry: Entry) -> None:
    sys.stdout.write(entry_to_json(entry).decode() + "\n")
    sys.stdout.flush()


def as_text(*, streamed: bool) -> Show:
    """Shows the answer alone on stdout; the bytes are the same, streamed or not."""
    table = _CONTROLS if sys.stdout.isatty() else {}

    def show(entry: Entry) -> None:
        match entry.event:
            case MessageChunk(text) if streamed:
                sys.stdout.write(text.translate(table))
                sys.stdout.flush()
            case RunFinished(status, output):
                shown = "" if streamed else output.translate(table)
                sys.stdout.write(shown if output.endswith("\n") or not output else f"{shown}\n")
                sys.stdout.flush()
                if status == "incomplete" and entry.event.error is not None:
                    _say(f"incomplete: {entry.event.error.message}\n")
            case GatewayNotice(_, text):
                _say(f"{text}\n")
            case _:
                pass

    return show


def _streams(config: Config, asked: bool | None) -> bool:
    """As configured. Without any config file nobody has switched it off, and a terminal is there to be written to."""
    if asked is None and config.streaming.cli is None and config.streaming_default is None:
        return config.streaming.enabled or not (config.home / "config.yaml").exists()
    return config.streams("cli", asked)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
