"""What single endpoints get wrong or need: the entries of `quirks.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tailrace.messages import Dialect

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class WireQuirks(msgspec.Struct, frozen=True):
    """Deviations that cannot be detected from the bytes: the caller tells a decoder which apply. All off: the provider
    speaks its dialect as documented."""

    cumulative_text: bool = False  # each delta repeats the whole text so far (A17)
    name_in_pieces: bool = False  # a tool's name arrives in pieces to be joined (B28)
    ends_without_done: bool = False  # the finish reason is the terminal event: `[DONE]` is never sent (D48)


NONE = WireQuirks()


class Routing(msgspec.Struct, frozen=True):
    """Preferences among the hosts behind a router, in OpenRouter's terms: its field `provider`."""

    ignore: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


class Quirk(msgspec.Struct, frozen=True, kw_only=True):
    """One known deviation. Without a host it holds only where an endpoint names it."""

    name: str
    why: str  # where it is documented
    host: str = ""  # this host and its subdomains
    models: tuple[str, ...] = ("*",)  # globs on the model's name in lower case; any of them
    dialects: tuple[Dialect, ...] = ()  # empty: all
    cumulative_text: bool = False  # each delta repeats the whole text so far
    name_in_pieces: bool = False  # a tool's name arrives in pieces to be joined
    ends_without_done: bool = False  # the finish reason is the terminal event: `[DONE]` is never sent
    routing: Routing | None = None
    body: Mapping[str, Any] = _NOTHING  # fields that it needs
    drop: tuple[str, ...] = ()  # fields the endpoint refuses
    of_config: bool = False  # the user wrote it: `drop` holds for what a request brings too
    rename: Mapping[str, str] = _NOTHING  # fields it calls otherwise
    add_to_prefill: Mapping[str, Any] | None = None  # it goes on from a last assistant message, given these fields


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    quirks: tuple[Quirk, ...]


REGISTRY = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table).quirks
NAMES = frozenset(quirk.name for quirk in REGISTRY)
