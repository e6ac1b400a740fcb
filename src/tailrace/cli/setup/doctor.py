"""`tailrace doctor`: checks everything that the config needs, and says how to fix what is missing.

Changes nothing, but for the modes of files with `--fix`. The checks are independent: one that fails hides no other.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shlex
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tailrace import __version__
from tailrace.cli.main import DONE, FAILED
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.cli.setup.finding import Finding, State
from tailrace.cli.setup.platform_questions import STREAM_THERE, is_whole_by_default, questions_of
from tailrace.config.env_file import FILE_NAME as ENV_FILE
from tailrace.config.error_place import with_place
from tailrace.config.load import CONFIG_FILE, Config, load
from tailrace.config.sections import ModelRef
from tailrace.errors import ConfigError, JournalError, PeerError, PlatformError, ProviderError, TailraceError
from tailrace.plugins.installed import Installed, installed, platforms, problems
from tailrace.ports import RunState, Versioned
from tailrace.system.extras import install_command
from tailrace.system.own_program import typed
from tailrace.system.private_files import is_open_to_others, tighten
from tailrace.values.urls import without_credentials

MARKS: Final[dict[State, str]] = {"ok": "✓", "note": "·", "broken": "✗"}
REACH_TIMEOUT_S: Final = 5.0
OPEN_TIMEOUT_S: Final = 30.0  # for the store, which may be brought to a new format first
REPAIR: Final = "repair its package, or uninstall it"
RESTORE: Final = "a backup is restored as docs/operations.md says, with every tailrace process stopped"
OWNER: Final = "it must be the user's that runs tailrace, on a file system that is not read-only"
PARKED: Final[tuple[RunState, ...]] = ("parked",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", help="do not contact providers and platforms")
    parser.add_argument("--fix", action="store_true", help="take the rights of other users from your files first")


def run(args: argparse.Namespace) -> int:
    """0 nothing is broken, 1 something is."""
    return asyncio.run(_run(offline=args.offline, fix=args.fix))


async def _run(*, offline: bool, fix: bool) -> int:
    broken = False
    async for finding in findings(offline=offline, fix=fix):
        broken = broken or finding.state == "broken"
        print(f"{MARKS[finding.state]} {sanitized_line(finding.what, 500)}")  # noqa: T201 - the report is the output
        if finding.advice:
            print(f"    {sanitized_line(finding.advice, 500)}")  # noqa: T201 - the report is the output
    return FAILED if broken else DONE


async def findings(*, offline: bool = False, fix: bool = False) -> AsyncIterator[Finding]:
    yield Finding("ok", f"tailrace {__version__}, Python {platform.python_version()}, {sys.platform}")
    try:
        config = load(os.environ)
    except ConfigError as exc:
        yield Finding("broken", str(exc), OWNER if "cannot be read" in exc.message else "mend that line of the file")
        return
    for path in _open_paths(config) if fix else ():
        tighten(path)
        if not is_open_to_others(path):
            yield Finding("ok", f"fixed: other users may not read {path} any more")
    for check in (_files, _models, _integrations, _mcp_servers, _secrets, _keys):
        for finding in check(config):
            yield finding
    if not offline:
        async for finding in _endpoints(config):
            yield finding
        async for finding in _platforms(config):
            yield finding
    yield await _bus(config)
    yield await _store(config)


# ── on this machine ──────────────────────────────────────────────────────────────────────────────────────────


def _files(config: Config) -> Iterator[Finding]:
    file = config.home / CONFIG_FILE
    if file.exists():
        yield Finding("ok", f"config {file}")
    else:
        advice = f"{typed('init')} writes one, with streaming on"
        yield Finding("note", f"no config at {file}: the defaults hold", advice)
    place = next(path for path in (config.home, *config.home.parents) if path.exists())
    if not os.access(place, os.W_OK):
        yield Finding("broken", f"{place} cannot be written to", "set TAILRACE_HOME to a directory of yours")
    if found := _open_paths(config):
        names = ", ".join(map(str, found))
        advice = f"chmod go-rwx {shlex.join(map(str, found))}  # or: {typed('doctor --fix')}"
        yield Finding("broken", f"other users of this machine may read {names}", advice)
    if not config.streams("cli"):
        yield Finding("note", "streaming is off: answers appear whole", "streaming: {enabled: true}, or --stream")


def _open_paths(config: Config) -> list[Path]:
    """Conversations, tool output and histories are for their owner alone: those that other users may read."""
    kept = [config.home, config.home / ENV_FILE, config.home / "history", config.home / "checkpoints"]
    if (database := config.database) is not None:
        kept += [database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm", "-pipes")]
    return [path for path in kept if is_open_to_others(path)]


def _refs(config: Config) -> list[ModelRef]:
    """The configured model and its fallbacks, in order."""
    return [ModelRef(config.model.provider, config.model.name), *config.model.fallbacks]


def _models(config: Config) -> Iterator[Finding]:
    from tailrace.app.models import LOCAL, endpoint_of, is_known

    for ref in _refs(config):
        name = f"model {ref.provider}/{ref.name}"
        if ref.provider == LOCAL:
            yield from _embedded(config, ref.name)
            continue
        try:
            endpoint_of(config, ref.provider)
        except ConfigError as exc:
            advice = "see providers in the config"
            if not is_known(config, ref.provider):
                advice = "mend its name below model, or add it to providers"
            elif exc.key.endswith("key_env"):
                advice = "export it before you start tailrace"
            yield Finding("broken", f"{name}: {with_place(exc, config)}", advice)
        else:
            yield Finding("ok", name)


def _embedded(config: Config, model: str) -> Iterator[Finding]:
    from tailrace.app.models import not_embedded
    from tailrace.providers.local.provider import MODEL_NAME

    name, settings = f"model local/{model}", config.providers.get("local")
    file = settings.model_path if settings is not None else None
    if file is None and model != MODEL_NAME:
        problem = with_place(not_embedded(config, model), config)
        advice = f"name its provider below model, or choose one with {typed('init')}"
        yield Finding("broken", f"{name}: {problem}", advice)
    elif find_spec("xllamacpp") is None:
        advice = f"{install_command('local')}, or choose another model with {typed('init')}"
        yield Finding("broken", f"{name}: its engine is not installed", advice)
    elif file is not None and not config.path(file).is_file():
        advice = "set providers.local.model_path to a GGUF file"
        yield Finding("broken", f"{name}: no file {config.path(file)}", advice)
    elif file is None and not any((config.home / "models").glob("*.gguf")):
        yield Finding("note", f"{name}: not downloaded yet; the first chat does it (93 MB)")
    else:
        yield Finding("ok", name)


def _integrations(config: Config) -> Iterator[Finding]:
    """What is installed of the enabled platforms and of the commands of protocols; then each one's own checks."""
    for problem in problems().values():
        yield Finding("broken", problem, REPAIR)
    for found in installed().values():
        name, extra, commands = found.integration.name, found.integration.extra, found.integration.commands
        settings = config.platforms.by_name.get(name)
        if settings is not None and settings.enabled:
            if _lacks_library(found):
                yield Finding("broken", f"platforms.{name}: its library is not installed", install_command(extra))
            elif problem := _unloadable(found):
                yield Finding("broken", problem, REPAIR)
            elif found.integration.library:
                yield Finding("ok", f"platforms.{name}: its library is installed")
        for command in commands if found.integration.library else ():
            if _lacks_library(found):
                yield Finding("note", f"tailrace {command}: what it needs is not installed", install_command(extra))
            else:
                yield Finding("ok", f"tailrace {command}: what it needs is installed")
        yield from _own_checks(found, config)


def _lacks_library(found: Installed) -> bool:
    return bool(found.integration.library) and find_spec(found.integration.library) is None


def _unloadable(found: Installed) -> str:
    """Why the adapter of a platform cannot be loaded; empty where it can."""
    try:
        found.load(found.integration.platform, key=f"platforms.{found.integration.name}")
    except ConfigError as exc:
        return str(exc)
    return ""


def _own_checks(found: Installed, config: Config) -> Iterator[Finding]:
    if not found.integration.checks:
        return
    try:
        yield from found.call_for_each(Finding, found.integration.checks, config)
    except TailraceError as exc:
        yield Finding("broken", str(exc), REPAIR)


def _mcp_servers(config: Config) -> Iterator[Finding]:
    """What no server of these can do without. It starts none of them."""
    if config.mcp.servers and find_spec("mcp") is None:
        yield Finding("broken", "mcp.servers: MCP servers need an extra", install_command("mcp"))
    for name, server in config.mcp.servers.items():
        place = f"mcp.servers.{name}"
        if server.command and shutil.which(server.command[0], path=config.environment.get("PATH")) is None:
            yield Finding("broken", f"{place}: there is no program {server.command[0]}", "install it, or name its path")
        for variable in filter(None, (server.key_env, *server.headers_env.values())):
            if config.secret(variable) is None:
                yield Finding("broken", f"{place}: {variable} is not set", "export it before you start")


def _keys(config: Config) -> Iterator[Finding]:
    """The keys of the server's callers: `tailrace serve` does not start without what they name."""
    from tailrace.app.models import LOCAL
    from tailrace.config.presets import PRESETS

    problems = list(_key_problems(config))
    yield from problems
    if not problems:
        from tailrace.server.http.auth import Authoriser

        try:
            Authoriser.of(config)
        except ConfigError as exc:
            yield Finding("broken", str(exc), "each of server.keys needs a name and a secret of its own")
    known = {LOCAL, *PRESETS, *config.providers}
    for index, key in enumerate(config.server.keys):
        for provider in (pattern.partition("/")[0] for pattern in key.models if "/" in pattern):
            if provider not in known and not set(provider) & set("*?["):
                what = f"server.keys[{index}].models: there is no provider {provider!r}"
                yield Finding("broken", what, "the key may use nothing of it; see providers in the config")


def _key_problems(config: Config) -> Iterator[Finding]:
    from tailrace.app.costs import has_prices

    for index, key in enumerate(config.server.keys):
        place = f"server.keys[{index}]"
        try:
            config.require_secret(key.key_env, f"{place}.key_env")
        except ConfigError as exc:
            yield Finding("broken", str(exc), "export it before you start tailrace serve")
        if key.usd_per_day is not None and not has_prices(config):
            yield Finding("broken", f"{place}.usd_per_day: prices need an extra", install_command("prices"))


async def _bus(config: Config) -> Finding:
    from tailrace.journal.open_journal import check_bus, make_bus

    try:
        if make_bus(config.bus.url, config.store.url) is None:
            return Finding("ok", "bus: none; processes hear of each other's runs through the store")
        async with asyncio.timeout(OPEN_TIMEOUT_S):  # its own time-outs are shorter, and say more
            await check_bus(config.bus.url)
    except ConfigError as exc:
        return Finding("broken", str(exc), "bus: {url: auto}, or leave it out")
    except (JournalError, TimeoutError) as exc:
        reason = str(exc) or f"no answer within {OPEN_TIMEOUT_S:g} s"
        return Finding("broken", f"bus: {reason}", "nothing is lost without it; viewers read the store meanwhile")
    return Finding("ok", f"bus {without_credentials(config.bus.url)}: it answers")


def _secrets(config: Config) -> Iterator[Finding]:
    for name, settings in config.platforms.by_name.items():
        if not settings.enabled:
            continue
        variables = settings.secrets()
        unset = [variable for variable in variables.values() if config.secret(variable) is None]
        enough = not settings.needs_every_secret and len(unset) < len(variables)
        for variable in () if enough else unset:
            yield Finding("broken", f"platforms.{name}: {variable} is not set", "export it before you start")
        for field, variable in variables.items():
            if variable not in unset:
                yield from _unusable_secret(config, variable, f"platforms.{name}.{field}")
        if not settings.allow:
            let_in = f"platforms.{name}.allow: [your id]; or write to the bot, and {typed('gateway --pair CODE')}"
            yield Finding("note", f"platforms.{name}.allow is empty: only who was let in by a code is served", let_in)
        yield from _odd_users(name, settings.allow)
        if is_whole_by_default(config, name):
            yield Finding("note", f"platforms.{name}: answers appear whole", STREAM_THERE)
    asked = {ref.provider for ref in _refs(config)}  # what these lack stands with their models
    for name, provider in config.providers.items():
        if name not in asked and provider.key_env and config.secret(provider.key_env) is None:
            yield Finding("note", f"providers.{name}: {provider.key_env} is not set", "export it to use that provider")


def _unusable_secret(config: Config, variable: str, key: str) -> Iterator[Finding]:
    try:
        config.require_secret(variable, key)
    except ConfigError as exc:
        yield Finding("broken", str(exc), "copy it again, as one line")


def _odd_users(name: str, allow: tuple[str, ...]) -> Iterator[Finding]:
    try:
        questions = questions_of(name)
    except ConfigError as exc:
        yield Finding("broken", str(exc), REPAIR)
        return
    if questions is not None and (odd := questions.user_ids.odd(allow)):
        what = f"platforms.{name}.allow: {', '.join(odd)} is no user's id"
        yield Finding("broken", what, f"an id looks like {questions.user_ids.example}")


async def _store(config: Config) -> Finding:
    """Which store there is, its format, and whether it can be read and written."""
    from tailrace.app.health import unavailable_parts
    from tailrace.journal.open_journal import open_journal
    from tailrace.journal.stored.storage_format import ForeignStore

    file = config.database
    shown = f"SQLite {file}" if file is not None else without_credentials(config.store.url)
    if file is not None and (finding := _unopened(file, shown)) is not None:
        return finding
    try:
        if file is not None and (damage := await asyncio.to_thread(_damage, file)):
            return Finding("broken", f"store {shown}: {damage}", RESTORE)
        async with (
            asyncio.timeout(OPEN_TIMEOUT_S),
            open_journal(config.store.url, file, password=config.store_password, make=False) as journal,
        ):
            parked = await journal.runs(states=PARKED)
            missing = await unavailable_parts(journal, timeout_s=REACH_TIMEOUT_S)
            version = journal.schema_version if isinstance(journal, Versioned) else 0
    except TimeoutError:
        what = f"store {shown}: no answer within {OPEN_TIMEOUT_S:g} s"
        return Finding("broken", what, "is it running, and reachable?")
    except ForeignStore as exc:
        return Finding("broken", f"store: {exc}")
    except (TailraceError, OSError, sqlite3.Error) as exc:
        if file is None:  # the message names the server itself
            advice = "store.url names the user, the server and its database; the password may be in PGPASSWORD"
            return Finding("broken", f"store: {exc.message if isinstance(exc, ConfigError) else exc}", advice)
        return Finding("broken", f"store {shown}: {str(exc).removeprefix(f'{file} ')}", RESTORE)
    if not version and config.store_is_kept:
        return Finding("ok", f"store {shown}: no journal is there yet; the first run makes it")
    shown = f"store {shown}{f', format {version}' if version else ''}"
    if "store" in missing:
        return Finding("broken", f"{shown}: {missing['store']}", "no run can be recorded before that is mended")
    if parked:
        return Finding("note", f"{shown}: {len(parked)} runs are set aside", f"{typed('runs --unfinished')} lists them")
    return Finding("ok", f"{shown}: can be read and written")


def _unopened(file: Path, shown: str) -> Finding | None:
    """Why the file is not even opened, where it is not."""
    from tailrace.journal.sqlite.integrity import unwritable

    if (place := unwritable(file)) is not None:
        return Finding("broken", f"store {shown}: {place} cannot be written to", OWNER)
    if file.is_dir():
        return Finding("broken", f"store {shown}: it is a directory", "set store.url to a file")
    return None if file.exists() else Finding("ok", f"store {shown}: not there yet; the first run makes it")


def _damage(file: Path) -> str:
    """The first problem that SQLite finds in the file; empty when there is none. Raises `CorruptLog` for a file that is
    no database: the message says how to recover what is in it."""
    from tailrace.journal.sqlite.integrity import check_file, translated

    check_file(file)
    with translated(file), closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return "" if result == "ok" else str(result)


# ── over the network ─────────────────────────────────────────────────────────────────────────────────────────


async def _endpoints(config: Config) -> AsyncIterator[Finding]:
    from tailrace.app.models import LOCAL

    names = [*(ref.provider for ref in _refs(config)), *config.providers]
    for name in dict.fromkeys(names):
        if name != LOCAL and (finding := await _endpoint(config, name)) is not None:
            yield finding


async def _endpoint(config: Config, name: str) -> Finding | None:
    """Tried with the list of its models: a request that costs nothing and needs the key."""
    from tailrace.app.models import endpoint_of
    from tailrace.providers.http.provider import HttpProvider
    from tailrace.providers.transport.http1_transport import open_transport

    try:
        endpoint = endpoint_of(config, name)
    except ConfigError:
        return None  # reported already
    try:
        async with asyncio.timeout(REACH_TIMEOUT_S), open_transport(config.transport) as transport:
            await HttpProvider(endpoint, transport).list_models()
    except ConfigError as exc:
        return Finding("broken", str(with_place(exc, config)), "copy that value again, in plain ASCII")
    except (ProviderError, TimeoutError) as exc:
        status = exc.status if isinstance(exc, ProviderError) else None
        if status in (401, 403):
            return Finding("broken", f"{name}: {endpoint.host} refused the key ({status})", "set a valid key")
        if status is None and not isinstance(exc, PeerError):
            what = f"{name}: {str(exc) or f'no answer from {endpoint.host} in time'}"
            return Finding("broken", what, "check that it runs and that the network reaches it")
    return Finding("ok", f"{name}: {endpoint.host} answers")


def _reported_already(platform_name: str, problem: ConfigError) -> bool:
    """By the checks on this machine: an extra that is not installed, an adapter that cannot be loaded, a secret that is
    not set or cannot be one."""
    found = platforms()[platform_name]
    return problem.key.endswith("_env") or _lacks_library(found) or bool(_unloadable(found))


def _doubt(error: PlatformError | TimeoutError) -> str:
    """What to look at first; nothing where the reason says it."""
    reason = str(error)
    if isinstance(error, TimeoutError) or "no connection" in reason or "cannot reach" in reason:
        return "does this machine reach it (network, DNS, proxy)? "
    refused = error.permanent and ("token" in reason or "login" in reason) and "password_env" not in reason
    return "is the token valid? " if refused else ""


async def _platforms(config: Config) -> AsyncIterator[Finding]:
    """Whether each enabled platform accepts the token, tried with a call that costs nothing."""
    from tailrace.gateway.registry import enabled, make_platform

    for name in enabled(config):
        try:
            platform_ = make_platform(config, name)
        except ConfigError as exc:
            if not _reported_already(name, exc):
                yield Finding("broken", str(exc), f"see docs/integrations/{name}.md")
            continue
        try:
            async with asyncio.timeout(REACH_TIMEOUT_S):
                yield Finding("ok", f"{name}: {await platform_.check()}")
        except (PlatformError, TimeoutError) as exc:
            reason = str(exc).removeprefix(f"{name}: ") or "no answer in time"
            yield Finding("broken", f"{name}: {reason}", f"{_doubt(exc)}see docs/integrations/{name}.md")
        finally:
            await platform_.close()
