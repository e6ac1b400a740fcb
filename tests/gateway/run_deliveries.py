"""What became of a run's answer in its chat, as the journal has it."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.delivery.consumer import CHAT_GONE
from tailrace.delivery.undelivered import NAMESPACE
from tailrace.events import Delivered
from tailrace.journal.fold import DELIVERY
from tailrace.journal.key_values import KeyValues
from tailrace.ports import ENDED, Journal, Run

MAX_READ = 100  # deliveries that began after the run: its own is among the first
MAX_LATER = 1000  # the newest deliveries, among which one that took another's place is looked for
BEGINS_S = 300.0  # after its run, at the latest: storage may be slow in between


async def delivery_of(journal: Journal, run: Run) -> Run | None:
    """The delivery of this run; None where no chat shows it, or the record of it is deleted. Raises `JournalError`."""
    newest, after = await journal.runs(kind=DELIVERY, limit=1) if run.new.session else [], run.id
    for _ in range(MAX_READ):
        if not newest or newest[0].id <= after:  # the journal would wait for the next one
            return None
        found = await journal.next_run("", DELIVERY, after)
        if found.new.input.get("run_id") == run.id:
            return found
        if found.created_at > run.created_at + BEGINS_S:
            return None
        after = found.id
    return None


async def undelivered_words(journal: Journal, run: Run) -> str:
    """Where the answer of a run that has ended is not, or may not be, in words; empty where it is in its chat, or was
    never to be in one. Raises `JournalError`."""
    delivery = await delivery_of(journal, run) if run.state in ENDED else None
    if delivery is None:
        return ""
    deliveries = await _with_later(journal, delivery)
    delivery, where = deliveries[-1], _where(deliveries[-1])
    if delivery.state in ENDED and await _is_undelivered(journal, [one.id for one in deliveries]):
        return f"not delivered to {where} yet: it is sent when they write again"
    match delivery.state:
        case "completed":
            missing = f"no reply came to a message in {where}: it may be missing there"
            return missing if await _is_in_doubt(journal, delivery) else ""
        case "pending" | "running":
            return f"not delivered to {where} yet"
        case _:
            error = delivery.finished.error if delivery.finished is not None else None
            reason = error.message if error is not None else delivery.state
            more = " (deleted or archived, or the bot was put out of it)" if reason == CHAT_GONE else ""
            return f"not delivered to {where}: {reason}{more}"


async def _with_later(journal: Journal, delivery: Run) -> list[Run]:
    """With the deliveries that replaced it, each sent when the person had written again."""
    later = {run.new.input.get("instead_of"): run for run in await journal.runs(kind=DELIVERY, limit=MAX_LATER)}
    deliveries = [delivery]
    while deliveries[-1].id in later:
        deliveries.append(later[deliveries[-1].id])
    return deliveries


async def _is_in_doubt(journal: Journal, delivery: Run) -> bool:
    events = [entry.event for entry in await journal.facts(delivery.id)]
    newest = {event.key: event for event in events if isinstance(event, Delivered)}
    return any(fact.state == "unknown" and fact.final for fact in newest.values())


def _where(delivery: Run) -> str:
    place = delivery.new.input.get("place", {})
    thread = f", thread {place['thread']}" if place.get("thread") else ""
    return f"{place.get('platform')} {place.get('chat')}{thread}"


async def _is_undelivered(journal: Journal, deliveries: Collection[str]) -> bool:
    """Whether one of these is sent again when the person writes."""
    values, _ = await KeyValues(journal, NAMESPACE, dict[str, list[str]]).readable()
    return any(not set(deliveries).isdisjoint(ids["deliveries"]) for ids in values.values())
