"""What a delivery knows of its chat: where it is, what was sent there, what is in flight.

Pure data. The planner reads it and hands out actions; `replies` changes it by what the platform answered. Neither knows
the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec

from tailrace.delivery.planning.messages import Chain, ChatMessage, Wanted
from tailrace.delivery.planning.pace import Pace
from tailrace.delivery.port import AnyAction, Capabilities, Mode, Place
from tailrace.messages import Value


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before `until` (None: before the next event). `patient`: more text does not change that."""

    until: float | None = None
    patient: bool = False


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do."""


Step: TypeAlias = AnyAction | Wait | Done


class Showing(Value):
    """The config's settings for showing an answer. `edit_interval_s` None: the platform's own."""

    streaming: bool = False
    edit_interval_s: float | None = None
    min_tokens: int = 20


class Flight(NamedTuple):
    """An action and what it is for. `at`: the earliest time for it. `first`: later actions must wait for this one, so
    that the chat keeps its order."""

    action: AnyAction
    at: float
    chain: Chain | None = None
    message: ChatMessage | None = None
    wanted: Wanted | None = None
    first: bool = False

    @property
    def final(self) -> bool:
        return self.wanted is None or self.wanted.final


class Preview(NamedTuple):
    """The ephemeral draft in the chat: its number there, and the text that it shows."""

    number: int = 1
    text: str = ""


@dataclass(slots=True)
class DeliveryState:
    place: Place
    capabilities: Capabilities
    pace: Pace
    mode: Mode  # changes to "edit" where the platform refuses drafts or native streams
    over: bool = False  # the chat is gone
    moved: bool = False  # the thread is gone: `place` is the chat itself now
    preview: Preview = field(default_factory=Preview)
    chains: dict[str, Chain] = field(default_factory=dict)  # by the key of the slot
    unshown: dict[str, str] = field(default_factory=dict)  # by message: why its text was given up
    until_heard: bool = False  # a text was given up that is taken once the person has written again; none came after it
    in_doubt: set[str] = field(default_factory=set)  # messages of which it will never be known whether they were sent
    flight: Flight | None = None  # the action that the platform has not answered yet

    def chain(self, key: str) -> Chain:
        if key not in self.chains:
            self.chains[key] = Chain(key, self.capabilities)
        return self.chains[key]

    def show_preview(self, text: str) -> None:
        self.preview = Preview(self.preview.number, text)

    def next_preview(self) -> None:
        """A message has replaced the preview."""
        self.preview = Preview(self.preview.number + 1)

    def leave_thread(self) -> None:
        """The delivery goes on in the chat itself (G85)."""
        self.place = msgspec.structs.replace(self.place, thread="")
        self.moved = True
