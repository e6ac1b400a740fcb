"""`tailrace gateway`: the chat platforms alone, until a signal stops it; `--pair` lets a new user in, `--unpair` out.

The first SIGINT or SIGTERM starts the drain: no new work. Answers in flight go on in another process at once, where one
lives that serves the platform; otherwise they have `server.drain_s`, and a cut answer says so in its message and
continues after the restart, as a question does that comes meanwhile. The second signal ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import time
from contextlib import AsyncExitStack

from tailrace.cli.main import DONE, INTERRUPTED
from tailrace.cli.signals import loop_factory, reload_event, stop_event
from tailrace.cli.start_line import model_problems, require_writable_store, start_line
from tailrace.config.load import Config
from tailrace.errors import ConfigError, RunSealed
from tailrace.plugins.installed import problems
from tailrace.ports import Journal

log = logging.getLogger("tailrace.gateway")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pair", metavar="CODE", help="let in the user to whom the bot gave this code")
    parser.add_argument("--paired", action="store_true", help="list the users who were let in by a code")
    parser.add_argument("--unpair", metavar="USER", help="no longer serve a user who was let in: PLATFORM:ID")
    parser.add_argument("--log", choices=("text", "json"), default="text", help="the format of the log on stderr")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 after an orderly stop. Raises `ConfigError` where no platform is enabled, or none can be started."""
    if args.pair or args.paired or args.unpair:
        return asyncio.run(_change_users(config, args))
    require_writable_store(config)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_gateway(args, config))
        except asyncio.CancelledError:
            return INTERRUPTED
    return DONE


async def _change_users(config: Config, args: argparse.Namespace) -> int:
    from tailrace.cli.own_journal import own_journal
    from tailrace.gateway.chat_settings import Pairing

    if not config.store_is_kept:
        raise ConfigError("pairing needs a store that the gateway shares; use sqlite:///tailrace.db", key="store.url")
    async with own_journal(config, make=not args.paired) as journal:
        pairing = Pairing(journal)
        if args.pair:
            user = await pairing.accept(args.pair)
            sys.stdout.write(f"{_with_name(user.user, user.name)} is let in\n")
        elif args.unpair:
            await pairing.remove(args.unpair)
            sys.stdout.write(f"{args.unpair} is no longer let in\n")
            if _allows(config, args.unpair):
                sys.stderr.write(f"but the config serves them: platforms.{args.unpair.partition(':')[0]}.allow\n")
            elif stopped := await _stop_runs_of(journal, args.unpair):
                sys.stdout.write(f"stopped what ran for them: {', '.join(stopped)}\n")
        else:
            users = [_with_name(each.user, each.name) for each in await pairing.paired() if each.user.isprintable()]
            sys.stdout.write("".join(f"{user}\n" for user in users) or "no user was let in by a code\n")
    return DONE


def _with_name(user: str, name: str) -> str:
    shown = "".join(char for char in name if char.isprintable())
    return f"{user} ({shown})" if shown else user


def _allows(config: Config, user: str) -> bool:
    """Whether `allow` serves the user, paired or not."""
    from tailrace.gateway.chat_settings import is_allowed

    platform, _, user_id = user.partition(":")
    settings = config.platforms.by_name.get(platform)
    return settings is not None and is_allowed(settings.allow, user_id)


async def _stop_runs_of(journal: Journal, user: str) -> list[str]:
    """The runs that the user asked for in chats and that had not ended, as `tailrace stop` stops them. The process
    that delivers them says so in the chat."""
    from tailrace.agent.session import TURN_KIND, last_words
    from tailrace.runs.recovery import stop

    owner, by = f"tailrace gateway {os.getpid()}", os.environ.get("USER", "")
    stopped: list[str] = []
    before: str | None = None
    while page := await journal.runs(kind=TURN_KIND, states=("pending", "running", "parked"), before=before):
        before = page[-1].id
        for run in page:
            if run.new.input.get("requester") == user:
                with contextlib.suppress(RunSealed):  # it has ended meanwhile
                    await stop(journal, run.id, owner, at=time.time(), by=by, last_words=last_words)
                    stopped.append(run.id)
    return stopped


def _nothing_to_serve(config: Config) -> str:
    """An integration that cannot be used counts as enabled nowhere: its section of the config is not read."""
    from tailrace.gateway.registry import enabled

    if any(enabled(config)):
        return "no platform could be started; tailrace doctor says what to do"
    if unusable := "; ".join(problems().values()):
        return f"no platform is enabled that can be used: {unusable}"
    return "no platform is enabled; tailrace add connects one (docs/chats.md)"


async def _gateway(args: argparse.Namespace, config: Config) -> None:
    from tailrace.app import open_app
    from tailrace.app.secrets.config_secrets import redactor_of
    from tailrace.app.telemetry.logging_setup import configure
    from tailrace.cli.config_reload import ConfigReloads
    from tailrace.gateway.gateway import Gateway
    from tailrace.gateway.webhooks import listening

    stop, asked = stop_event(), reload_event()
    redactor = redactor_of(config)
    configure(redactor, form=args.log, level=args.log_level or "info")
    async with open_app(config) as app, AsyncExitStack() as stack:
        gateway = Gateway(app)
        if not gateway.platforms:
            raise ConfigError(_nothing_to_serve(config), key="platforms")
        await stack.enter_async_context(app.processes)
        await stack.enter_async_context(gateway)
        if gateway.hook_paths:
            address = await stack.enter_async_context(listening(gateway, config.server.host, config.server.port))
            log.info("webhooks are at %s", address)
        await app.recover()
        names = [platform.name for platform in gateway.platforms]
        sys.stdout.write(f"tailrace serves {', '.join(names)}\n")
        sys.stdout.flush()
        log.info("%s", start_line(config, names))
        for problem in (*model_problems(config), *problems().values()):
            log.warning("%s", problem)
        async with asyncio.TaskGroup() as group:
            taking_over = group.create_task(app.keep_recovering())
            await ConfigReloads(app, asked, redactor, [gateway.prepared_platforms]).until(stop)
            app.hand_over_failing()
            taking_over.cancel()
        log.info("stopping; answers in flight have %g s to end", config.server.drain_s)
        await gateway.hand_over()
        await app.hand_over()
        await gateway.drain()  # while the webhooks listen
