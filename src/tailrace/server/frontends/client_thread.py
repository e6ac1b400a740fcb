"""A conversation that a front end keeps beside the session: which of its messages are new, and which turns it left out.

A front end sends its whole list of messages with each request and names them by ids of its own. The session in the
journal is the truth: what the list repeats is not added again. The messages after the last one that is known are new.
The turns after the newest one that is repeated were removed by the user: from then on the model does not read them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from tailrace.agent.session import TURN_KIND, Branch
from tailrace.ports import Journal, Run

_FIRST_PAGE: Final = 10  # a front end mostly repeats the newest turn; where it does not, pages grow
_MOST: Final = 160
_MADE_HERE: Final = re.compile(r"(run_[0-9a-f]{24})-[a-z]?[0-9]+")


def message_id(run_id: str, number: int, kind: str = "") -> str:
    """The id that a front end gets for a message of a turn. `kind` is a letter; without one it is an answer's."""
    return f"{run_id}-{kind}{number}"


def run_of_message(made_id: str) -> str:
    """The run whose message has this id; empty where a client made it."""
    return made[1] if (made := _MADE_HERE.fullmatch(made_id)) else ""


def question_ids(run: Run) -> tuple[str, ...]:
    """The ids of the messages that came with this turn."""
    client = run.new.input.get("client") or {}
    return tuple(client.get("message_ids") or (message_id(run.id, 0, "q"),))


def request_id(run: Run) -> str:
    """The front end's own id of the request that began this turn."""
    client = run.new.input.get("client") or {}
    return str(client.get("request_id", ""))


def requester(run: Run) -> str:
    return str(run.new.input.get("requester", ""))


def foreign_names(run: Run) -> list[str]:
    """The names of the tools that the client of this turn runs."""
    return [tool["name"] for tool in run.new.input.get("foreign", ())]


def request_key(*names: str) -> str:
    """The idempotency key of what these names tell apart: the surface, the requester, and names of the front end's own.
    No other names give it, whatever characters they have."""
    return f"{names[0]}:{hashlib.sha256(msgspec.json.encode(names)).hexdigest()}"


async def session_turns(journal: Journal, session: str) -> AsyncGenerator[Run, None]:
    """The turns of the session, newest first."""
    cursor: str | None = None
    size = _FIRST_PAGE
    while runs := await journal.runs(session=session, kind=TURN_KIND, before=cursor, limit=size):
        for run in runs:
            yield run
        if len(runs) < size:
            return
        cursor, size = runs[-1].id, min(2 * size, _MOST)


async def branch_turns(journal: Journal, session: str) -> list[Run]:
    """The turns that lead to the session's newest one, oldest first: those that the user has replaced are left out."""
    branch, found = Branch(), list[Run]()
    async with aclosing(session_turns(journal, session)) as turns:
        async for run in turns:
            if branch.takes(run):
                found.append(run)
            if branch.is_whole:
                break
    return found[::-1]


async def began_by(journal: Journal, session: str) -> str:
    """Who asked the first question of the session that is kept; empty where there is none."""
    first = ""
    async for run in session_turns(journal, session):
        first = requester(run)
    return first


class ThreadPlace(msgspec.Struct, frozen=True):
    """Where a request stands in its session. The messages from `new_from` on are new. `previous_run` as in `TurnSpec`.
    `repeated` is the newest turn that the list knows."""

    new_from: int
    previous_run: str | None = None
    repeated: Run | None = None
    asks_again: bool = False  # the new messages are the question of `repeated`
    is_first: bool = False  # the session has no turn yet


async def place_in_thread(journal: Journal, session: str, ids: Sequence[str]) -> ThreadPlace:
    """`ids` are those of all messages of the list, in order. A list that ends with a known question asks it anew."""
    given, made_by = set(ids), set(map(run_of_message, ids))
    newest = True
    turns = session_turns(journal, session)
    async for run in turns:
        questions = given.intersection(question_ids(run))
        if not questions and run.id not in made_by:
            newest = False
            continue
        if ids[-1] in questions:
            first = min(place for place, each in enumerate(ids) if each in questions)
            before = await anext(turns, None)
            previous_run = run.new.input.get("previous_run", before.id if before is not None else "")
            return ThreadPlace(first, previous_run, run, asks_again=True)
        last = max(place for place, each in enumerate(ids) if each in questions or run_of_message(each))
        return ThreadPlace(last + 1, None if newest else run.id, run)
    return ThreadPlace(0, is_first=newest)
