"""Which database an address means, whatever else it says: its servers, the database and the schema.

Pure. What an address leaves out is what the driver takes then: the variables of PostgreSQL, and its defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

SCHEMA: Final = "tailrace"  # where no `?schema=` names another
_PORT: Final = "5432"
_THIS_MACHINE: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})


def store_place(url: str, variable: Callable[[str], str | None]) -> str:
    """The same text for each spelling of one database. The user, the password and options of the connection do not
    count. A url that cannot be read is its own text, without the password."""
    try:
        return _place(url, variable)
    except ValueError:
        return url.rpartition("@")[2]


def _place(url: str, variable: Callable[[str], str | None]) -> str:
    parts = urlsplit(url)
    option = dict(parse_qsl(parts.query))
    user, _, named = parts.netloc.rpartition("@")
    hosts = (named or option.get("host") or variable("PGHOST") or "").split(",")
    ports = (option.get("port") or variable("PGPORT") or _PORT).split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    servers = sorted({_server(host, port) for host, port in zip(hosts, ports, strict=True)})
    user = unquote(user.partition(":")[0]) or option.get("user") or variable("PGUSER") or ""
    database = unquote(parts.path[1:]) or option.get("dbname") or option.get("database") or variable("PGDATABASE")
    return f"{','.join(servers)}/{database or user}?schema={option.get('schema') or SCHEMA}"


def _server(host: str, port: str) -> str:
    """`HOST:PORT`. A directory is that of a socket on this machine."""
    split = urlsplit(f"//{host}") if host and not host.startswith(("/", "%2F", "%2f")) else None
    name = unquote(split.hostname or "") if split is not None else ""
    own = split.port if split is not None else None
    return f"{'localhost' if name in _THIS_MACHINE else name}:{own or port}"
