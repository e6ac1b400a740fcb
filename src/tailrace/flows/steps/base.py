"""What a step's handler is: its parameters, whether it may be repeated, and what it gets to know of its step.

A handler gets everything it needs and records nothing itself: the runner records its output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tailrace import errors
from tailrace.events import SignalReceived
from tailrace.flows.definition.spelling import did_you_mean
from tailrace.flows.language.expressions import Scope
from tailrace.flows.language.templates import has_template, resolved
from tailrace.flows.steps.step_stream import StepStream
from tailrace.messages import Dialect, JsonObject
from tailrace.providers.prices import ListPrices, Prices
from tailrace.values.validation_words import decoding_problem, validation_mistake

P = TypeVar("P", bound="Params")


class Params(msgspec.Struct, forbid_unknown_fields=True):
    """Base of a handler's parameters, templates filled in."""


@cache
def fields_of(kind: type[Params]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """By name. Cached: to evaluate type hints takes longer than to check a whole definition."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


class StepError(errors.TailraceError):
    """A step failed. `kind` says whether another try may go better; `code` is what a `retry_if` can name."""

    def __init__(
        self, message: str, *, kind: errors.ErrorKind = "permanent", code: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind: errors.ErrorKind = kind
        self.code = code
        self.retry_after_s = retry_after_s


def as_step_error(error: Exception) -> StepError:
    """What an exception means for its step. Anything unforeseen is permanent: it may have taken effect."""
    match error:
        case StepError():
            return error
        case errors.ProviderError():
            code = error.deadline if isinstance(error, errors.TimedOut) else error.code or str(error.status or "")
            asked_s = error.retry_after_s if isinstance(error, errors.Retryable) else None
            tried = f" (tried {', '.join(error.tried)})" if len(error.tried) > 1 else ""
            return StepError(f"{error}{tried}", kind=error.kind, code=code, retry_after_s=asked_s)
        case errors.ConfigError():
            return StepError(str(error), code="config")
        case errors.TailraceError():
            return StepError(str(error))
        case _:
            return StepError(f"{type(error).__name__}: {error}", code="internal")


class Mailbox(Protocol):
    """Signals for the instance that no step has taken."""

    async def take_signal(self, name: str) -> SignalReceived:
        """The oldest of that name, as soon as there is one. The step that takes it must finish at once."""


async def no_commit() -> None:
    """For a step whose log is not kept."""


class StepContext(msgspec.Struct, frozen=True):
    """What a handler may know of the step it runs."""

    instance_id: str
    block_id: str
    number: int  # of the try
    started_at: float  # of the try, on the wall clock; before a crash, where there was one
    directory: Path
    log: StepStream  # where the step's model calls are written, for viewers
    signals: Mailbox
    now: Callable[[], float]
    has_retry: bool = False  # the step says itself how it is to be tried again
    prices: Prices = ListPrices()
    requester: str = ""  # the owner of the instance, whom its calls are charged to
    is_admin: bool = False  # that owner may write to the conversations of platforms
    is_wanted: Callable[[], bool] = lambda: True  # the step's result, by this process or one that goes on with it
    commit: Callable[[], Awaitable[None]] = no_commit  # returns when all that `log` was given is durable

    @property
    def key(self) -> str:
        """The same for this step whenever it runs: an idempotency key for what it calls."""
        return f"{self.instance_id}/{self.block_id}"


class AskedModel(NamedTuple):
    """`dialect`: None where it is the provider's own."""

    provider: str
    model: str
    dialect: Dialect | None = None


class Handler(ABC, Generic[P]):
    """One kind of step. `waits`: it does nothing but wait, and its time-out counts from its first start."""

    Params: type[P]
    waits: ClassVar[bool] = False

    def repeatable(self, _params: P) -> bool:
        """Running it twice does no more than running it once: after an interruption it may run again."""
        return True

    def interruptible(self, params: P) -> bool:
        """A pause may stop it in the middle: it runs again afterwards."""
        return self.repeatable(params)

    def asks(self, _params: P) -> Sequence[AskedModel]:
        """The models that a step may ask; its sequence's budget is checked before. Raises `ConfigError` for a provider
        that is not there."""
        return ()

    @abstractmethod
    async def run(self, params: P, step: StepContext) -> Any:
        """The step's output: JSON. Raises `StepError`, `ProviderError` or whatever may happen."""

    async def dry_run(self, _params: P, _step: StepContext) -> Any:
        """The same without a call: an output of the same shape, as far as it can be told."""
        return {"dry_run": True}

    def fill(self, params: JsonObject, scope: Scope, *, strict: bool) -> JsonObject:
        """The parameters with their templates filled in. Raises `ExpressionError`."""
        filled: JsonObject = resolved(params, scope, strict=strict)
        return filled

    def convert(self, params: JsonObject) -> P:
        """Raises `StepError` that names the parameter."""
        try:
            return msgspec.convert(params, self.Params)
        except msgspec.ValidationError as exc:
            raise StepError(decoding_problem(exc, self.Params), code="params") from exc

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        """What is wrong with these parameters although their templates are not filled in yet: each place and why."""
        fields = fields_of(self.Params)
        for name in params:
            if name not in fields:
                yield f".{name}", f"unknown parameter{did_you_mean(name, fields)[0]}"
        for name, field in fields.items():
            if field.required and name not in params:
                yield "", f"{name!r} is missing"
        for name, value in params.items():
            if name in fields and not has_template(value):
                try:
                    msgspec.convert(value, fields[name].type)
                except msgspec.ValidationError as exc:
                    place, message = validation_mistake(exc, fields[name].type)
                    yield f".{name}{place}", message

    def unknown_models(self, _params: JsonObject) -> Iterator[tuple[str, str]]:
        """Each place that names a model of a provider that is not there, and why, as far as it can be told before
        templates are filled in."""
        return iter(())


Handlers = Mapping[str, Handler[Any]]


def waiting_names(handlers: Handlers) -> list[str]:
    return [name for name, handler in handlers.items() if handler.waits]
