"""Where the database is, how it is connected to, and what its errors mean.

The one module that translates asyncpg's exceptions. No message of this module names a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions
from asyncpg.connect_utils import SessionAttribute

from tailrace.errors import ConfigError, JournalError, StorageFailed

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
KEY = "store.url"
SCHEMA = "tailrace"  # where no `?schema=` names another
CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 30.0  # then the connection counts as lost
AWAY = "the database cannot be reached right now; what waits goes on when it can"
NO_SPACE = "the database has no space left; what waits goes on when it has"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_LOST = (  # the connection is gone or cannot be made; whether the last statement took effect is not known
    OSError,  # `TimeoutError` among them
    exceptions.PostgresConnectionError,
    exceptions.InterfaceError,
    exceptions.InternalClientError,
    exceptions.AdminShutdownError,
    exceptions.CrashShutdownError,
    exceptions.CannotConnectNowError,
    exceptions.IdleInTransactionSessionTimeoutError,
    exceptions.TooManyConnectionsError,
    exceptions.ReadOnlySQLTransactionError,  # a primary that has become a standby
)
_REFUSED = (  # nothing but a changed configuration helps
    exceptions.InvalidAuthorizationSpecificationError,  # a wrong password among them
    exceptions.InvalidCatalogNameError,
    exceptions.InsufficientPrivilegeError,
    exceptions.UndefinedObjectError,
    exceptions.CantChangeRuntimeParamError,
)


def is_lost(exc: BaseException) -> bool:
    """Whether the connection is gone or cannot be made. What the last statement did is not known then."""
    return isinstance(exc, _LOST) and not isinstance(exc, ValueError)  # asyncpg's errors of arguments are both


def is_conflict(exc: BaseException) -> bool:
    """Whether the transaction was rolled back for another one's sake: the same may succeed now."""
    return isinstance(exc, (exceptions.DeadlockDetectedError, exceptions.SerializationError))


class Address(NamedTuple):
    """A `postgresql://` url, taken apart."""

    dsn: str  # as asyncpg takes it
    schema: str
    shown: str  # without user and password


def parse_address(url: str) -> Address:
    """Raises `ConfigError` for a url that names no database."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        host, port = parts.hostname or "localhost", parts.netloc.rpartition("@")[2]
    except ValueError:
        raise _no_address() from None
    if parts.scheme not in ("postgresql", "postgres") or parts.netloc.count("@") > 1 or parts.fragment:
        raise _no_address()
    schema = next((value for name, value in pairs if name == "schema"), SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError("schema must be lower-case letters, digits and _, and not begin with pg_", key=KEY)
    query = urlencode([(name, value) for name, value in pairs if name != "schema"])
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    return Address(dsn, schema, f"{port or host}{parts.path}")


def _no_address() -> ConfigError:
    return ConfigError(
        "is no address of a database: use postgresql://user:password@host:5432/database,"
        " with special characters of the password percent-encoded",
        key=KEY,
    )


async def connect(address: Address, role: str, **settings: str) -> Connection:
    """A connection whose tables are those of the schema. `role` says in `pg_stat_activity` what it is for.
    Raises `ConfigError` for an address that asyncpg does not understand."""
    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
            target_session_attrs=None if "target_session_attrs" in address.dsn else SessionAttribute.read_write,
            server_settings={
                "application_name": f"tailrace {role}",
                "search_path": f'"{address.schema}"',
                "jit": "off",
                "idle_in_transaction_session_timeout": "10000",
                **settings,
            },
        )
    except ValueError:  # what it says may quote the address
        raise _no_address() from None


@contextmanager
def unreachable(address: Address) -> Iterator[None]:
    """While the process runs, a database that refuses its user is one that cannot be reached: tried again, as after a
    password was changed on both sides. `is_lost` holds for what this raises."""
    try:
        yield
    except ConfigError as exc:
        raise ConnectionError(exc.message) from exc
    except exceptions.PostgresError as exc:
        if is_lost(exc):
            raise
        raise ConnectionError(translation_of(address, exc).args[0]) from exc


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Translates asyncpg's errors into `ConfigError`, `StorageFailed` and `JournalError`."""
    try:
        yield
    except (exceptions.PostgresError, exceptions.InterfaceError, exceptions.InternalClientError, OSError) as exc:
        raise translation_of(address, exc) from exc


def translation_of(address: Address, exc: Exception) -> ConfigError | JournalError:
    """The error of ours that says the same."""
    if isinstance(exc, _REFUSED):
        return ConfigError(f"PostgreSQL at {address.shown} refuses: {_said(exc)}", key=KEY)
    return away(address, exc) if is_lost(exc) else failure_of(address, exc)


def away(address: Address, exc: Exception) -> StorageFailed:
    """The database is not there."""
    return StorageFailed(f"PostgreSQL at {address.shown} cannot be reached: {_said(exc)}", reason=AWAY)


def failure_of(address: Address, exc: Exception) -> JournalError:
    """What a statement failed with. `StorageFailed` where that is no matter of the statement."""
    if isinstance(exc, exceptions.DiskFullError):
        return StorageFailed(f"PostgreSQL at {address.shown} has no space left: {_said(exc)}", reason=NO_SPACE)
    if isinstance(
        exc,
        (
            exceptions.InsufficientResourcesError,
            exceptions.OperatorInterventionError,
            exceptions.PostgresSystemError,
            exceptions.UndefinedTableError,
            exceptions.TransactionRollbackError,
        ),
    ):
        return StorageFailed(f"PostgreSQL at {address.shown}: {_said(exc)}")
    return JournalError(f"PostgreSQL at {address.shown}: {_said(exc)}")


def _said(exc: Exception) -> str:
    """The error in one line. An error of the connection says what went wrong and nothing of the address."""
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, OSError):
        number = exc.errno or 0
        return os.strerror(number).lower() if number > 0 else exc.strerror or str(exc) or type(exc).__name__
    return " ".join(str(exc).split()) or type(exc).__name__
