"""The C extension `tailrace-relay` (`tailrace[speed]`): None where it is not installed. It relays what `_Relay` of
`providers/http/streamed_answer.py` does, from socket to socket: -41 % CPU per paced token (bench gateway, `relay`
beside raw). It leaves everything else to Python."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from types import ModuleType

EXTENSION: ModuleType | None = None
with suppress(ImportError):
    EXTENSION = import_module("tailrace_relay")
