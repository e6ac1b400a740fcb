"""Drives a planner against a chat in memory, with a clock and a reply script of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from proof.memory_platform import ChatView, Fault

from tailrace.delivery.planning.pace import Pace
from tailrace.delivery.planning.planner import Planner
from tailrace.delivery.planning.presenter import Chrome, Presenter
from tailrace.delivery.planning.state import Done, Showing, Wait
from tailrace.delivery.port import AnyAction, AnyReply, Capabilities, Edit, Open, Place, Send, Window
from tailrace.events import AnyEvent, Delivered, Entry, MessageChunk, MessageStop, RunFinished, RunStarted

PLACE = Place("telegram", "42")
EDITING = Capabilities(
    mode="edit",
    edits=True,
    deletes=True,
    buttons=True,
    limit=4096,
    unit="utf16",
    windows=(Window(1, 1.0),),
    typing_s=5.0,
)
STREAMING = Showing(streaming=True)
WORDS = [f"word{number} " for number in range(100)]
TEXT = "".join(WORDS)
DRAFTING = Capabilities(mode="draft", edits=True, limit=4096, unit="utf16", windows=(Window(1, 1.0),), typing_s=5.0)
NATIVE = Capabilities(
    mode="stream", edits=True, cards=True, limit=12_000, edit_interval_s=0.7, windows=(Window(100, 60.0),)
)


def answer(*pieces: str, output: str | None = None) -> list[AnyEvent]:
    """The events of a run that says this."""
    text = "".join(pieces) if output is None else output
    return [
        RunStarted("agent"),
        *(MessageChunk(piece) for piece in pieces),
        MessageStop(final=True),
        RunFinished("completed", text),
    ]


def numbered(events: Iterable[AnyEvent], *, first: int = 1) -> list[Entry]:
    return [Entry(seq, event) for seq, event in enumerate(events, first)]


@dataclass
class Stage:
    """One delivery and the chat it goes to."""

    capabilities: Capabilities = EDITING
    showing: Showing = STREAMING
    place: Place = PLACE
    latency_s: float = 0.0
    fault: Callable[[AnyAction], Fault] | None = None
    chrome: Chrome = "lines"
    now: float = 1000.0
    actions: list[AnyAction] = field(default_factory=list)
    replies: list[AnyReply] = field(default_factory=list)
    facts: list[Delivered] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chat = ChatView(self.capabilities)
        self.pace = Pace(self.capabilities.windows)
        self.planner = self.new_planner()

    def new_planner(self) -> Planner:
        return Planner(
            "d1",
            self.place,
            self.capabilities,
            Presenter(self.chrome, platform=self.place.platform),
            showing=self.showing,
            pace=self.pace,
        )

    def feed(self, events: Sequence[Entry]) -> None:
        for entry in events:
            self.planner.apply(entry)

    def act(self) -> Wait | Done:
        """Everything that is due now, until the planner wants to wait or has ended."""
        while True:
            step = self.planner.step(self.now)
            if isinstance(step, Wait | Done):
                return step
            self.perform(step)

    def perform(self, action: AnyAction) -> None:
        if ahead := self.planner.write_ahead:
            self.facts.append(ahead)
        self.actions.append(action)
        fault = self.fault(action) if self.fault else None
        self.now += self.latency_s / 2
        reply = self.chat.perform(self.planner.state.place, action, self.now, fault)
        self.now += self.latency_s / 2
        self.replies.append(reply)
        self.facts += self.planner.replied(reply, self.now)

    def run_until(self, until: float) -> Wait | Done:
        """Lets time pass, acting whenever the planner says so."""
        while True:
            step = self.act()
            if isinstance(step, Done) or step.until is None or step.until > until:
                self.now = max(self.now, until)
                return step
            self.now = max(self.now, step.until)

    def stream(self, events: Sequence[AnyEvent], *, every_s: float = 0.1) -> None:
        """One event after the other, then to the end."""
        for entry in numbered(events):
            self.feed([entry])
            self.run_until(self.now + every_s)
        self.finish()

    def finish(self, *, steps: int = 5000) -> None:
        for _ in range(steps):
            step = self.act()
            if isinstance(step, Done):
                return
            assert step.until is not None, "waits for ever"
            assert step.until > self.now, "waits for the past"
            self.now = step.until
        raise AssertionError("does not come to an end")

    def restart(self, events: Sequence[Entry], *, facts: Sequence[Delivered] | None = None) -> None:
        """Another process takes over: the same log and the ledger, nothing else."""
        self.planner = self.new_planner()
        self.feed(events)
        self.planner.restore(self.facts if facts is None else facts)


def once(fault: Fault, *kinds: type) -> tuple[list[AnyAction], object]:
    """A fault for the first action of these kinds."""
    struck: list[AnyAction] = []

    def strike(action: AnyAction) -> Fault:
        if isinstance(action, kinds) and not struck:
            struck.append(action)
            return fault
        return None

    return struck, strike


def sends(stage: Stage) -> list[AnyAction]:
    return [action for action in stage.actions if isinstance(action, Send | Open)]


def edits(stage: Stage) -> list[Edit]:
    return [action for action in stage.actions if isinstance(action, Edit)]
