"""Small state in the journal: one namespace as values of one type.

Every change is a compare-and-set on one key, so processes that change the same namespace lose nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from tailrace.errors import CorruptLog
from tailrace.ports import SmallState
from tailrace.values.validation_words import decoding_problem

Stored = TypeVar("Stored")


class KeyValues(Generic[Stored]):
    """The values of one namespace, by key. Raises `CorruptLog` for a value of another type."""

    def __init__(self, journal: SmallState, namespace: str, kind: type[Stored]) -> None:
        self._journal = journal
        self._namespace = namespace
        self._decoder = msgspec.json.Decoder(kind)

    async def get(self, key: str) -> Stored | None:
        return self._decoded(key, await self._journal.get_value(self._namespace, key))

    async def all(self) -> dict[str, Stored]:
        found = await self._journal.list_values(self._namespace)
        return {key: value for key, data in found.items() if (value := self._decoded(key, data)) is not None}

    async def readable(self) -> tuple[dict[str, Stored], dict[str, CorruptLog]]:
        """As `all`; a value that cannot be read keeps back no other: the error of each is beside them, by key."""
        values: dict[str, Stored] = {}
        unreadable: dict[str, CorruptLog] = {}
        for key, data in (await self._journal.list_values(self._namespace)).items():
            try:
                if (value := self._decoded(key, data)) is not None:
                    values[key] = value
            except CorruptLog as exc:
                unreadable[key] = exc
        return values, unreadable

    async def set_aside(self, key: str) -> None:
        """Moves the value into the namespace `<namespace>.unreadable`, as it is: the key is free. There one value of a
        key is kept, the last one."""
        data = await self._journal.get_value(self._namespace, key)
        aside = f"{self._namespace}.unreadable"
        before = await self._journal.get_value(aside, key)
        if data is not None and await self._journal.swap_value(aside, key, before, data):
            await self._journal.swap_value(self._namespace, key, data, None)

    async def update(self, key: str, change: Callable[[Stored | None], Stored | None]) -> Stored | None:
        """Replaces the value by what `change` makes of it, and returns that; None stands for no value. `change` is
        called again with the newer value where another process came first."""
        while True:
            old = await self._journal.get_value(self._namespace, key)
            value = change(self._decoded(key, old))
            new = None if value is None else msgspec.json.encode(value)
            if new == old or await self._journal.swap_value(self._namespace, key, old, new):
                return value

    async def replace(self, old: Stored | None, key: str, value: Stored) -> bool:
        """Stores the value where it is `old` that is stored now; returns whether it is. Saves reading what is known."""
        known = None if old is None else msgspec.json.encode(old)
        return await self._journal.swap_value(self._namespace, key, known, msgspec.json.encode(value))

    async def set_default(self, key: str, value: Stored) -> None:
        """Stores the value where there is none."""
        await self._journal.swap_value(self._namespace, key, None, msgspec.json.encode(value))

    def _decoded(self, key: str, data: bytes | None) -> Stored | None:
        try:
            return None if data is None else self._decoder.decode(data)
        except msgspec.DecodeError as exc:
            raise CorruptLog(
                f"{self._namespace}: the value of {key!r} cannot be read: {decoding_problem(exc)}"
            ) from exc
