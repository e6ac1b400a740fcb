"""Where the database is, how it is connected to, and what its errors mean.

The one module that translates asyncpg's exceptions. No message of this module names a password.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions
from asyncpg.connect_utils import SessionAttribute

from tailrace.errors import ConfigError, JournalError, StorageFailed

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
KEY = "store.url"
CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 30.0  # then the connection counts as lost
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
SESSION_ATTRIBUTES = ("read-write", "primary", "any")  # the journal writes: a standby is of no use to it
NO_SPACE = "the database has no space left; what waits goes on when it has"
SCHEMA = "tailrace"  # where no `?schema=` names another
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
    password: str | None = None  # where the url has none; None: as the driver finds it


def parse_address(url: str, password: str | None = None) -> Address:
    """`password` counts where the url has none. Raises `ConfigError` for a url that names no database."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        host, port = parts.hostname or "localhost", parts.netloc.rpartition("@")[2]
    except ValueError:
        raise _no_address() from None
    if parts.scheme not in ("postgresql", "postgres") or parts.netloc.count("@") > 1 or "@" in parts.path:
        raise _no_address()
    if parts.fragment:
        raise _no_address()
    _check_ports(port)
    _check_choice(pairs, "sslmode", SSL_MODES)
    _check_choice(pairs, "target_session_attrs", SESSION_ATTRIBUTES)
    schema = next((value for name, value in pairs if name == "schema"), SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError("schema must be lower-case letters, digits and _, and not begin with pg_", key=KEY)
    query = urlencode([(name, value) for name, value in pairs if name != "schema"])
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    in_url = parts.password is not None or any(name == "password" for name, _ in pairs)
    return Address(dsn, schema, f"{port or host}{parts.path}", None if in_url else password)


def dump_command(url: str, file: Path) -> str:
    """The command line that writes the journal to a file. It names no password: `pg_dump` reads `PGPASSWORD` and
    `~/.pgpass`, as Tailrace does. Raises `ConfigError` for a url that names no database."""
    address = parse_address(url)
    parts = urlsplit(address.dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name != "password"])
    source = urlunsplit(("postgresql", f"{user.partition(':')[0]}{at}{hosts}", parts.path, query, ""))
    return shlex.join(["pg_dump", "--format=custom", f"--schema={address.schema}", f"--file={file}", source])


def _check_ports(hosts: str) -> None:
    """Of one host or several, divided by commas."""
    for host in hosts.split(","):
        port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ConfigError("the port of the database must be a number from 1 to 65535", key=KEY)


def _check_choice(pairs: Sequence[tuple[str, str]], option: str, choices: Sequence[str]) -> None:
    if any(name == option and value not in choices for name, value in pairs):
        raise ConfigError(f"{option} must be one of: {', '.join(choices)}", key=KEY)


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
            password=address.password,
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
    except (ValueError, OverflowError):  # what it says may quote the address
        raise _no_address() from None


class Refused(ConnectionError):
    """The server answers and refuses this user, this database or a setting."""


@contextmanager
def unreachable() -> Iterator[None]:
    """While the process runs, a database that refuses its user is one that cannot be reached: tried again, as after a
    password was changed on both sides. `is_lost` holds for what this raises."""
    try:
        yield
    except ConfigError as exc:
        raise Refused(exc.message) from exc
    except exceptions.PostgresError as exc:
        if is_lost(exc):
            raise
        raise Refused(_said(exc)) from exc


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
        said = _said(exc)
        if said.startswith("permission denied for database"):  # to make the schema
            said += (
                f"; allow its user to make the schema {address.schema} (GRANT CREATE ON DATABASE … TO …),"
                f" or make it for that user (CREATE SCHEMA {address.schema} AUTHORIZATION …)"
            )
        return ConfigError(f"PostgreSQL at {address.shown} refuses: {said}", key=KEY)
    return away(address, exc) if is_lost(exc) else failure_of(address, exc)


def away(address: Address, exc: Exception, *, announced: bool = False) -> StorageFailed:
    """The database is not there."""
    cause = "it refuses the user" if isinstance(exc, Refused) else _said(exc)
    return StorageFailed(
        f"PostgreSQL at {address.shown} cannot be reached: {_said(exc)}",
        reason=f"the database cannot be reached right now ({cause}); what waits goes on when it can",
        announced=announced,
    )


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


_ERRNO = re.compile(r"\[Errno (\d+)\]")  # in the text of an error that stands for several


def _said(exc: Exception) -> str:
    """The error in one line. An error of the connection says what went wrong and nothing of the address."""
    match exc:
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return "its host name is unknown"
        case ssl.SSLCertVerificationError():
            return f"its TLS certificate is not trusted: {exc.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {exc.reason or 'the connection was cut'}"
        case Refused():
            return str(exc)
        case ConnectionError() if "rejected SSL upgrade" in str(exc):
            return "it offers no TLS, which sslmode asks for"
        case OSError():
            found = _ERRNO.search(str(exc))
            number = exc.errno or (int(found[1]) if found else 0)
            return os.strerror(number).lower() if number > 0 else exc.strerror or str(exc) or type(exc).__name__
        case exceptions.TargetServerAttributeNotMatched():
            return "none of the servers can be written to: each is a standby"
        case exceptions.InternalClientError():  # the words are about the driver's own states
            return "the connection was lost"
        case _:
            return " ".join(str(exc).split()) or type(exc).__name__
