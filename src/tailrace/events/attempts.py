"""The base of all events, and the facts that the attempts of a model call leave in a run's log.

Part of `events`, which has them all: import them from there.
"""

from __future__ import annotations

import re
from typing import Any, dataclass_transform

import msgspec

from tailrace.messages import Dialect, Usage


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass_transform(frozen_default=True)  # what mypy must know of the subclasses
class Event(msgspec.Struct, frozen=True, tag=_snake, gc=False):
    """Base of everything that can stand in a run's log. Data alone, so in no cycle."""


class AttemptStarted(Event, omit_defaults=True):
    """An attempt of a call at one provider begins. Its number is the entry's `attempt`: counted from 1 within the run,
    or within the block for the call of a step."""

    provider: str = ""
    model: str = ""
    block_id: str = ""
    dialect: Dialect | None = None  # of the provider, where it is asked for a client of our API or for a step
    ignored: tuple[str, ...] = ()  # the client's parameters that are not sent to this provider
    previous_failure: str = ""  # why the attempt before it at the same call ended
    input_tokens: int = 0  # of the request, estimated: what the attempt has read, should its process die


class AnswerKept(Event, omit_defaults=True):
    """The provider keeps the answer of the entry's `attempt` under this id. A process that takes the run over
    reattaches to the answer instead of asking for another one."""

    provider: str
    model: str
    answer_id: str
    block_id: str = ""


class AttemptDiscarded(Event, omit_defaults=True):
    """The text of the entry's `attempt` is withdrawn: viewers that can redraw remove it. `retry_at`: when the provider
    may be asked again, in seconds since the epoch, where it has said so."""

    reason: str = ""
    block_id: str = ""
    retry_at: float | None = None


class ToolArgumentsChunk(Event):
    """The next piece of the arguments of a tool call, as the model writes them; an empty one says that it has begun.
    `index` is the one that the call has once it is whole.

    For viewers alone: a call is run as the recorded message has it. The pieces are withdrawn when another attempt
    begins or their own is discarded, and where the recorded message does not have the call."""

    tool_name: str
    index: int
    text: str


class ProviderEvents(Event):
    """Events of a raw model's provider with all their fields, for clients of its dialect that resume the answer. The
    chunks beside them say the same in short. Hidden unless asked for, like reasoning."""

    dialect: Dialect
    events: tuple[dict[str, Any], ...]


class ProviderAnswer(Event):
    """The whole body of a raw model's answer, as its provider gives it to a client that does not stream."""

    dialect: Dialect
    body: dict[str, Any]


class UsageRecorded(Event, omit_defaults=True):
    """Tokens of one attempt, also of one that failed or was cancelled."""

    usage: Usage
    provider: str = ""
    model: str = ""
    block_id: str = ""
