"""The chat platforms that this process should serve and is not connected to, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class PlatformsDown:
    """A platform that another process serves is not among them."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._tell: Callable[[str, bool], None] = lambda *_: None

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why, by the platform's name."""
        return self._reasons

    def mark(self, name: str, reason: str) -> None:
        self._reasons[name] = reason
        self._tell(name, True)

    def clear(self, name: str) -> None:
        """It is connected, or another process serves it."""
        self._reasons.pop(name, None)
        self._tell(name, False)

    def watch(self, tell: Callable[[str, bool], None]) -> None:
        """`tell` is called with each platform that is down or no longer is, those of now included."""
        self._tell = tell
        for name in self._reasons:
            tell(name, True)
