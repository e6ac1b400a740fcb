"""Whatever the events, the platform's replies and the clock: never over budget, never two finals, no cursor left, the
final text exactly the response, every character in order, always an end."""

from __future__ import annotations

import os
import random
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proof.memory_platform import Fault, LostReply

from delivery.planning.played_plans import PLACE, Stage, numbered
from properties import examples
from tailrace.delivery.planning.outline import TextSlot
from tailrace.delivery.planning.planner import NOTHING_MORE
from tailrace.delivery.planning.state import Done, Showing
from tailrace.delivery.port import (
    AnyAction,
    Append,
    Capabilities,
    Close,
    Delete,
    Draft,
    Edit,
    Failed,
    Flood,
    LookUp,
    MarkupRejected,
    Open,
    Send,
    TooLong,
    Typing,
    Upload,
    Window,
)
from tailrace.delivery.text.split import CURSOR
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    Commentary,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    RunFinished,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.messages import ToolFile

# every interleaving of a small world is explored beside this: tests/model_checking
EXAMPLES = examples(500 * int(os.environ.get("TAILRACE_SOAK", "1")))
WORDS = ["alpha ", "beta ", "漢字、", "😀 ", "line\n", "para\n\n", "שלום ", "x" * 30 + " "]

capabilities = st.builds(
    Capabilities,
    mode=st.sampled_from(["whole", "edit", "draft", "stream"]),
    limit=st.sampled_from([96, 200, 4096]),
    unit=st.sampled_from(["utf16", "chars", "bytes"]),
    edits=st.booleans(),
    deletes=st.booleans(),
    buttons=st.booleans(),
    cards=st.booleans(),
    resend=st.sampled_from(["never", "look_up", "idempotent"]),
    windows=st.sampled_from(
        [(Window(1, 1.0),), (Window(20, 60.0), Window(1, 1.0)), (Window(5, 5.0),), (Window(2, 10.0),)]
    ),
    typing_s=st.sampled_from([None, 5.0]),
    stream_lifetime_s=st.sampled_from([None, 12.0]),
    max_file_bytes=st.sampled_from([0, 50, 1000]),
)


def make_log(seed: int, tools: int) -> list[Entry]:
    """A run's log: bubbles with tools, comments, notices and approvals between them; sometimes an attempt that is
    withdrawn; an output that is what was streamed or what became of it."""
    rng = random.Random(seed)
    events: list[tuple[AnyEvent, int]] = [(RunStarted("agent"), 1)]
    for index in range(tools):
        events += [(MessageChunk(rng.choice(WORDS)), 1) for _ in range(rng.randrange(0, 30))]
        events.append((MessageStop(), 1))
        events.append((ToolCallChunk("terminal", "ls", index=index), 1))
        if rng.random() < 0.3:
            asked = ApprovalAsked(f"apr{index}", "terminal", "rm -r x", "digest")
            events += [(asked, 1), (ApprovalAnswered(f"apr{index}", "once"), 1)]
        if rng.random() < 0.3:
            file = ToolFile("a.png", "image/png", b"x" * rng.choice([10, 100]))
            events.append((ToolOutputRecorded(f"call{index}", "terminal", "", files=(file,)), 1))
        events.append((ToolCallFinished("terminal", 0.1, index=index), 1))
        if rng.random() < 0.3:
            events.append((Commentary("a comment"), 1))
        if rng.random() < 0.3:
            events.append((GatewayNotice("stalled", "no response"), 1))
    if rng.random() < 0.2:
        events += [(MessageChunk(rng.choice(WORDS)), 2) for _ in range(rng.randrange(1, 60))]
        events.append((AttemptDiscarded("cut"), 2))
    pieces = [rng.choice(WORDS) for _ in range(rng.randrange(0, 90))]
    events += [(MessageChunk(piece), 3) for piece in pieces]
    output = "".join(pieces)
    if rng.random() < 0.2:
        output = output.replace("alpha", "omega")
    events += [(MessageStop(final=True), 3), (RunFinished("completed", output), 3)]
    return [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate(events, 1)]


class Faults:
    """Replies at random, and what they allow to be missing."""

    def __init__(self, rng: random.Random, rate: float, resend: str) -> None:
        self._rng, self._rate, self._resend = rng, rate, resend
        self.in_doubt = False  # a message may be missing, as the rules allow
        self.unreachable = False  # a message is there, but its id is not known
        self.strays = 0
        self._taken: set[str] = set()  # keys of messages that are there: no platform finds them too long afterwards

    def __call__(self, action: AnyAction) -> Fault:
        if self._rng.random() >= self._rate or isinstance(action, Typing):
            return None
        kind = self._rng.choice(["flood", "failed", "lost", "vanished", "markup", "long"])
        match kind:
            case "flood":
                return Flood(self._rng.choice([0.5, 3.0, 30.0]))
            case "failed":
                return Failed("try again")
            case "markup" if isinstance(action, Send | Edit | Draft) and action.markup:
                return MarkupRejected()
            case "long" if isinstance(action, Send) and len(action.text) > 150 and action.key not in self._taken:
                return TooLong()
            case "long" if isinstance(action, Edit) and len(action.text) > 150:
                return TooLong()
            case "lost" | "vanished":
                return self._lose(action, done=kind == "lost")
            case _:
                return None

    def _lose(self, action: AnyAction, *, done: bool) -> Fault:
        if done and isinstance(action, Send | Open):
            self._taken.add(action.key)
        match action:
            case Send() | Open() if self._resend == "never":
                final = isinstance(action, Send) and action.final
                self.in_doubt = self.in_doubt or (final and not done)
                self.unreachable = self.unreachable or final
                self.strays += not final and done
            case LookUp():
                return LostReply(done=False)
            case Upload() if self._resend != "idempotent":
                self.in_doubt = self.in_doubt or not done
            case Append() | Close() | Edit() | Delete() | Draft() | Send() | Open() | Upload() | Typing():
                pass
        return LostReply(done=done)


def play(stage: Stage, log: list[Entry], rng: random.Random, *, restarts: bool) -> None:
    """Feeds the log in random bites and random time, with the death of the process thrown in."""
    at = 0
    while at < len(log):
        bite = rng.randrange(1, 12)
        stage.feed(log[at : at + bite])
        at = min(len(log), at + bite)
        if rng.random() < 0.8:
            stage.run_until(stage.now + rng.choice([0.0, 0.05, 0.5, 2.0, 7.0]))
        if restarts and rng.random() < 0.15:
            stage.restart(log[:at])
    stage.finish()


def shown_of(stage: Stage, slot: str) -> str:
    """The slot's text as the user reads it now, its parts in order; the newest message of each part."""
    parts: dict[int, str] = {}
    for message in stage.chat.visible:
        _, key, part, _ = message.key.split(".")
        if key == slot and message.text != NOTHING_MORE:
            parts[int(part)] = message.text
    return "".join(text for _, text in sorted(parts.items()))


@given(
    log=st.builds(make_log, st.integers(0, 2**32), st.integers(0, 3)),
    capabilities=capabilities,
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.0, 0.1, 0.4]),
    streaming=st.sampled_from([True, True, True, False]),
    restarts=st.booleans(),
    latency_s=st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_G77_G78_G80_G81_G82_one_final_message_whatever_happens(
    log: list[Entry],
    capabilities: Capabilities,
    seed: int,
    rate: float,
    streaming: bool,
    restarts: bool,
    latency_s: float,
) -> None:
    rng = random.Random(seed)
    faults = Faults(rng, rate, capabilities.resend)
    stage = Stage(capabilities, Showing(streaming=streaming, min_tokens=5), PLACE, latency_s, faults)
    play(stage, log, rng, restarts=restarts)

    assert stage.chat.overruns == [], "over the platform's budget"
    assert isinstance(stage.planner.step(stage.now), Done)
    finished = log[-1].event
    assert isinstance(finished, RunFinished)
    texts = [message.text for message in stage.chat.visible]
    strays = sum(CURSOR.strip() in text for text in texts)
    assert strays <= faults.strays, "a cursor was left behind"
    assert not any(message.streaming for message in stage.chat.visible if faults.strays == 0), "a stream was left open"
    answer = stage.planner.outline.answer
    if answer is None or not finished.output.strip():
        return
    finals = [m for m in stage.chat.visible if m.key.split(".")[1] == answer.key and CURSOR.strip() not in m.text]
    parts = Counter(message.key.split(".")[2] for message in finals)
    assert max(parts.values(), default=0) <= 1 + faults.strays, "two finals"
    mendable = capabilities.edits and not faults.unreachable and not faults.strays
    if faults.in_doubt or (not mendable and streaming and _revised(log)):
        return  # a message may be missing by the rules, or could not be mended
    assert shown_of(stage, answer.key).strip() == finished.output.strip()
    for slot in stage.planner.outline.slots:  # M149: what came before the answer is there too
        messages = stage.planner.state.chain(slot.key).messages
        if any(message.state == "unresolved" for message in messages):
            continue  # it may have been sent, and is never sent again (G80)
        if isinstance(slot, TextSlot):
            assert shown_of(stage, slot.key).strip() == slot.text.strip()
        else:
            assert any(message.key.split(".")[1] == slot.key for message in stage.chat.visible)


def _revised(log: list[Entry]) -> bool:
    """Whether the run took back something that it had shown."""
    shown = "".join(e.event.text for e in log if e.attempt == 3 and isinstance(e.event, MessageChunk))
    finished = log[-1].event
    discarded = any(isinstance(entry.event, AttemptDiscarded) for entry in log)
    return discarded or not isinstance(finished, RunFinished) or finished.output != shown


def test_the_numbering_of_the_tests_own_logs_is_a_logs() -> None:
    assert [entry.seq for entry in numbered([RunStarted("agent"), MessageStop()])] == [1, 2]
