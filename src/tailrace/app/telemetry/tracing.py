"""Spans by OpenTelemetry's conventions for generative AI: one per agent turn, under it one per tool that it runs and
one per attempt of a model call, also for the steps of sequences.

Imported only where there is a tracer provider: `app.tracer_provider_of` finds it. Spans say what was called, how long
it took, what it cost and what class of error ended it; never what was said, which error messages may quote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider

from tailrace import __version__
from tailrace.agent.observer import Observer
from tailrace.errors import ProviderError
from tailrace.events import RunFinished
from tailrace.messages import AnyDelta, Dialect, ModelRequest, ToolCall, Usage
from tailrace.ports import Run, Tool, ToolOutcome
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call_listener import AttemptOutcome, CallListener, CallMiddleware, ForwardingListener
from tailrace.wire.dialects import DIALECTS

AGENT_NAME: Final = "tailrace"
# Where our name for a provider is not the conventions' own.
_WELL_KNOWN: Final = {"mistral": "mistral_ai", "gemini": "gcp.gemini", "xai": "x_ai"}

Attributes = dict[str, str | int | float | bool | Sequence[str]]


def provider_name(provider: str) -> str:
    return _WELL_KNOWN.get(provider, provider)


def tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer("tailrace", __version__)


class TurnSpans(Observer):
    """`route_of` finds the model that a run names; None where there is none."""

    def __init__(self, tracer: Tracer, route_of: Callable[[str], Route | None]) -> None:
        self._tracer = tracer
        self._route_of = route_of

    @contextmanager
    def turn(self, run: Run) -> Generator[Callable[[RunFinished], None], None, None]:
        route = self._route_of(run.new.model)
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT_NAME,
            "tailrace.run.id": run.id,
        }
        if route is not None:
            attributes["gen_ai.provider.name"] = provider_name(route.provider.name)
            attributes["gen_ai.request.model"] = route.model
        if run.new.session:
            attributes["gen_ai.conversation.id"] = run.new.session
        with self._span(f"invoke_agent {AGENT_NAME}", attributes) as span:

            def ended(finished: RunFinished) -> None:
                dialect = route.provider.dialect if route is not None else None
                span.set_attributes(
                    {**usage_attributes(finished.usage, dialect), "tailrace.run.status": finished.status}
                )
                if finished.status in ("failed", "incomplete"):
                    _fail(span, finished.error.kind if finished.error is not None else finished.status)

            yield ended

    @contextmanager
    def tool(self, call: ToolCall, tool: Tool) -> Generator[Callable[[ToolOutcome], None], None, None]:
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": tool.spec.description,
        }
        if call.id:
            attributes["gen_ai.tool.call.id"] = call.id
        with self._span(f"execute_tool {call.name}", attributes) as span:

            def ended(outcome: ToolOutcome) -> None:
                if not outcome.ok:
                    _fail(span, "tool_failed")

            yield ended

    @contextmanager
    def _span(self, name: str, attributes: Attributes) -> Generator[Span, None, None]:
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as exc:  # cancellation is not an error and passes by
                _fail(span, type(exc).__name__)
                raise


def trace_attempts(tracer: Tracer) -> CallMiddleware:
    """Middleware of the caller: each attempt of a call is a span."""

    def middleware(request: ModelRequest, routes: Sequence[Route], listener: CallListener) -> CallListener:
        dialects = {route.provider.name: route.provider.dialect for route in routes}
        return _AttemptSpans(tracer, request, dialects, listener)

    return middleware


class _AttemptSpans(ForwardingListener):
    """An attempt's span is the current one while the attempt lasts, so that a traced transport finds its parent."""

    def __init__(
        self, tracer: Tracer, request: ModelRequest, dialects: Mapping[str, Dialect], inner: CallListener
    ) -> None:
        super().__init__(inner)
        self._tracer = tracer
        self._dialects = dialects
        self._asked = request_attributes(request)
        self._span: Span = trace.INVALID_SPAN
        self._began = 0.0
        self._waiting = True  # for the first piece of this attempt's answer

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        attributes: Attributes = {
            **self._asked,
            "gen_ai.provider.name": provider_name(provider),
            "gen_ai.request.model": model,
            "tailrace.attempt": number,
        }
        self._span = self._tracer.start_span(f"chat {model}", kind=SpanKind.CLIENT, attributes=attributes)
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        self._began, self._waiting = time.monotonic(), True
        self._inner.attempt_started(number, provider, model)

    def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
        if self._waiting:
            self._waiting = False
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - self._began)
        return self._inner.deltas(deltas)

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        span = self._span
        span.set_attributes(outcome_attributes(attempt, self._dialects[attempt.provider]))
        if attempt.error is not None:
            _fail(span, error_type(attempt.error))
        contexts.detach(self._token)
        span.end()
        self._inner.attempt_ended(attempt)


def request_attributes(request: ModelRequest) -> Attributes:
    """What the conventions have of a request's settings, where they are set."""
    settings = {
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.request.seed": request.seed,
        "gen_ai.request.stop_sequences": request.stop or None,
        "gen_ai.output.type": "json" if request.response_schema is not None else None,
    }
    attributes: Attributes = {"gen_ai.operation.name": "chat"}
    attributes.update((name, value) for name, value in settings.items() if value is not None)
    return attributes


def outcome_attributes(attempt: AttemptOutcome, dialect: Dialect) -> Attributes:
    attributes: Attributes = {"gen_ai.request.stream": attempt.streamed, **usage_attributes(attempt.usage, dialect)}
    if attempt.answer_id:
        attributes["gen_ai.response.id"] = attempt.answer_id
    if attempt.answer_model:
        attributes["gen_ai.response.model"] = attempt.answer_model
    if attempt.finish_reason:
        attributes["gen_ai.response.finish_reasons"] = (attempt.finish_reason,)
    return attributes


def usage_attributes(usage: Usage, dialect: Dialect | None) -> Attributes:
    """The conventions count cached tokens among the input's; Anthropic's API counts them beside it."""
    if dialect is not None:
        usage = DIALECTS[dialect].usage_with_cached(usage)
    counted = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {name: tokens for name, tokens in counted.items() if tokens}


def error_type(error: ProviderError) -> str:
    """The provider's own word for it, else the status that it sent, else the class."""
    if error.code:
        return error.code[:64]
    return str(error.status) if error.status is not None else type(error).__name__


def _fail(span: Span, kind: str) -> None:
    """No description: an error's message may quote what was said."""
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
