"""Fields of ours that an endpoint refuses: recognised by its error, left out, and remembered for a while. A field that
the user or the client wrote is never left out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tailrace.errors import ProviderError
from tailrace.messages import JsonObject, ModelRequest
from tailrace.values.error_texts import says
from tailrace.wire.dialect import WireDialect

REPROBE_S = 3600.0
MAX_PLACES = 1024  # remembered at once: clients name any model they like
Place = tuple[str, str, str]  # the endpoint's name, its address, the model


_STATUSES = frozenset({400, 404, 405, 406, 415, 422, 500, 501})


def refused_field(
    error: ProviderError, body: JsonObject, request: ModelRequest, wire: WireDialect, chosen: Mapping[str, Any]
) -> str | None:
    """The path of the optional field in `body` that the error refuses by name, unless it is among the `chosen`."""
    if error.status not in _STATUSES or not says("field_refused", message := str(error)):
        return None
    for field in wire.optional_fields:
        is_sent = request.cache_prompt if field.scattered else _has(body, field.path)
        before = r"(?<![\w])" if field.scattered else r"(?<![\w.])"
        if (
            is_sent
            and not _has(chosen, field.path)
            and not (field.source and field.source in request.required)
            and any(re.search(rf"{before}{re.escape(word)}(?![\w])", message) for word in field.words)
        ):
            return field.path
    return None


def without_fields(body: JsonObject, paths: Collection[str], chosen: Mapping[str, Any]) -> JsonObject:
    """The body without these fields, but for those that the user or the client wrote."""
    for path in paths:
        if not _has(chosen, path):
            body = _without(body, path)
    return body


class RefusedFields:
    """Remembered per endpoint and model for `reprobe_s`. Bounded: the oldest place is forgotten first."""

    def __init__(self, *, reprobe_s: float = REPROBE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._reprobe_s = reprobe_s
        self._clock = clock
        self._until: dict[Place, dict[str, float]] = {}

    def at(self, place: Place) -> frozenset[str]:
        """The paths of the fields to leave out there."""
        fields = self._until.get(place)
        if not fields:
            return frozenset()
        now = self._clock()
        return frozenset(path for path, until in fields.items() if now < until)

    def remember(self, place: Place, paths: Collection[str]) -> None:
        fields = self._until.pop(place, {})
        if len(self._until) >= MAX_PLACES:
            del self._until[next(iter(self._until))]
        until = self._clock() + self._reprobe_s
        self._until[place] = fields | dict.fromkeys(paths, until)


def _has(body: Mapping[str, Any], path: str) -> bool:
    name, _, rest = path.partition(".")
    if not rest:
        return name in body
    return isinstance(inner := body.get(name), Mapping) and _has(inner, rest)


def _without(body: JsonObject, path: str) -> JsonObject:
    """An object that has nothing left is left out too."""
    name, _, rest = path.partition(".")
    if name not in body:
        return body
    kept = {key: value for key, value in body.items() if key != name}
    if rest and isinstance(inner := body[name], dict) and (left := _without(inner, rest)):
        kept[name] = left
    return kept
