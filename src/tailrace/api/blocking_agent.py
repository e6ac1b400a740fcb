"""The agent for code that wants a blocking call and a callback: its loop runs in a thread of its own. Takes the
constructor arguments of Hermes' `AIAgent` too."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, closing, suppress
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from tailrace.api.async_agent import Agent
from tailrace.api.callback_text import CallbackText, ForCallback, TextBeforeTools, ToolBegan, ToolEnded
from tailrace.api.run_companion import Answer, OnApproval
from tailrace.api.run_stream import RunResult
from tailrace.app.models import chosen
from tailrace.config.load import Config, load
from tailrace.config.presets import PRESETS
from tailrace.config.sections import ProviderSettings
from tailrace.errors import ConfigError, TailraceError
from tailrace.events import ApprovalAsked, Entry, RunFailure
from tailrace.messages import JsonObject, ModelRequest, Usage
from tailrace.wire.dialects import CHAT

T = TypeVar("T")
_LAST_WORDS_S = 5.0  # how long an interrupted conversation waits for its turn to end
StreamCallback = Callable[[str | None], object]
CUSTOM: Final = "custom"  # the provider's name where only a `base_url` is given
KEY_VARIABLE: Final = "AIAGENT_API_KEY"  # holds the `api_key` in this agent's config alone
_PREFERENCES: Final = {  # OpenRouter's `provider` object
    "providers_allowed": "only",
    "providers_ignored": "ignore",
    "providers_order": "order",
    "provider_sort": "sort",
}
_CALLBACKS: Final = "interim_assistant_callback, stream_callback, stream_delta_callback, tool_progress_callback"
_OWN: Final = ("provider", "base_url", "api_key", "max_iterations", "quiet_mode", *_PREFERENCES)


def agent_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for `Agent`. Nothing is printed in any case, so `quiet_mode` changes nothing. Raises `TypeError` for
    an argument without a counterpart, `ConfigError` for a mistake of set-up."""
    known = [*inspect.signature(Agent).parameters, *_OWN]
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"AIAgent() has no argument {unknown[0]!r}; it has: {', '.join(sorted(known))}, {_CALLBACKS}")
    if "max_iterations" in options and "max_turns" in options:
        raise TypeError("AIAgent() takes max_turns or max_iterations, which mean the same, not both")
    given = {"builtin": None} | {name: value for name, value in options.items() if name not in _OWN}
    if "max_iterations" in options:
        given["max_turns"] = options["max_iterations"]
    asked = {name: options[name] for name in _OWN if options.get(name) and name not in ("max_iterations", "quiet_mode")}
    if asked:
        config: Config = given.get("config") or load(os.environ)
        provider, model = asked.get("provider") or (CUSTOM if "base_url" in asked else None), given.get("model") or None
        config = _with_provider(config, provider or chosen(config, None, model).provider, asked)
        choice = chosen(config, provider, model)
        given |= {"model": f"{choice.provider}/{choice.name}", "config": config}
    return given


def _with_provider(config: Config, name: str, asked: Mapping[str, Any]) -> Config:
    """The config with these settings of the provider. A key that the config has for it goes to no other address."""
    if set(asked) == {"provider"}:
        return config
    settings = config.providers.get(name, ProviderSettings(dialect=None if name in PRESETS else "chat"))
    environment = config.environment
    if base_url := asked.get("base_url"):
        settings = msgspec.structs.replace(settings, base_url=base_url, key_env=None)
    if api_key := asked.get("api_key"):
        environment = environment.with_kept({KEY_VARIABLE: api_key})
        settings = msgspec.structs.replace(settings, key_env=KEY_VARIABLE)
    if preferences := {field: asked[argument] for argument, field in _PREFERENCES.items() if argument in asked}:
        before: JsonObject = settings.extra_body.get("provider") or {}
        extra_body = {**settings.extra_body, "provider": {**before, **preferences}}
        settings = msgspec.structs.replace(settings, extra_body=extra_body)
    return msgspec.structs.replace(config, providers={**config.providers, name: settings}, environment=environment)


class _Question(NamedTuple):
    """An approval that the loop asks the caller's thread for."""

    asked: ApprovalAsked
    answer: concurrent.futures.Future[Answer]


class AIAgent:
    """The blocking facade, for code that has Hermes' shape: it takes the options of `Agent` and Hermes' arguments
    (`agent_options`). `stream_callback(text)` is called for each piece of the answer as it comes and
    `stream_callback(None)` at the end of each response of the model; Hermes' `stream_delta_callback` is the same.
    `tool_progress_callback("tool.started", name, preview, args)` and `("tool.completed", name, None, None, duration=…,
    is_error=…)` are called for each tool, `interim_assistant_callback(text, already_streamed=…)` for a text before
    tools. An `Exception` of a callback is ignored. `on_approval` is as in `Agent`. All may be set at any time.

    They are called in the thread that called `run_conversation`: what ends that thread there (`sys.exit()`, Ctrl-C)
    stops the turn and is raised by `run_conversation`. Usable from any thread; close it, or use it in a `with` block,
    to let go of what it has open at once. One that is forgotten lets go of it when it is collected, unless one of
    its tools is a method of the object that owns it."""

    # A misspelt name raises.
    __slots__ = (
        *("__weakref__", "_agent", "_forgotten", "_loop", "_open", "_opening", "_thread"),
        *("interim_assistant_callback", "stream_callback", "tool_progress_callback"),
    )

    def __init__(
        self,
        *,
        stream_callback: StreamCallback | None = None,
        stream_delta_callback: StreamCallback | None = None,
        tool_progress_callback: Callable[..., object] | None = None,
        interim_assistant_callback: Callable[..., object] | None = None,
        **options: Any,
    ) -> None:
        self.stream_callback = stream_callback or stream_delta_callback
        self.tool_progress_callback = tool_progress_callback
        self.interim_assistant_callback = interim_assistant_callback
        self._agent = Agent(**agent_options(options))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_and_close, args=(self._loop,), name="tailrace-agent", daemon=True)
        self._open = False
        self._opening = threading.Lock()
        self._forgotten = weakref.finalize(self, _let_go, self._agent._stack, self._loop, self._thread)
        self._forgotten.atexit = False  # the thread ends with the process

    @property
    def on_approval(self) -> OnApproval | None:
        return None if self._agent.on_approval == "wait" else self._agent.on_approval

    @on_approval.setter
    def on_approval(self, on_approval: OnApproval | None) -> None:
        self._agent.on_approval = on_approval

    def run_conversation(self, text: str) -> JsonObject:
        """One turn: `final_response`, `messages` (the conversation in OpenAI's form), `completed`, `usage`, `status`,
        `error` (why it did not complete, else None) and `not_executed` (a list of `{tool_name, command, reason, kind}`:
        what the model wanted to do and was denied, refused or lost). Raises `TailraceError` where the agent cannot be
        opened, nothing was asked, or the run was set aside."""
        self._ensure_open()
        happened: queue.SimpleQueue[Entry | _Question | None] = queue.SimpleQueue()  # None: nothing more comes
        future = asyncio.run_coroutine_threadsafe(self._converse(text, happened.put), self._loop)
        pieces = CallbackText()
        try:
            while (item := happened.get()) is not None:
                if isinstance(item, _Question):
                    self._ask(item)
                else:
                    for happening in pieces.of_entry(item):
                        with suppress(Exception):  # a caller's callback must not break the turn
                            self._call_back(happening)
            return future.result()
        except BaseException:
            if future.cancel():
                with suppress(queue.Empty):  # the turn has ended when the coroutine has
                    while happened.get(timeout=2 * _LAST_WORDS_S) is not None:
                        pass
            raise

    def interrupt(self) -> None:
        """Stops the turn under way, from a callback or another thread; `run_conversation` returns what there is."""
        if self._open:
            self._wait(self._agent.stop())

    def close(self) -> None:
        self._forgotten.detach()
        if self._open:
            self._wait(self._agent.__aexit__(None, None, None))
            self._open = False
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── in the caller's thread ───────────────────────────────────────────────────────────────────────────────

    def _ensure_open(self) -> None:
        with self._opening:
            if self._loop.is_closed():
                raise TailraceError("the agent is closed")
            if not self._open:
                if not self._thread.is_alive():
                    self._thread.start()
                self._wait(_open(self._agent))
                self._open = True

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns, which runs in the loop. A wait that is interrupted, as by Ctrl-C, cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _call_back(self, happening: ForCallback) -> None:
        match happening:
            case ToolBegan(name, preview, args) if self.tool_progress_callback is not None:
                self.tool_progress_callback("tool.started", name, preview, args)
            case ToolEnded(name, duration_s, ok) if self.tool_progress_callback is not None:
                self.tool_progress_callback("tool.completed", name, None, None, duration=duration_s, is_error=not ok)
            case TextBeforeTools(text) if self.interim_assistant_callback is not None:
                self.interim_assistant_callback(text, already_streamed=self.stream_callback is not None)
            case str() | None if self.stream_callback is not None:
                self.stream_callback(happening)
            case _:
                pass

    def _ask(self, question: _Question) -> None:
        """Answers the question, or passes on what the callback raised: the action is then denied."""
        if not question.answer.set_running_or_notify_cancel():
            return
        try:
            answer = self._answer_to(question.asked)
        except Exception as exc:  # noqa: BLE001 - the caller's code: logged, and the action is denied
            question.answer.set_exception(exc)
        else:
            question.answer.set_result(answer)

    def _answer_to(self, asked: ApprovalAsked) -> Answer:
        if self.on_approval is None:  # it was removed during the turn
            return "deny"
        given = self.on_approval(asked)
        if not inspect.isawaitable(given):
            return given
        outcome = self._wait(_outcome_of(given))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    # ── in the loop ──────────────────────────────────────────────────────────────────────────────────────────

    async def _converse(self, text: str, put: Callable[[Entry | _Question | None], None]) -> JsonObject:
        async def ask(asked: ApprovalAsked) -> Answer:
            question = _Question(asked, concurrent.futures.Future())
            put(question)
            return await asyncio.wrap_future(question.answer)

        try:
            async with self._agent.stream(text, on_approval=ask if self.on_approval is not None else None) as run:
                async for entry in run.entries:
                    put(entry)
                result = await run.result()
            return await self._as_dict(result)
        except ConfigError as exc:  # as Hermes tells it
            failed: RunResult[str] = RunResult("", "failed", Usage(), RunFailure("permanent", str(exc)))
            return await self._as_dict(failed)
        finally:
            put(None)

    async def _as_dict(self, result: RunResult[str]) -> JsonObject:
        body = CHAT.encode_request(ModelRequest("", await self._agent.messages()), stream=False)
        return {
            "final_response": result.text.rstrip(),
            "messages": body["messages"],
            "completed": result.completed,
            "usage": msgspec.to_builtins(result.usage),
            "status": result.status,
            "error": result.error.message if result.error else None,
            "not_executed": [msgspec.to_builtins(action) for action in result.not_executed],
        }


async def _open(agent: Agent) -> None:
    """Returns nothing: what is open knows the task that opened it, and by its result the agent and the callbacks of
    the agent, whose owner could then never be collected."""
    await agent.__aenter__()


def _run_and_close(loop: asyncio.AbstractEventLoop) -> None:
    with closing(loop):
        loop.run_forever()


def _let_go(stack: AsyncExitStack, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Closes what a forgotten agent has open. Waits for nothing: the collector may call it in any thread. It
    knows what is open and not the agent: a callback of the agent's may be a method of what owns it."""
    if thread.is_alive():
        closed = asyncio.run_coroutine_threadsafe(stack.aclose(), loop)
        closed.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    else:
        loop.close()


async def _outcome_of(given: Awaitable[Answer]) -> Answer | BaseException:
    """What an async callback returns or raises. What would end the loop's thread is returned for the caller's."""
    try:
        return await given
    except (SystemExit, KeyboardInterrupt) as exc:
        return exc
