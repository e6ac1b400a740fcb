"""Small state without storage."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.journal.waiters import Waiters


class MemoryState:
    """Everything is lost with the process."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], bytes] = {}  # by namespace and key
        self._counters: dict[str, float] = {}
        self._value_changed = Waiters()

    async def get_value(self, namespace: str, key: str) -> bytes | None:
        return self._values.get((namespace, key))

    async def list_values(self, namespace: str) -> dict[str, bytes]:
        return {key: value for (found, key), value in self._values.items() if found == namespace}

    async def swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        if self._values.get((namespace, key)) != old:
            return False
        if new is None:
            self._values.pop((namespace, key), None)
        else:
            self._values[namespace, key] = new
        self._value_changed.wake()
        return True

    async def next_value(self, namespace: str, key: str, known: bytes | None) -> bytes | None:
        while (value := self._values.get((namespace, key))) == known:
            await self._value_changed.next_time().wait()
        return value

    async def add_to_counters(self, amounts: Mapping[str, float]) -> dict[str, float]:
        self._counters |= {name: self._counters.get(name, 0.0) + amount for name, amount in amounts.items()}
        return {name: self._counters[name] for name in amounts}

    async def counters(self, prefix: str, first: str = "") -> dict[str, float]:
        return {name: value for name, value in self._counters.items() if name.startswith(prefix) and name >= first}

    async def remove_counters(self, prefix: str, before: str) -> None:
        for name in [name for name in self._counters if name.startswith(prefix) and name < before]:
            del self._counters[name]
