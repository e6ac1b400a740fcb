"""What the user has approved for good: digests in a file of their own, so that it holds after a restart."""

from __future__ import annotations

from collections.abc import Iterator, MutableSet
from pathlib import Path

import msgspec

from tailrace.errors import ConfigError


class AlwaysAllowed(MutableSet[str]):
    """A set of digests. Read when first asked, written whole at every change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._loaded: set[str] | None = None

    def __contains__(self, digest: object) -> bool:
        return digest in self._digests()

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests())

    def __len__(self) -> int:
        return len(self._digests())

    def add(self, value: str) -> None:
        self._digests().add(value)
        self._save()

    def discard(self, value: str) -> None:
        self._digests().discard(value)
        self._save()

    def _digests(self) -> set[str]:
        if self._loaded is None:
            try:
                self._loaded = msgspec.json.decode(self._file.read_bytes(), type=set[str])
            except FileNotFoundError:
                self._loaded = set()
            except (OSError, msgspec.DecodeError) as exc:
                raise ConfigError(f"cannot be read ({exc}); mend or remove it", file=str(self._file)) from exc
        return self._loaded

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(sorted(self._digests())))
        temporary.chmod(0o600)
        temporary.replace(self._file)
