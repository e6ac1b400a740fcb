"""One model call of a turn: the request out of the history, the answer into the log while it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tailrace.agent import context
from tailrace.agent.answer_filter import MAX_ARGUMENT_CHARS, AnswerFilter
from tailrace.agent.endings import Ending, ending_of_cut, limit_warning, stall_notice
from tailrace.agent.safety.redact import STEP_CHARS, Redactor
from tailrace.agent.think_filter import DEFAULT_TAGS, split_thoughts
from tailrace.agent.turn import Turn
from tailrace.errors import EMPTY_ANSWER, ProviderError
from tailrace.events import (
    REJECTED,
    AnyEvent,
    AttemptDiscarded,
    Commentary,
    GatewayNotice,
    HistoryCompressed,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFailure,
    UsageRecorded,
)
from tailrace.messages import (
    MAX_ANSWER_BYTES,
    AnyDelta,
    Completion,
    Message,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
    user,
)
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.call_listener import AttemptOutcome, CallListener, Verdict
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.providers.recovery_log import log_without_media
from tailrace.providers.schema_words import in_words, refuses_schema
from tailrace.providers.text_only import TextOnlyModels
from tailrace.runs.delta_log import DeltaLog
from tailrace.runs.failures import failure_of, is_media_refused, is_too_long, takes_no_images
from tailrace.runs.record import RecordedFold
from tailrace.wire.token_estimate import message_tokens

_KEEP_SHARE = 0.3  # of the context: what stays untouched when the rest is summarised
_LEAST_TOO_LONG = 1000  # tokens: a shorter conversation is refused for something else, the tools that are offered say
MAX_REPAIRS = 2  # of one turn's answers
_SMALLEST_LIMIT = 4096  # tokens that every model can write: asked for more, some providers refuse


CheckAnswer = Callable[[str], Awaitable[str]]  # what is wrong with an answer's text; empty where nothing is


class ModelSettings(msgspec.Struct, frozen=True):
    """What every call of a turn has in common. `request` brings the sampling and what the client passed along."""

    routes: tuple[Route, ...]
    request: ModelRequest
    tools: tuple[ToolSpec, ...] = ()
    think_tags: tuple[str, ...] = DEFAULT_TAGS
    context_tokens: int = 128_000  # when the history has grown to most of this, it is compressed
    compress_at: float = 0.75
    check_answer: CheckAnswer | None = None  # of the last answer, the one without calls


class ModelCall:
    """Makes the model calls of one turn."""

    def __init__(
        self,
        record: RecordedFold[Turn],
        caller: Caller,
        settings: ModelSettings,
        redactor: Redactor,
        resumed: ResumableAnswer | None = None,
    ) -> None:
        """`resumed`: an earlier process asked for this answer, and its provider keeps it."""
        self._record = record
        self._caller = caller
        self._settings = settings
        self._redactor = redactor
        self._can_compress = True
        self._leaves_out_media = False  # once a provider has refused what earlier turns and tools have brought
        self._says_schema = False  # in words, once a provider has refused it
        self._sent: Sequence[Message] = ()  # with the newest request
        self._context_tokens = settings.context_tokens  # less, once a provider has found less to be too long
        self.resumed = resumed  # until it is reattached to
        self.is_stopped = False  # the turn: no process goes on with what is left unfinished

    async def answer(self, shown: str, *, budget_s: float | None) -> RunFailure | None:
        """Asks the model and records its answer. Returns why the run has failed, where it has. Refused for images and
        files of earlier turns, or for its schema, it records nothing: the call is still due, and is made without.
        Cancelled, it leaves what was shown in the log, and no message: the turn decides what becomes of it."""
        log, request = self._new_log(shown), self._request(shown)
        log.text_only = self._caller.text_only if context.has_images(request.messages) else None
        try:
            result = await log.complete(self._caller, request, self._settings.routes, budget_s=budget_s)
        except ProviderError as exc:
            sent = self._sent
            if self._leave_out_media(exc, sent, context.without_earlier_media(sent)):
                return None
            if self._settings.check_answer is not None and refuses_schema(exc, request):
                self._says_schema = True
                return None
            return self._record_failure(exc, log)
        return await self._record_answer(result, log)

    async def abandon_resumed(self) -> None:
        """The turn is stopped before it has reattached to the answer of an earlier process."""
        if self.resumed is not None:
            answer, log = self.resumed, self._new_log(self._record.fold.shown)
            await self._caller.abandon(answer, self._settings.routes, log)

    def _new_log(self, shown: str) -> _AnswerLog:
        """A resumed answer goes through the filter again: it is read from its beginning."""
        resumed, self.resumed = self.resumed, None
        before = shown.removesuffix(resumed.text) if resumed is not None else shown
        first_call = self._record.fold.call_count

        def new_filter(shown: str) -> AnswerFilter:
            return AnswerFilter(self._redactor, self._settings.think_tags, shown=shown, first_call=first_call)

        log = _AnswerLog(self._record, new_filter, before, resumed)
        log.goes_on_later = lambda: not self.is_stopped
        return log

    def _record_failure(self, error: ProviderError, log: _AnswerLog) -> RunFailure | None:
        """Nothing more will come. Text that was shown before a crash stands; without any the run has failed."""
        log.add(*log.filter.close())
        if error.code == EMPTY_ANSWER and not log.text:
            log.add(MessageRecorded(log.filter.message(""), "end"))  # the turn says that there is no answer (C46)
            return None
        ending = ending_of_cut(error, (), log.text)
        if not (text := log.text + ending.suffix):
            return failure_of(error)
        if ending.suffix:  # an answer that came whole and is too long (O178)
            log.add(MessageChunk(ending.suffix))
        log.add(MessageRecorded(log.filter.message(text), "cut"))
        return ending.failure

    async def _record_answer(self, result: CallResult, log: _AnswerLog) -> RunFailure | None:
        completion, answer = result.completion, log.filter
        events = [] if log.streamed else _events_of_whole(answer, completion)
        events += answer.close()
        calls: tuple[ToolCall, ...] = ()
        if result.incomplete is None:
            calls = with_unique_ids(completion.tool_calls, self._record.fold.call_count)
            ending = Ending("tools" if calls else completion.stop)  # calls win over the provider's reason (B36)
        else:
            ending = ending_of_cut(result.incomplete.error, result.incomplete.open_calls, log.text)
        text = log.text + "".join(event.text for event in events if isinstance(event, MessageChunk))
        if calls and not log.streamed and text:  # it came whole, before tools
            events = [event for event in events if not isinstance(event, MessageChunk)]
            events.append(Commentary(text))
        log.add(*events)
        if ending.suffix:
            log.add(MessageChunk(ending.suffix))
        parts = (text + ending.suffix, completion, calls)
        is_long = sum(len(call.arguments) for call in calls) > STEP_CHARS  # it is redacted beside the loop (O177)
        said = await asyncio.to_thread(answer.message, *parts) if is_long else answer.message(*parts)
        problem = ""
        if self._settings.check_answer is not None and ending.stop in ("end", "unknown"):
            problem = await self._settings.check_answer(said.text)
            if problem and self._record.fold.rejected < MAX_REPAIRS:
                self._reject(said, problem)
                return None
        stop_sequence = completion.stop_sequence if ending.stop == "end" else ""
        log.add(MessageRecorded(said, ending.stop, stop_sequence, ending.lost or msgspec.UNSET))
        if calls and log.streamed and text:
            log.add(MessageStop(final=False))
        return (
            RunFailure("permanent", f"the answer is not what was asked for: {problem}") if problem else ending.failure
        )

    def _reject(self, said: Message, problem: str) -> None:
        """The answer is withdrawn, and the model is told what is wrong with it: another call is due."""
        for attempt in self._record.fold.shown_attempts:
            self._record.add(AttemptDiscarded(f"it is not what was asked for: {problem}"), attempt=attempt)
        schema = msgspec.json.encode(self._settings.request.response_schema).decode()
        words = f"That is not what was asked for:\n{problem}\nAnswer again with JSON alone that satisfies {schema}"
        self._record.add(MessageRecorded(said, REJECTED), MessageRecorded(user(words)))

    def give_up(self, reason: str) -> None:
        """A budget is used up: the answer says so."""
        text = limit_warning(reason, self._record.fold.output)
        message = AnswerFilter(self._redactor).message(text.lstrip())
        self._record.add(MessageChunk(text), MessageRecorded(message, "limit"))

    def _request(self, shown: str) -> ModelRequest:
        turn, self._sent = self._record.fold, self._record.fold.messages
        request = _request_of(turn, self._sent, self._settings, shown)
        request = in_words(request) if self._says_schema else request
        if self._leaves_out_media:
            self._sent = context.without_earlier_media(turn.messages)
        elif self._takes_no_images():
            self._sent = context.without_earlier_media(turn.messages, context.IMAGES)
        else:
            return request
        return msgspec.structs.replace(request, messages=context.repaired(self._sent))

    def _takes_no_images(self) -> bool:
        """Whether every model that may be asked is known to refuse images: then those of earlier turns are left out."""
        routes = self._settings.routes
        return self._caller.text_only.holds_all((route.provider.name, route.model) for route in routes)

    def _leave_out_media(self, error: ProviderError, messages: Sequence[Message], without: Sequence[Message]) -> bool:
        """Whether to ask again `without` the images and files for which these messages were refused. Once in a turn."""
        if self._leaves_out_media or tuple(messages) == tuple(without) or not is_media_refused(failure_of(error)):
            return False
        self._leaves_out_media = True
        log_without_media()
        return True

    # ── compression ──────────────────────────────────────────────────────────────────────────────────────────

    async def compress_if_full(self, *, budget_s: float | None = None) -> bool:
        """Between calls, never in the middle of a stream: the older part of a long history becomes a summary. Where
        the model cannot make one the history stays as it is; the provider will say if it is too long. Returns whether
        the model was asked for one."""
        messages = self._record.fold.messages
        limit = self._context_tokens
        if not self._can_compress or message_tokens(messages) < limit * self._settings.compress_at:
            return False
        older, kept = context.split_for_summary(messages, keep_tokens=int(limit * _KEEP_SHARE))
        if older:
            await self._compress(older, kept, budget_s)
        return bool(older)

    async def compress_refused(self, *, budget_s: float | None = None) -> bool:
        """The provider has refused the request as too long, and may read less than `context_tokens`: the same. Where
        that would leave most of it, or no summary can be made, what tools gave is shortened; a long question stays.
        Returns whether to ask again."""
        messages = self._record.fold.messages
        tokens = message_tokens(messages)
        if tokens < _LEAST_TOO_LONG:
            return False
        keep_tokens = int(tokens * _KEEP_SHARE)
        older, kept = context.split_for_summary(messages, keep_tokens=keep_tokens)
        self._context_tokens = min(self._context_tokens, tokens)
        is_older = bool(older) and message_tokens(kept) * 2 <= tokens  # what makes it too long
        if is_older and self._can_compress and await self._compress(older, kept, budget_s):
            return True
        shorter = context.with_shorter_results(messages, keep_tokens=keep_tokens)
        if message_tokens(shorter) * 2 > tokens:
            return False
        self._record.add(
            GatewayNotice("shortened", "What a tool gave is too long for the model: it reads a part of it.")
        )
        self._record.add(HistoryCompressed(shorter))
        return True

    async def _compress(self, older: Sequence[Message], kept: Sequence[Message], budget_s: float | None) -> bool:
        """Returns whether the history is shorter now."""
        self._record.add(GatewayNotice("compressing", "Summarising the earlier conversation …"))
        try:
            summary = await self._summary_of(older, budget_s)
        except ProviderError as exc:
            self._can_compress = False  # asked again before each call, it would fail again
            notice = f"The earlier conversation could not be summarised: {exc}"
            self._record.add(GatewayNotice("compression_failed", notice))
            return False
        if summary:
            self._record.add(HistoryCompressed(context.with_summary(summary, kept)))
        return bool(summary)

    async def _summary_of(self, older: Sequence[Message], budget_s: float | None) -> str:
        """Where what tools gave makes it too long, a summary of a part of that."""
        try:
            return await self._ask_for_summary(older, budget_s)
        except ProviderError as exc:
            tokens = message_tokens(older)
            shorter = context.with_shorter_results(older, keep_tokens=int(tokens * _KEEP_SHARE))
            if not is_too_long(failure_of(exc)) or message_tokens(shorter) * 2 > tokens:
                raise
        return await self._ask_for_summary(shorter, budget_s)

    async def _ask_for_summary(self, older: Sequence[Message], budget_s: float | None) -> str:
        """A summary of text alone where the model does not take the images in it."""
        if self._takes_no_images():
            older = [context.without_media(message, context.IMAGES) for message in older]
        described = [context.without_media(message) for message in older]
        if not self._leaves_out_media:
            try:
                return await self._request_summary(older, budget_s)
            except ProviderError as exc:
                if not self._leave_out_media(exc, older, described):
                    raise
        return await self._request_summary(described, budget_s)

    async def _request_summary(self, older: Sequence[Message], budget_s: float | None) -> str:
        request = msgspec.structs.replace(
            self._settings.request,
            messages=context.summary_request(older),
            tools=(),
            tool_choice=None,
            response_schema=None,
            prefill="",
        )
        listener = _SummaryListener(self._record)
        result = await self._caller.complete(request, self._settings.routes, listener=listener, budget_s=budget_s)
        if result.incomplete is not None:
            return ""
        said = split_thoughts(result.completion.text, self._settings.think_tags).shown
        return self._redactor.redact(said).strip()


def _request_of(turn: Turn, messages: Sequence[Message], settings: ModelSettings, shown: str) -> ModelRequest:
    limit, left = settings.request.max_tokens, turn.tokens_left
    if left is not None and left < (limit or _SMALLEST_LIMIT):
        limit = left  # the turn's budget reaches into the call
    return msgspec.structs.replace(
        settings.request,
        messages=context.repaired(messages),
        tools=settings.tools,
        prefill=f"{settings.request.prefill}{shown}" if turn.is_first_answer else shown,
        max_answer_bytes=MAX_ANSWER_BYTES,
        max_tokens=limit,
        cache_prompt=True,
    )


def _events_of_whole(answer: AnswerFilter, completion: Completion) -> list[AnyEvent]:
    """An answer that was not streamed takes the same path, in one piece."""
    thoughts = [ReasoningDelta(completion.reasoning)] if completion.reasoning else []
    text = completion.text or completion.refusal or ""
    return answer.events_of([*thoughts, TextDelta(text)] if text else thoughts)


class _SummaryListener(CallListener):
    """Records what attempts cost. A summary is one model's one answer: a cut starts it over."""

    def __init__(self, record: RecordedFold[Turn]) -> None:
        self._record = record

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        if attempt.usage != Usage():
            self._record.add(UsageRecorded(attempt.usage, attempt.provider, attempt.model))

    def verdict(self, _error: ProviderError) -> Verdict:
        return "restart"


class _AnswerLog(DeltaLog):
    """Writes an answer into the turn's log while it grows. The turn's fold has its text."""

    keeps_text = False

    def __init__(
        self,
        record: RecordedFold[Turn],
        new_filter: Callable[[str], AnswerFilter],
        shown: str,
        resumed: ResumableAnswer | None = None,
    ) -> None:
        super().__init__(record.add_all, attempts=record.fold.attempt, resumed=resumed)
        self._turn = record.fold
        self._new_filter = new_filter
        self.filter = new_filter(shown)
        self.text_only: TextOnlyModels | None = None  # records what becomes of a request with an image

    @property
    def text(self) -> str:
        return self._turn.shown

    @property
    def has_text(self) -> bool:
        return self._turn.has_shown

    def start_over(self) -> None:
        self.filter = self._new_filter(self.text)

    def deltas(self, deltas: list[AnyDelta]) -> None:
        self.streamed = True
        self._add(self.filter.events_of(deltas))  # nothing is buffered

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        super().attempt_started(number, provider, model)
        self.filter.begin_attempt()

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        super().attempt_ended(attempt)
        if self.text_only is None or attempt.interrupted:
            return
        if attempt.error is None:
            self.text_only.forget((attempt.provider, attempt.model))
        elif takes_no_images(failure_of(attempt.error)):
            self.text_only.remember((attempt.provider, attempt.model))

    def attempt_discarded(self, number: int, reason: str) -> None:
        self.filter.discard_attempt()
        super().attempt_discarded(number, reason)

    def stalled(self, provider: str, silent_s: float) -> None:
        self.add(stall_notice(provider, silent_s))


def with_unique_ids(calls: Sequence[ToolCall], first: int) -> tuple[ToolCall, ...]:
    """The calls with ids that are unique in the answer: some providers send no id, or one id for all calls. Arguments
    that are too long are cut."""
    seen: set[str] = set()
    out: list[ToolCall] = []
    for offset, call in enumerate(calls):
        call_id = call.id if call.id and call.id not in seen else f"call_{first + offset}"
        seen.add(call_id)
        out.append(ToolCall(call_id, call.name, call.arguments[: MAX_ARGUMENT_CHARS + 1]))
    return tuple(out)
