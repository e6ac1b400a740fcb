"""The deliveries of one platform: begun, taken over from the dead, drained when the process is to end.

Owns their tasks. Each runs in the gateway's task group and never takes it down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from tailrace.app import App
from tailrace.delivery.consumer import ChatLines, GatewayStreamConsumer, deliver_text
from tailrace.delivery.ledger import DeliverySpec, Ledger, begin, orphaned
from tailrace.delivery.port import Place, Platform
from tailrace.errors import TailraceError
from tailrace.events import ApprovalAsked
from tailrace.platforms.runtime.chat_settings import ChatSettingsStore

log = logging.getLogger("tailrace.platforms")
SUSPEND_S = 5.0  # for saying in each message that it was cut


class Deliveries:
    def __init__(self, app: App, platform: Platform, group: asyncio.TaskGroup, chats: ChatSettingsStore) -> None:
        self._app = app
        self._platform = platform
        self._group = group
        self._chats = chats
        self._lines = ChatLines(platform)
        self._consumers: dict[str, GatewayStreamConsumer] = {}  # by the run that is delivered
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[str, tuple[str, ApprovalAsked]] = {}  # by approval: whose run, and what

    async def deliver(self, spec: DeliverySpec, requester: str) -> None:
        """Shows the run in the place from now on. The same run in the same place is shown once."""
        ledger = await begin(self._app.journal, spec, self._app.owner)
        if ledger is not None:
            hints = bool(requester) and not await self._chats.was_hinted(requester)
            self._start(ledger, requester, hints=hints)

    async def resume(self) -> int:
        """Goes on with what a process that died, or was told to stop, has left half shown."""
        count = 0
        async for ledger in orphaned(self._app.journal, self._platform.name, self._app.owner):
            if ledger.spec.run_id not in self._consumers:
                self._start(ledger, "", hints=False)
                count += 1
        return count

    def say(self, place: Place, text: str, *, key: str) -> None:
        """Something of our own, as soon as the chat's budget allows."""
        self._spawn(deliver_text(self._platform, self._lines.to(place), place, text, key=f"say.{key}"))

    def asked(self, approval_id: str) -> tuple[str, ApprovalAsked] | None:
        """Whose run asked, and what."""
        return self._asked.get(approval_id)

    def open_approval(self, place: Place) -> ApprovalAsked | None:
        """The newest question in this place that nobody has answered."""
        here = [consumer for consumer in self._consumers.values() if consumer.spec.place.key == place.key]
        return next((asked for consumer in reversed(here) if (asked := consumer.open_approval)), None)

    async def drain(self, timeout_s: float) -> None:
        """Lets what runs come to its end, for so long; then what is half shown says that it was cut."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for consumer in self._consumers.values():
            consumer.suspend()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SUSPEND_S)
        for task in self._tasks:
            task.cancel()

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, ledger: Ledger, requester: str, *, hints: bool) -> None:
        run_id, place = ledger.spec.run_id, ledger.spec.place

        def remember(asked: ApprovalAsked) -> None:
            self._asked[asked.approval_id] = (run_id, asked)

        consumer = GatewayStreamConsumer(
            self._app.journal,
            self._platform,
            self._lines.to(place),
            ledger,
            hints=hints,
            on_approval=remember,
        )
        self._consumers[run_id] = consumer
        self._spawn(self._consume(run_id, consumer, requester))

    async def _consume(self, run_id: str, consumer: GatewayStreamConsumer, requester: str) -> None:
        try:
            await consumer.run()
        finally:
            del self._consumers[run_id]
            self._asked = {key: asked for key, asked in self._asked.items() if asked[0] != run_id}
        if requester and consumer.hinted:
            await self._chats.mark_hinted(requester)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._group.create_task(_logged(self._platform.name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(platform: str, work: Coroutine[object, object, None]) -> None:
    """One delivery that fails takes no other with it."""
    try:
        await work
    except* TailraceError as errors:
        for exc in errors.exceptions:
            log.error("%s: a delivery failed: %s", platform, exc)  # noqa: TRY400 - ours: one line says it
    except* Exception:
        log.exception("%s: a delivery failed", platform)
