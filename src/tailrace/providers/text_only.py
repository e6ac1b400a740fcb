"""Which models have said that they take no images. What is remembered is forgotten after a while, and as soon as the
model answers a request with an image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

REPROBE_S: Final = 3600.0
MAX_ROUTES: Final = 1024  # remembered at once: clients name any model they like
Model = tuple[str, str]  # the provider's name, the model's


class TextOnlyModels:
    """Bounded: the oldest is forgotten first."""

    def __init__(self, *, reprobe_s: float = REPROBE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._reprobe_s, self._clock = reprobe_s, clock
        self._until: dict[Model, float] = {}

    def holds_all(self, models: Iterable[Model]) -> bool:
        """Whether none of these takes images. One that may take them is to be asked with them."""
        if not self._until:
            return False
        now = self._clock()
        return all(now < self._until.get(model, now) for model in models)

    def remember(self, model: Model) -> None:
        self._until.pop(model, None)
        if len(self._until) >= MAX_ROUTES:
            del self._until[next(iter(self._until))]
        self._until[model] = self._clock() + self._reprobe_s

    def forget(self, model: Model) -> None:
        """It has read an image."""
        self._until.pop(model, None)
