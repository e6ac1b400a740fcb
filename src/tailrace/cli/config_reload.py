"""Takes up what the config file says now of platforms, keys and models, while `serve` or `gateway` runs: at SIGHUP and
at `tailrace reload`. The rest of the file is read at the start alone."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from tailrace.agent.safety.redact import Redactor
from tailrace.app import App
from tailrace.app.secrets.config_secrets import secrets_of
from tailrace.app.secrets.own_environment import hide_secrets
from tailrace.cli.start_line import model_problems, start_line
from tailrace.config.error_place import with_place
from tailrace.config.load import Config, load
from tailrace.config.sections import Sections
from tailrace.errors import ConfigError, JournalError, TailraceError
from tailrace.journal.key_values import KeyValues
from tailrace.ports import SmallState

log = logging.getLogger("tailrace.serve")
RETRY_S = 5.0  # between looks for requests while storage fails
# Makes ready what another config needs, and returns what takes it up. Raises `ConfigError`.
Prepare: TypeAlias = Callable[[Config], Callable[[], Awaitable[None]]]
_TAKEN_UP: Final = ("model", "providers", "quirks", "platforms", "streaming", "call")
_SERVER_KEYS: Final = ("keys", "key_env", "aliases")
_REQUESTS, _NEWEST = "config.reloads", "newest"


class Reread(NamedTuple):
    config: Config
    needs_restart: tuple[str, ...]  # the sections whose other changes are not taken up


def read_again(config: Config) -> Reread:
    """The config with the platforms, keys and models of its file, and of the file `env`, as they are now. Raises
    `ConfigError` for a mistake anywhere in them."""
    read = load(config.environment.without(()), config.home)
    server = replace(config.server, **{name: getattr(read.server, name) for name in _SERVER_KEYS})
    taken = {name: getattr(read, name) for name in _TAKEN_UP}
    new = replace(config, environment=read.environment, server=server, **taken)
    changed = (name for name in Sections.__struct_fields__ if getattr(new, name) != getattr(read, name))
    return Reread(new, tuple(changed))


async def ask_for_reload(journal: SmallState) -> None:
    """Every process on this journal reads its config file again. Raises `JournalError`."""
    await KeyValues(journal, _REQUESTS, str).update(_NEWEST, lambda _: secrets.token_hex(8))


async def watch_requests(journal: SmallState, asked: asyncio.Event) -> None:
    """Sets `asked` at each request from now on. Never returns. Raises `JournalError`."""
    requests = KeyValues(journal, _REQUESTS, str)
    known = await requests.get(_NEWEST)
    while True:
        await journal.next_value(_REQUESTS, _NEWEST, None if known is None else msgspec.json.encode(known))
        if (newest := await requests.get(_NEWEST)) != known:
            known = newest
            asked.set()


class ConfigReloads:
    """`asked` is set to ask for one. `redactor` is the log's; `parts` take up what concerns them."""

    def __init__(self, app: App, asked: asyncio.Event, redactor: Redactor, parts: Sequence[Prepare]) -> None:
        self._app, self._asked, self._redactor, self._parts = app, asked, redactor, parts

    async def until(self, stop: asyncio.Event) -> None:
        """Returns once `stop` is set. To be awaited by the task that has opened the parts."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch()), group.create_task(self._wake_at(stop))]
            while not stop.is_set():
                await self._asked.wait()
                self._asked.clear()
                if not stop.is_set():
                    await self._reload()
            for task in tasks:
                task.cancel()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._asked.set()

    async def _watch(self) -> None:
        while True:
            with suppress(JournalError):
                await watch_requests(self._app.journal, self._asked)
            await asyncio.sleep(RETRY_S)

    async def _reload(self) -> None:
        """All of it or nothing: what could be refused is made before anything is replaced."""
        config = self._app.config
        try:
            config, needs_restart = await asyncio.to_thread(read_again, config)
            prepared = [prepare(config) for prepare in self._parts]
        except ConfigError as exc:
            placed = with_place(exc, config)
            log.error("the config file is not taken up, and the old config stays: %s", placed)  # noqa: TRY400
            return
        held = secrets_of(config)
        hide_secrets(held)
        self._redactor.add(held.values())
        self._app.take_config(config)
        for take_up in prepared:
            try:
                await take_up()
            except TailraceError as exc:  # the server goes on with what has been taken up
                log.error("a part of the config is not taken up; ask for a reload again: %s", exc)  # noqa: TRY400
        platforms = (name for name, settings in config.platforms.by_name.items() if settings.enabled)
        log.info("the config file was read again: %s", start_line(config, platforms))
        for problem in model_problems(config):
            log.warning("%s", problem)
        if needs_restart:
            log.warning("changes of %s need a restart", ", ".join(needs_restart))
