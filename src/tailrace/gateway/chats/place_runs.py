"""What runs in a place: stopping it, and answering what it asks. Another process may execute it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tailrace.agent.session import TURN_KIND
from tailrace.app import App
from tailrace.delivery.port import Place, Platform, Sender
from tailrace.errors import RunNotFound, RunSealed
from tailrace.events import ApprovalAsked, Decision, Snapshot
from tailrace.gateway.chats.chat_words import NOT_OPEN, STOPPED
from tailrace.gateway.chats.place_sessions import PlaceSessions
from tailrace.gateway.deliveries import Deliveries
from tailrace.gateway.inbound.recent_ids import RecentIds
from tailrace.gateway.inbound.speaker_names import SpeakerNames
from tailrace.ports import Journal, Run, RunState

_UNFINISHED: tuple[RunState, ...] = ("pending", "running")


async def turns_of_session(journal: Journal, session: str) -> list[Run]:
    """The newest first. Raises `JournalError`."""
    return await journal.runs(session=session, kind=TURN_KIND, states=_UNFINISHED)


async def turns_of_chat(journal: Journal, place: Place) -> list[Run]:
    """Those of the chat itself and of all its threads, the newest first. Raises `JournalError`."""
    within, found = f"{place.key}:", list[Run]()
    before: str | None = None
    while page := await journal.runs(kind=TURN_KIND, states=_UNFINISHED, before=before):
        before = page[-1].id
        found += [run for run in page if f"{run.new.session}:".startswith(within)]
    return found


def requester_of_turn(run: Run) -> str:
    return str(run.new.input.get("requester") or "")


class PlaceRuns:
    """The runs under way in the places of one platform."""

    def __init__(
        self, app: App, platform: Platform, deliveries: Deliveries, sessions: PlaceSessions, names: SpeakerNames
    ) -> None:
        self._app = app
        self._platform = platform
        self._deliveries = deliveries
        self._sessions = sessions
        self._names = names
        self._told_stopped = RecentIds()  # runs

    def requester(self, sender: Sender) -> str:
        return f"{self._platform.name}:{sender.id}"

    async def running(self, place: Place, sender: Sender) -> list[Run]:
        """What runs in the conversation. Outside of the threads of a chat: what this person asked for there or in any
        of them."""
        if not self._sessions.is_whole_chat(place):
            return await turns_of_session(self._app.journal, await self._sessions.session_of(place))
        requester, running = self.requester(sender), await turns_of_chat(self._app.journal, place)
        return [run for run in running if requester_of_turn(run) == requester]

    async def stop(self, place: Place, sender: Sender, key: str = "") -> list[str]:
        """Stops the sender's runs in this place; returns their ids. `key`, of a command for the whole chat: each thread
        gets one note."""
        running = await self.running(place, sender)
        for run in running:
            await self._app.agents.stop(run.id, by=self.requester(sender))
            thread = run.new.session.removeprefix(place.key).partition("#")[0].removeprefix(":")
            if key and thread and self._sessions.is_whole_chat(place) and self._told_stopped.add(run.id):
                self._deliveries.say(replace(place, thread=thread), STOPPED, f"{key}.{run.id}", below=[run.id])
        return [run.id for run in running]

    # ── questions for approval ───────────────────────────────────────────────────────────────────────────────

    async def answer(
        self, place: Place, sender: Sender, approval_id: str, decision: str, key: str, reason: str = ""
    ) -> None:
        """J110: for the requester, and for the people of the chats in `approvals.notify`. The outcome is shown where
        the question stands."""
        found = self._deliveries.asked.get(approval_id)
        if found is None:
            asked_elsewhere = await self._asked_elsewhere(place, sender)
            found = next((one for one in asked_elsewhere if one[1].approval_id == approval_id), None)
        if found is None:
            self._deliveries.say(place, NOT_OPEN, key)
            return
        run_id, asked = found
        if not self.may_answer(place, sender, asked):
            self._deliveries.say(place, await self.only_the_requester(asked), key)
            return
        try:
            chosen = msgspec.convert(decision, Decision)
            by = self.requester(sender)
            await self._app.agents.answer(run_id, approval_id, chosen, by=by, reason=reason, authorised=True)
        except (RunSealed, RunNotFound):
            self._deliveries.say(place, NOT_OPEN, key)

    def may_answer(self, place: Place, sender: Sender, asked: ApprovalAsked) -> bool:
        return self._is_notified(place) or asked.requester == self.requester(sender)

    def _is_notified(self, place: Place) -> bool:
        return f"{place.platform}:{place.chat}" in self._app.config.approvals.notify

    async def only_the_requester(self, asked: ApprovalAsked) -> str:
        return f"Only {await self._names.requester_of(asked)} may answer that question. It stays open."

    async def open_approval(self, place: Place, sender: Sender) -> ApprovalAsked | None:
        """The newest question in this place that is not answered."""
        if (asked := self._deliveries.open_approval(place)) is not None:
            return asked
        return next((asked for _, asked in await self._asked_elsewhere(place, sender)), None)

    async def asks_in(self, session: str, asked: ApprovalAsked) -> bool:
        """Whether it is a run of this session that asks; the place may have had others before."""
        shown = self._deliveries.asked.get(asked.approval_id)
        return shown is None or (await self._app.journal.get(shown[0])).new.session == session

    async def _asked_elsewhere(self, place: Place, sender: Sender) -> list[tuple[str, ApprovalAsked]]:
        """The open questions of the place, the newest first, each with the run that asks: another process may deliver
        the run, and a webhook may call any."""
        found: list[tuple[str, ApprovalAsked]] = []
        for run in await self.running(place, sender):
            state = (await self._app.journal.snapshot(run.id)).event
            if isinstance(state, Snapshot):
                found += [(run.id, one.asked) for one in reversed(state.approvals) if one.decision is None]
        if self._is_notified(place):
            found += [(run.id, asked) for run, asked in reversed(await self._app.waiting.listed())]
        return found
