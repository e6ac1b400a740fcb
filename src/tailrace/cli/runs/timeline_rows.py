"""What a timeline tells line by line: each item becomes the moments at which something happened, in their order.

Pure; knows no terminal. An attempt is told when it begins, when its first token comes, and when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgspec

from tailrace.app.timeline import AnyItem, Timeline, items
from tailrace.cli.stop_words import stop_words
from tailrace.cli.words import STYLES, duration, output_text, spent_words
from tailrace.messages import JsonObject
from tailrace.runs.approval_words import unanswered_words

LABEL_WIDTH = 12
_PROGRESS = "tool_progress"  # the output of the tool has it


class Detail(NamedTuple):
    text: str
    is_diff: bool = False
    both_ends: bool = False  # of a long one the first and the last lines are shown
    style: str = "dim"


class TimelineRow(NamedTuple):
    """`seq` is the entry of the log, of a tool its last one; `at` the seconds since the run began."""

    seq: int
    at: float | None
    label: str
    text: str = ""
    style: str = ""
    mark: str = ""  # how it ended
    mark_style: str = "dim"
    details: tuple[Detail, ...] = ()
    quiet: bool = False
    is_text: bool = False  # may be several lines


TimelineRows: TypeAlias = Iterator[TimelineRow]


def timeline_rows(timeline: Timeline, *, full: bool = False, advice: str = "") -> list[TimelineRow]:
    """In the order of time; those without a time stay behind the entry before them. `advice` is what helps against the
    failure that the run has ended with."""
    told = [each for item in timeline.items for each in _told(item, timeline, advice, full=full)]
    told.sort(key=lambda each: each.seq)
    timed: list[tuple[float, TimelineRow]] = []
    latest = 0.0
    for each in told:
        latest = each.at if each.at is not None else latest
        timed.append((latest, each))
    timed.sort(key=lambda pair: pair[0])
    return [each for _, each in timed]


def _told(  # noqa: C901, PLR0912 - one case per item
    item: AnyItem, timeline: Timeline, advice: str, *, full: bool
) -> TimelineRows:
    match item:
        case items.QuestionItem(seq=seq, start=at, text=text, files=files):
            details = tuple(Detail(file) for file in files)
            yield TimelineRow(seq, at, "question", text, "bold", is_text=True, details=details)
        case items.AttemptItem():
            yield from _attempt(item)
        case items.TextItem() | items.ReasoningItem():
            yield from _span(item)
        case items.StallItem():
            yield _stall(item)
        case items.NoticeItem(about=about) if about == _PROGRESS:
            return
        case items.NoticeItem(seq=seq, start=at, about=about, text=text):
            yield TimelineRow(seq, at, "notice", text or about, "yellow", quiet=True)
        case items.FailoverItem():
            where = f"{item.from_provider}/{item.from_model} → {item.to_provider}/{item.to_model}"
            yield TimelineRow(item.seq, item.start, "failover", where, "yellow")
        case items.ToolCallItem():
            yield _tool(item, full=full)
        case items.ApprovalItem():
            yield from _approval(item)
        case items.TakeoverItem(seq=seq, end=at, claims=claims):
            text = f"the process ended; another one went on (claim {claims})"
            yield TimelineRow(seq, at, "takeover", text, "bold yellow")
        case items.CompressionItem(seq=seq, end=at, messages=messages):
            yield TimelineRow(seq, at, "compressed", f"the history is {messages} messages from here on", "yellow")
        case items.ForkItem(seq=seq, start=at, run_id=run_id, after=after):
            text = f"what stands above is of {run_id}, up to its entry {after}"
            yield TimelineRow(seq, at, "fork", text, "magenta")
        case items.StepItem():
            yield from _step(item)
        case items.StateItem(seq=seq, start=at, state=state):
            yield TimelineRow(seq, at, "state", state, STYLES.get(state, ""), quiet=True)
        case items.SignalItem(seq=seq, start=at, name=name, by=by):
            yield TimelineRow(seq, at, "signal", f"{name}, by {by}" if by else name, "magenta")
        case items.DeliveryItem(seq=seq, start=at, key=key, state=state):
            yield TimelineRow(seq, at, "delivery", f"{key}: {state}", quiet=True)
        case items.FinishItem():
            yield _finish(item, timeline, advice)
        case _:
            assert_never(item)


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────


def _attempt(item: items.AttemptItem) -> TimelineRows:
    name = f"{item.provider}/{item.model}" if item.provider else item.model
    step = f"{item.block_id}: " if item.block_id else ""
    how = "  goes on with the text" if item.goes_on else "  begins anew" if item.restarts else ""
    ignored = f"  not told: {', '.join(item.ignored)}" if item.ignored else ""
    label = f"call {item.call}" if item.try_number == 1 else f"call {item.call} try {item.try_number}"
    yield TimelineRow(item.seq, item.start, label, f"{step}{name}{how}{ignored}", "blue")
    if item.first_token_s is not None and item.start is not None:
        text = f"{step}after {item.first_token_s:.2f}s"
        yield TimelineRow(item.seq, round(item.start + item.first_token_s, 3), "first token", text, "blue", quiet=True)
    spent = spent_words(item.usage, item.cost_usd)
    match item.outcome:
        case "running":
            return
        case "answered" | "called_tools":
            if spent:
                yield TimelineRow(item.end_seq, item.end, "tokens", f"{step}{spent}", "dim", quiet=True)
        case "stopped":
            yield TimelineRow(item.end_seq, item.end, "stopped", f"{step}{spent}", "yellow")
        case _:
            what = "taken back" if item.outcome == "discarded" else item.outcome
            lost = "its process ended before it did" if item.outcome == "interrupted" else "no reason was recorded"
            reason = item.reason or lost
            yield TimelineRow(item.end_seq, item.end, what, f"{step}{label}: {reason}", "red", spent)


def _span(item: items.TextItem | items.ReasoningItem) -> TimelineRows:
    thinking = isinstance(item, items.ReasoningItem)
    label = "thinking" if thinking else "text"
    if item.withdrawn:
        label += " ✗"
    text = item.text or f"{item.chars:,} characters, not shown"
    shown = f"{item.block_id}: {text}" if item.block_id else text
    rate = f"{item.tokens_per_s:.0f} tokens/s" if item.tokens_per_s and item.chunks > 1 else ""
    details = (Detail(rate),) if rate and item.chunks > 20 else ()
    quiet = thinking or item.withdrawn
    yield TimelineRow(
        item.seq, item.start, label, shown, "dim" if quiet else "", quiet=quiet, is_text=True, details=details
    )


def _stall(item: items.StallItem) -> TimelineRow:
    end = "; given up" if item.gave_up else ", then the stream went on"
    who = f"{item.provider}: " if item.provider else ""
    return TimelineRow(item.seq, item.start, "stall", f"{who}nothing came for {duration(item.silent_s)}{end}", "yellow")


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────


def _tool(item: items.ToolCallItem, *, full: bool) -> TimelineRow:
    about = item.preview or (_json(item.arguments) if item.arguments else "") or item.arguments_text
    changed = f"+{item.added} −{item.removed}" if item.diff else ""
    took = duration(item.duration_s) if item.duration_s is not None else ""
    details: list[Detail] = []
    if full and item.arguments:
        details.append(Detail(_block(item.arguments)))
    match item.state:
        case "done":
            mark, style = f"✓ {took}", "green"
        case "failed":
            code = f"exit {item.exit_code}" if item.exit_code not in (None, 0) else "failed"
            mark, style = " · ".join(filter(None, (f"✗ {code}", took))), "red"
        case "not_executed":
            why = item.not_executed.reason if item.not_executed is not None else ""
            mark, style = "not executed", "yellow"
            details.append(Detail(why, style="yellow"))
        case "broken_off":
            mark, style = "broken off: not executed", "yellow"
        case "returned":
            mark, style = "the client runs it", "dim"
        case _:
            mark, style = item.state, "cyan"
    if item.run_id:
        details.append(Detail("\n".join((f"agent {item.run_id}", *(f"▸ {step}" for step in item.steps)))))
    if item.diff:
        details.append(Detail(item.diff, is_diff=True))
    elif item.output and item.state != "not_executed":
        details.append(Detail(item.output, both_ends=True))
    details += [Detail(f"file: {name}") for name in item.files]
    shown = f"{about}  {changed}".rstrip()
    return TimelineRow(item.end_seq, item.start, item.tool_name, shown, "magenta", mark, style, tuple(details))


def _approval(item: items.ApprovalItem) -> TimelineRows:
    where = f"  in {item.directory}" if item.directory else ""
    reason = (Detail(item.reason),) if item.reason else ()
    yield TimelineRow(item.seq, item.start, "approval?", f"{item.command}{where}", "bold yellow", details=reason)
    if item.decision is None:
        if item.end is not None:
            yield TimelineRow(item.end_seq, item.end, "no answer", item.command, "yellow")
        return
    words = {"once": "once", "session": "for the session", "always": "always", "deny": ""}
    by = f" by {item.by}" if item.by else ""
    waited = f" after {duration(item.waited_s)}" if item.waited_s is not None else ""
    if unanswered := unanswered_words(None, item.by):
        yield TimelineRow(item.end_seq, item.end, "no answer", f"{unanswered}: denied{waited}", "red")
        return
    label, style = ("denied", "red") if item.decision == "deny" else ("approved", "green")
    yield TimelineRow(item.end_seq, item.end, label, f"{words[item.decision]}{by}{waited}".strip(), style)


def _block(arguments: JsonObject) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else _json(value)}" for name, value in arguments.items()
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# ── sequences, and the end ───────────────────────────────────────────────────────────────────────────────────


def _step(item: items.StepItem) -> TimelineRows:
    again = f" (try {item.number})" if item.number > 1 else ""
    yield TimelineRow(item.seq, item.start, "step", f"{item.block_id}{again}", "bold")
    if item.state == "running":
        return
    took = duration(item.end - item.start) if item.end is not None and item.start is not None else ""
    style = {"finished": "green", "failed": "red"}.get(item.state, "yellow")
    details: tuple[Detail, ...] = ()
    mark = f"✓ {took}" if item.state == "finished" else f"✗ {took}".rstrip()
    if item.state == "finished" and item.output is not None:
        details = (Detail(output_text(item.output), both_ends=True),)
    if item.error is not None:
        details = (Detail(item.error.message, style="red"),)
    if item.retry_at is not None:
        details = (*details, Detail(f"tried again at +{item.retry_at:.2f}"))
    yield TimelineRow(item.end_seq, item.end, item.state, f"{item.block_id}{again}", style, mark, style, details)


def _finish(item: items.FinishItem, timeline: Timeline, advice: str) -> TimelineRow:
    took = f"after {duration(timeline.duration_s)}" if timeline.duration_s is not None else ""
    spent = " · ".join(filter(None, (took, spent_words(timeline.usage, timeline.cost_usd))))
    details: tuple[Detail, ...] = ()
    if (error := item.error) is not None:
        details = (Detail(stop_words(error) if item.status == "stopped" else error.message, style="red"),)
        if advice:
            details = (*details, Detail(advice, style="yellow"))
    return TimelineRow(item.seq, item.start, item.status, spent, STYLES.get(item.status, "bold"), details=details)
