"""One run with everything that the inspector shows: thoughts, tools, a stall, a failover, an approval, an answer."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.app.timeline import Timeline, timeline_of
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFinished,
    RunStarted,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.messages import FileChange, Message, Text, ToolCall, Usage, assistant, user
from tailrace.ports import NewRun, Run

BEGAN = 1_794_795_798.0
QUESTION = "Which file sets the retry limit, and is it tested? Fix it if it is wrong, and run the tests."
FIRST = "I will look for the limit in the sources first, then at its tests."
SECOND = "The source says three and the test says five, so one of them is wrong. I will change the source."
ANSWER = """Done. The limit in `src/retry.py` was **3** and its test expects **5**: I changed the source.

```python
max_attempts = 5
```

All three tests pass now."""


class SampleLog:
    """A log that is written with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.attempt = 1
        self.entries: list[Entry] = []
        self.times: list[tuple[int, float]] = []

    def add(self, *events: AnyEvent, after: float = 0.0) -> None:
        self.now = round(self.now + after, 3)
        for event in events:
            self.entries.append(Entry(len(self.entries) + 1, event, self.attempt))
            self.times.append((len(self.entries), BEGAN + self.now))

    def say(self, text: str, *, every: Sequence[float] = (0.05,)) -> None:
        for place, word in enumerate(text.split(" ")):
            if piece := word if place == 0 else f" {word}":
                self.add(MessageChunk(piece), after=every[place % len(every)])

    def ask(self, provider: str, model: str, failure: str = "", *, first_token_s: float = 0.35) -> None:
        self.attempt += any(isinstance(entry.event, AttemptStarted) for entry in self.entries)
        self.add(AttemptStarted(provider, model, previous_failure=failure), after=0.05)
        self.now += first_token_s

    def run(self, *, kind: str = "agent", run_id: str = "run_7f3a9c21") -> Run:
        last = self.entries[-1].event
        finished = last if isinstance(last, RunFinished) else None
        state = finished.status if finished else "running"
        return Run(run_id, NewRun(kind, session="ses_1"), state, len(self.entries), 1, BEGAN, 1, finished=finished)

    def timeline(self, *, reasoning: bool = False) -> Timeline:
        return timeline_of(self.run(), self.entries, self.times, reasoning=reasoning)


def sample_log(*, question: str = QUESTION, answer: str = ANSWER) -> SampleLog:
    log = SampleLog()
    log.add(RunStarted("agent", session="ses_1", at=BEGAN), MessageRecorded(user(question)))
    log.ask("near", "small-2")
    for _ in range(40):
        log.add(ReasoningChunk("The limit may be in several places. "), after=0.02)
    log.say(FIRST)
    search = ToolCall("c1", "search_files", '{"pattern": "max_attempts"}')
    for piece in ('{"pat', 'tern": ', '"max_attempts"}'):
        log.add(ToolArgumentsChunk("search_files", 0, piece), after=0.1)
    log.add(
        UsageRecorded(Usage(812, 90), "near", "small-2"),
        MessageRecorded(Message("assistant", (Text(FIRST), search)), "tools"),
        MessageStop(),
    )
    log.add(ToolCallChunk("search_files", "max_attempts", {"pattern": "max_attempts"}, 0), after=0.05)
    found = "src/retry.py:12: max_attempts = 3\ntests/test_retry.py:9: assert max_attempts == 5"
    log.add(ToolOutputRecorded("c1", "search_files", found), ToolCallFinished("search_files", 0.6, index=0), after=0.6)
    _cut_and_continued(log)
    _patched_and_tested(log)
    log.ask("far", "large-1")
    log.say(answer, every=(0.02, 0.03, 0.09, 0.02))
    log.add(
        UsageRecorded(Usage(2400, 160), "far", "large-1"),
        MessageRecorded(assistant(answer), "end"),
        MessageStop(final=True),
    )
    log.add(RunFinished("completed", answer, Usage(5112, 370), at=BEGAN + log.now + 0.02), after=0.02)
    return log


def _cut_and_continued(log: SampleLog) -> None:
    half = SECOND.index(" them")
    log.ask("near", "small-2")
    log.say(SECOND[:half], every=(0.06,))
    silent = {"provider": "near", "silent_s": 9.0}
    log.add(GatewayNotice("stalled", "⚠️ No response from near for 9 s. Reconnecting…", silent), after=9.0)
    log.ask("far", "large-1", "503: overloaded", first_token_s=0.7)
    log.say(SECOND[half:])


def _patched_and_tested(log: SampleLog) -> None:
    args = {"path": "src/retry.py", "old": "max_attempts = 3", "new": "max_attempts = 5"}
    diff = " import time\n-max_attempts = 3\n+max_attempts = 5"
    calls = ToolCall("c2", "patch", "{}"), ToolCall("c3", "terminal", '{"command": "pytest -q"}')
    log.add(
        UsageRecorded(Usage(1900, 120), "far", "large-1"),
        MessageRecorded(Message("assistant", (Text(SECOND), *calls)), "tools"),
        MessageStop(),
    )
    log.add(ToolCallChunk("patch", "src/retry.py", args, 1), after=0.1)
    change = FileChange("src/retry.py", 1, 1, diff, 11)
    log.add(
        ToolOutputRecorded("c2", "patch", f"src/retry.py, from line 11:\n{diff}", change=change),
        ToolCallFinished("patch", 0.2, index=1),
        after=0.2,
    )
    reason, directory = "it runs code of this directory", "/home/you/project"
    log.add(ApprovalAsked("a1", "terminal", "pytest -q", "d", "you", "c3", reason, directory), after=0.1)
    log.add(ApprovalAnswered("a1", "once", "you"), after=38.0)
    log.add(ToolCallChunk("terminal", "pytest -q", {"command": "pytest -q"}, 2), after=0.1)
    log.add(
        ToolOutputRecorded("c3", "terminal", "3 passed\n[exit code 0]"),
        ToolCallFinished("terminal", 4.2, index=2),
        after=4.2,
    )
