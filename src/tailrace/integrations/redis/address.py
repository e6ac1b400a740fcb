"""Where Redis is, and what its errors mean. No message of this module names a password."""

from __future__ import annotations

import os
import re
import socket
import ssl
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tailrace.errors import ConfigError

KEY = "bus.url"
CONNECT_TIMEOUT_S = 5.0
_DATABASE = re.compile(r"/?|/\d{1,9}")
_ERRNO = re.compile(r"\[Errno (\d+)\]|^Error (\d+) connecting")


def client_of(url: str, timeout_s: float) -> Redis:
    """A client with one connection, not yet made. Raises `ConfigError` for an address that can never work."""
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ConfigError("special characters of the password must be percent-encoded", key=KEY)
    if not _DATABASE.fullmatch(parts.path):
        raise ConfigError("the database of Redis is a number, as in redis://localhost:6379/0", key=KEY)
    try:
        client = Redis.from_url(
            url,
            single_connection_client=True,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
    except ValueError as exc:
        raise ConfigError(f"not an address of Redis: {exc}", key=KEY) from exc
    try:
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RedisError, OSError) as exc:
        options = ", ".join(sorted({pair.partition("=")[0] for pair in parts.query.split("&")}))
        raise ConfigError(f"unknown option of Redis: {options}", key=KEY) from exc
    return client


def shown(url: str) -> str:
    """The address without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def said(exc: BaseException, url: str) -> str:
    """The error in one line that says what went wrong."""
    cause = _cause(exc)
    match cause:
        case AuthenticationError() if "required" in str(cause):
            return "it asks for a password, and the address has none"
        case AuthenticationError():
            return "it refuses the user or the password"
        case NoPermissionError():
            return f"its user may not do this: {cause}"
        case socket.gaierror():
            return "its host name is unknown"
        case ssl.SSLCertVerificationError():
            return f"its TLS certificate is not trusted: {cause.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {cause.reason or 'the connection was cut'}"
        case TimeoutError() | RedisTimeoutError():
            return "no answer in time" + ("; does it speak TLS (rediss:)?" if url.startswith("rediss:") else "")
        case _:
            pass
    text = " ".join(str(cause).split()).rstrip(".")
    if "DB index is out of range" in text:
        return f"it has no database {urlsplit(url).path[1:]}"
    if text == "Connection closed by server":
        return "it closed the connection"
    found = _ERRNO.search(text)
    number = getattr(cause, "errno", None) or (int(found[1] or found[2]) if found else 0)
    return os.strerror(number).lower() if number > 0 else text or type(cause).__name__


def _cause(exc: BaseException) -> BaseException:
    """What the client library wraps in an error of its own."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, (OSError, AuthenticationError, NoPermissionError)):
            return cause
        cause = cause.__cause__ or cause.__context__
    return exc
