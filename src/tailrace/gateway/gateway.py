"""Starts every enabled chat platform, keeps it connected and stops it. A failure in one does not affect the others.

Of several processes on one journal one polls a platform and sends to it (`platform_lease`); each of them answers its
webhook. Use `Gateway` as an async context manager beside an open `App`. At the end it lets the deliveries in flight
finish for `server.drain_s` and marks those that it cuts; the next process completes them. Commands and buttons are
heard to the end: an answer may wait for one. Where another process lives, `hand_over` leaves all to it at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from tailrace.app import App
from tailrace.config.error_place import with_place
from tailrace.config.load import Config
from tailrace.config.sections import PlatformSettings
from tailrace.delivery.port import HookAnswer, HookRequest, Platform, Sender, Update
from tailrace.errors import ConfigError, JournalError, PlatformError, TailraceError
from tailrace.gateway.chat_settings import ChatSettingsStore, Pairing
from tailrace.gateway.platform_lease import PlatformLease
from tailrace.gateway.registry import POSITIONS, account_of, enabled, make_platform, settings_and_secrets
from tailrace.journal.key_values import KeyValues
from tailrace.journal.storage_wait import warning_level
from tailrace.runs.signals import FlatTaskGroup, run_beside

log = logging.getLogger("tailrace.gateway")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
STEADY_S = 60.0  # a connection that has held so long starts the pauses over


def platforms_of(app: App) -> list[Platform]:
    """The adapters of the platforms that the config enables. One that cannot be made is logged and left out."""
    found: list[Platform] = []
    for name in enabled(app.config):
        try:
            found.append(make_platform(app.config, name))
        except TailraceError as exc:
            placed = with_place(exc, app.config) if isinstance(exc, ConfigError) else exc
            log.error("%s is not started: %s", name, placed)  # noqa: TRY400 - ours: one line says it
            app.platforms_down.mark(name, f"it is not started: {exc}")
    return found


class Gateway:
    """`platforms`: None for those that the config enables."""

    def __init__(self, app: App, platforms: Sequence[Platform] | None = None) -> None:
        self._app = app
        self.platforms = list(platforms_of(app) if platforms is None else platforms)
        self._stack = AsyncExitStack()
        self._runners: list[PlatformRunner] = []
        self._drained_by: float | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:  # the heartbeat and what was started before the failure
            await self._stack.__aexit__(*sys.exc_info())
            raise
        return self

    async def _enter(self) -> None:
        await self._stack.enter_async_context(self._app.processes)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._group = group
        self._hook_paths = self.hook_paths
        for platform in self.platforms:
            await self._start(platform)

    async def _start(self, platform: Platform) -> None:
        chats, pairing = ChatSettingsStore(self._app.journal), Pairing(self._app.journal)
        runner = PlatformRunner(self._app, platform, self._group, chats, pairing)
        await self._stack.enter_async_context(runner.deliveries)
        self._runners.append(runner)
        await runner.start()

    def prepared_platforms(self, config: Config) -> Callable[[], Awaitable[None]]:
        """Makes new adapters for the platforms whose settings differ in this config, and returns what installs them.
        Await it in the task that has entered the gateway. Raises `ConfigError`."""
        served, wanted = {platform.name for platform in self.platforms}, set(enabled(config))
        changed: dict[str, Platform | None] = dict.fromkeys(served - wanted)
        for name in sorted(wanted):
            if name not in served or settings_and_secrets(config, name) != settings_and_secrets(self._app.config, name):
                changed[name] = platform = make_platform(config, name)
                if platform.hook_path and platform.hook_path not in self._hook_paths:
                    raise ConfigError("its webhook needs a restart", key=f"platforms.{name}")
        return lambda: self._replace_platforms(changed)

    async def _replace_platforms(self, changed: Mapping[str, Platform | None]) -> None:
        """Puts each new adapter in place of the old one; None: the platform is no longer served. A message that is half
        shown goes on with the new adapter."""
        for name, platform in changed.items():
            for runner in [runner for runner in self._runners if runner.platform.name == name]:
                self._runners.remove(runner)
                await runner.leave()
            self.platforms = [other for other in self.platforms if other.name != name]
            self._app.platforms_down.clear(name)
            if platform is not None:
                self.platforms.append(platform)
                await self._start(platform)

    async def hand_over(self) -> None:
        """Leaves each platform that another process can serve to that process, at once."""
        self.take_no_more()
        await self._app.processes.look()
        for runner in self._runners:
            await runner.hand_over()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._drained_by = 0.0
        try:
            await self.drain()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        try:
            await self._each(PlatformRunner.stop)
        finally:
            await self._stack.aclose()

    async def _each(self, do: Callable[[PlatformRunner], Coroutine[None, None, None]]) -> None:
        """Does it for all platforms at once. What fails for one is logged."""
        for failure in await asyncio.gather(*map(do, self._runners), return_exceptions=True):
            if failure is not None:
                log.error("a platform could not be ended as it should: %r", failure, exc_info=failure)

    def take_no_more(self) -> None:
        """Begins no new work from now on. Deliveries in flight have `server.drain_s`, counted from the first call."""
        if self._drained_by is None:
            self._drained_by = asyncio.get_running_loop().time() + self._app.config.server.drain_s
        for runner in self._runners:
            runner.take_no_more()

    async def drain(self) -> None:
        """Lets the deliveries in flight come to their end while there is time, and marks those that it cuts. People are
        heard meanwhile: leave the webhooks open."""
        self.take_no_more()
        drained_by = self._drained_by or 0.0
        drain_s = max(0.0, drained_by - asyncio.get_running_loop().time())
        await self._each(lambda runner: runner.drain(drain_s))

    @property
    def hook_paths(self) -> list[str]:
        """The paths of the platforms' webhooks."""
        return [platform.hook_path for platform in self.platforms if platform.hook_path]

    async def hook(self, request: HookRequest) -> HookAnswer:
        """Answers a call of a webhook."""
        for runner in self._runners:
            if runner.platform.hook_path and runner.platform.hook_path == request.path:
                return await runner.platform.hook(request, runner)
        return HookAnswer(404)


class PlatformRunner:
    """Runs one platform: its connection, its conversations and its deliveries. Satisfies `Inbox`."""

    def __init__(
        self, app: App, platform: Platform, group: asyncio.TaskGroup, chats: ChatSettingsStore, pairing: Pairing
    ) -> None:
        # Deferred with all that makes messages of Markdown: a server without a chat platform needs none of it.
        from tailrace.gateway.conversations import Conversations
        from tailrace.gateway.deliveries import Deliveries

        self.platform = platform
        self._app = app
        self._down = app.platforms_down
        self._group = group
        self._processes = app.processes
        self._lease = PlatformLease(app.journal, app.processes, account_of(app.config, platform.name))
        self._positions = KeyValues(app.journal, POSITIONS, str)  # by account
        self.deliveries = Deliveries(app, platform, group, self._lease)
        settings = app.config.platforms.by_name.get(platform.name) or PlatformSettings()
        self._conversations = Conversations(app, platform, settings, self.deliveries, chats=chats, pairing=pairing)
        self._serving: asyncio.Task[None] | None = None
        self._joining_pastes: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._connected_at: float | None = None

    async def start(self) -> None:
        await self._processes.serve(self._lease.account)
        self._serving = self._group.create_task(self._keep_serving())
        self._joining_pastes = self._group.create_task(self._conversations.join_pastes())

    async def hand_over(self) -> None:
        """Leaves the platform to another process, where one lives that can serve it. What is half shown goes on
        there. Webhooks still call this process: their pastes are joined until `stop`."""
        if self._processes.successors(serving=self._lease.account):
            await _end(self._serving)
            await self.deliveries.hand_over()
            await self._give_up_lease()
        else:
            self.deliveries.leave_questions()

    def take_no_more(self) -> None:
        """The process is about to end."""
        self._stopping.set()
        self._conversations.take_no_more()

    async def drain(self, timeout_s: float) -> None:
        """The platform stays connected, so that people can answer open questions for approval."""
        await self._conversations.flush()
        await self.deliveries.drain(timeout_s)

    async def leave(self) -> None:
        """Ends the runner, whether another one follows or not: releases its deliveries and handles every message that
        it has taken."""
        await _end(self._serving, self._joining_pastes)
        await self._conversations.flush()
        await self.deliveries.hand_over()
        await self.deliveries.until_said()
        await self._give_up_lease()
        await self.platform.close()

    async def stop(self) -> None:
        await _end(self._serving, self._joining_pastes)
        await self.drain(0.0)  # what was asked since
        await self._give_up_lease()
        await self.platform.close()

    async def _give_up_lease(self) -> None:
        try:
            await self._lease.give_up()
            await self._processes.announce_hand_over()
        except JournalError as exc:
            log.warning("%s is polled by another process a little later: %s", self.platform.name, exc)

    # ── Inbox ──

    async def put(self, update: Update) -> None:
        """A webhook may call any process; what is polled belongs to the process that polls."""
        if not self.platform.hook_path and not self._lease.holds:
            raise PlatformError("another process polls it now", platform=self.platform.name)
        await self._conversations.handle(update)

    async def serves(self, sender: Sender) -> bool:
        return await self._conversations.newcomers.serves(sender)

    @property
    def holds_parts(self) -> bool:
        return self._conversations.holds_parts

    async def until_released(self, update_id: str) -> None:
        await self._conversations.until_released(update_id)

    def connected(self) -> None:
        log.info("%s is connected", self.platform.name)
        if self._connected_at is None:  # else it has replaced a connection of its own
            self._connected_at = asyncio.get_running_loop().time()
        self._down.clear(self.platform.name)
        self.deliveries.wake()

    async def position(self) -> str:
        return await self._positions.get(self._lease.account) or ""

    async def keep_position(self, position: str) -> bool:
        """Where storage fails the next one is kept: updates that come twice are one run."""
        if not self._lease.holds:
            raise PlatformError("another process polls it now", platform=self.platform.name)
        try:
            await self._positions.update(self._lease.account, lambda _: position)
        except JournalError as exc:
            log.log(warning_level(exc), "%s: how far it was read is not kept: %s", self.platform.name, exc)
            return False
        return True

    # ── connection ──

    async def _keep_serving(self) -> None:
        """Polls the platform and delivers to it whenever this process holds the platform's lease."""
        while True:
            try:
                await self._serve_while_held()
            except JournalError as exc:
                level = warning_level(exc)
                log.log(level, "%s: whether this process may poll it is not known: %s", self.platform.name, exc)
                await asyncio.sleep(self._processes.interval_s)
            except Exception:
                log.exception("%s failed", self.platform.name)
                await asyncio.sleep(self._processes.interval_s)

    async def _serve_while_held(self) -> None:
        name = self.platform.name
        acquiring = asyncio.ensure_future(self._lease.acquire())
        try:
            await asyncio.wait([acquiring], timeout=self._processes.interval_s)
            if not acquiring.done():
                log.info("%s is polled by another process; this one goes on when that ends", name)
            before = await acquiring
        finally:
            acquiring.cancel()
        if before not in ("", self._processes.owner):
            log.info("%s was polled by %s, which is gone; this process goes on", name, before)
        await run_beside(self._lease.lost(), self._serve())
        log.warning("%s: this process was taken for dead, or hung for too long; it stops polling and sending", name)
        self._down.clear(name)  # the process that polls it now knows
        await self.deliveries.release()
        await self._processes.announce_hand_over()

    async def _serve(self) -> None:
        async with FlatTaskGroup() as group:
            group.create_task(self._stay_connected())
            group.create_task(self._take_deliveries_over())
            group.create_task(self._ask_elsewhere())

    async def _take_deliveries_over(self) -> None:
        recovering = self.deliveries.keep_recovering(self._processes, at_once=True, shared=False)
        await run_beside(self._stopping.wait(), recovering)  # then the next process does

    async def _ask_elsewhere(self) -> None:
        named = (chat.partition(":") for chat in self._app.config.approvals.notify)
        chats = [chat for platform, _, chat in named if platform == self.platform.name]
        while True:
            try:
                await run_beside(self._stopping.wait(), self.deliveries.ask_elsewhere(chats))
            except JournalError as exc:
                log.log(warning_level(exc), "%s: whether a run asks is not known: %s", self.platform.name, exc)
                await asyncio.sleep(self._processes.interval_s)
            else:
                return

    async def _stay_connected(self) -> None:
        """Reconnects with backoff, to the end of the process: what is left to be shown then may need the connection.
        Every failure is logged, and none leaves this task. A platform that must not try a refused token again is left
        alone."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._connected_at = None
            try:
                await self.platform.run(self)
                reason = "the connection ended"
            except PlatformError as exc:
                reason = str(exc).removeprefix(f"{self.platform.name}: ")
                pause_s = LONGEST_PAUSE_S if exc.permanent else pause_s
                if exc.permanent and self.platform.stops_when_refused:
                    self._down.mark(self.platform.name, f"{reason}; it is not tried again before a restart")
                    told = f"{self.platform.name}: {reason}"
                    log.error("%s; it is not tried again before a restart", told)  # noqa: TRY400 - one line says it
                    return
            except Exception as exc:
                log.exception("%s failed", self.platform.name)
                reason = f"{type(exc).__name__}: {exc}"
            self._down.mark(self.platform.name, reason)
            if self._held_for() >= STEADY_S:
                pause_s = FIRST_PAUSE_S
            wait_s = pause_s * random.uniform(0.75, 1.25)  # noqa: S311 - so that many do not come back at once
            log.warning("%s: %s; connecting again in %.0f s", self.platform.name, reason, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _held_for(self) -> float:
        if self._connected_at is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._connected_at


async def _end(*tasks: asyncio.Task[None] | None) -> None:
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)
