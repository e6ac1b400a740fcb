"""`tailrace keys`: makes, lists and revokes keys of the API. Every server on the store knows it at once.

The key itself is shown once, when it is made: the store has its digest alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

import msgspec

from tailrace.app.costs import dollars
from tailrace.app.usage.stored_keys import StoredKey, StoredKeys, check_new_key, new_key
from tailrace.cli.argument_types import whole_number
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.runs.console import place_of, print_note
from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style
from tailrace.config.load import Config
from tailrace.config.sections import Scope, ServerKey
from tailrace.errors import ConfigError

_COLUMNS = (
    Column("name", style=no_style),
    Column("scopes"),
    Column("models", need=1),
    Column("rpm", right=True, need=2),
    Column("tokens/day", right=True, need=4),
    Column("usd/day", right=True, need=3),
    Column("from", need=5),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a key, and print it once")
    add.add_argument("name", metavar="NAME", help="what its usage is counted under")
    scopes = ", ".join(get_args(Scope))
    add.add_argument("--scopes", metavar="SCOPES", default="models,runs", help=f"of {scopes}; default: models,runs")
    add.add_argument("--models", metavar="MODELS", default="", help="that it may use, with *; default: all")
    add.add_argument("--rpm", metavar="N", type=whole_number(1), help="requests a minute")
    add.add_argument("--tokens-per-day", metavar="N", type=whole_number(1), help="input and output of a UTC day")
    add.add_argument("--usd-per-day", metavar="USD", type=_amount, help="by list prices, of a UTC day")
    listing = actions.add_parser("ls", help="the keys of the store and of the config")
    listing.add_argument("--json", action="store_true", help="print JSON, one object a line")
    revoke = actions.add_parser("revoke", help="no server lets this key in any more")
    revoke.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace, config: Config) -> int:
    """Raises `ConfigError`, `JournalError`."""
    if not config.store_is_kept:
        raise ConfigError("no server sees this store; keys need one that is kept", key="store.url")
    if args.action == "add":
        return _add(args, config)
    if args.action == "revoke":
        asyncio.run(_revoke(config, args.name))
        print_note(f"the key {args.name!r} is revoked in {place_of(config)}")
        return DONE
    keys = asyncio.run(_stored(config))
    if args.json:
        sys.stdout.writelines(f"{msgspec.json.encode(row).decode()}\n" for row in _as_json(config, keys))
    elif rows := _rows(config, keys):
        sys.stdout.writelines(
            f"{line.plain.rstrip()}\n" for line in FittedTable(_COLUMNS, "models", 8).lines(rows, None)
        )
    else:
        print_note(f"there is no key in the config, and none in {place_of(config)}; tailrace keys add NAME makes one")
    return DONE


def _add(args: argparse.Namespace, config: Config) -> int:
    check_new_key(config, args.name, args.usd_per_day)
    secret, digest = new_key()
    key = StoredKey(
        digest,
        _scopes(args.scopes),
        tuple(_parts(args.models)),
        args.rpm,
        args.tokens_per_day,
        args.usd_per_day,
        created_at=time.time(),
    )
    is_first = asyncio.run(_keep(config, args.name, key)) and not config.server.keys
    print_note(f"the key {args.name!r} is shown this once, and every server on {place_of(config)} takes it now:")
    sys.stdout.write(f"{secret}\n")
    if is_first and config.secret(config.server.key_env) is None:
        print_note("it is the first one: from now on these servers answer 401 without a key")
    return DONE


async def _keep(config: Config, name: str, key: StoredKey) -> bool:
    """Whether the store had no key before."""
    async with own_journal(config, make=True) as journal:
        await StoredKeys(journal).add(name, key)
        return len(await StoredKeys(journal).all()) == 1


async def _revoke(config: Config, name: str) -> None:
    if name in {key.name for key in config.server.keys}:
        raise ConfigError(f"the key {name!r} is in the config: remove it there, then tailrace reload")
    async with own_journal(config) as journal:
        await StoredKeys(journal).revoke(name)


async def _stored(config: Config) -> dict[str, StoredKey]:
    if config.database is not None and not config.database.exists():  # looking creates nothing
        return {}
    async with own_journal(config) as journal:
        return await StoredKeys(journal).all()


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"expected an amount in dollars above 0; found {text[:40]!r}")
    return amount


def _scopes(text: str) -> tuple[Scope, ...]:
    known = {str(scope): scope for scope in get_args(Scope)}
    if unknown := [part for part in _parts(text) if part not in known]:
        raise ConfigError(f"--scopes: there is no scope {unknown[0]!r}; there are {', '.join(known)}")
    if not (scopes := tuple(known[part] for part in _parts(text))):
        raise ConfigError("--scopes: a key needs at least one scope")
    return scopes


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _rows(config: Config, stored: Mapping[str, StoredKey]) -> list[list[str]]:
    own = [_row(key.name, key, "config") for key in config.server.keys]
    rest = sorted(stored.items(), key=lambda item: item[1].created_at)
    made = [datetime.fromtimestamp(key.created_at, UTC).date() for _, key in rest]
    return own + [_row(name, key, f"store, {day}") for (name, key), day in zip(rest, made, strict=True)]


def _row(name: str, key: StoredKey | ServerKey, source: str) -> list[str]:
    rpm, tokens, usd = key.requests_per_minute, key.tokens_per_day, key.usd_per_day
    return [
        name,
        ",".join(key.scopes),
        ",".join(key.models) or "all",
        "" if rpm is None else f"{rpm:,}",
        "" if tokens is None else f"{tokens:,}",
        "" if usd is None else dollars(usd),
        source,
    ]


def _as_json(config: Config, stored: Mapping[str, StoredKey]) -> list[dict[str, object]]:
    limits = ("scopes", "models", "requests_per_minute", "tokens_per_day", "usd_per_day")
    found = [(key.name, key, "config") for key in config.server.keys]
    both: list[tuple[str, StoredKey | ServerKey, str]] = [
        *found,
        *((name, key, "store") for name, key in stored.items()),
    ]
    return [
        {"name": name, "source": source, **{field: getattr(key, field) for field in limits}}
        for name, key, source in both
    ]
