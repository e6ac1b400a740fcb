"""Which quirks hold for a model at an endpoint, and the one place where a request body is made.

Owns how an entry of the registry is matched. What the user set always wins over an entry. Knows nothing of connections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec

from tailrace.config.quirks import NAMES, REGISTRY, Quirk, Routing
from tailrace.messages import Dialect, JsonObject, ModelRequest, assistant, user
from tailrace.providers.http.endpoint import NOTHING, Endpoint
from tailrace.providers.http.refused_fields import without_fields
from tailrace.wire.dialect import WireDialect
from tailrace.wire.quirks import WireQuirks

CONTINUE = (
    "Your previous message was cut off by a connection failure. Go on from exactly where it stops: "
    "repeat none of it, comment on nothing, write only what comes next."
)


def quirks_of(endpoint: Endpoint, model: str) -> tuple[Quirk, ...]:
    """The entries that hold for this model at this endpoint."""
    return _matching(endpoint.host, model.lower(), endpoint.dialect, endpoint.quirks)


def wire_quirks_of(quirks: Iterable[Quirk]) -> WireQuirks:
    """The deviations that the decoder has to know."""
    found = tuple(quirks)
    return WireQuirks(*(any(getattr(quirk, name) for quirk in found) for name in WireQuirks.__struct_fields__))


def adapted_body(
    request: ModelRequest,
    wire: WireDialect,
    quirks: Iterable[Quirk],
    *,
    extra: Mapping[str, Any] = NOTHING,
    refused: Collection[str] = (),
    stream: bool,
) -> JsonObject:
    """The body to send: the dialect's words, then the endpoint's `extra`, then the request's own, then whatever the
    quirks add to or take from the fields that neither of the two set. `refused`: the paths of fields that the endpoint
    was found to refuse."""
    quirks = tuple(quirks)
    chosen = merged(extra, request.extra) if extra else request.extra
    if request.prefill:
        request, fields = _continued(request, quirks, chosen)
        request = msgspec.structs.replace(request, extra={**fields, **chosen})
    elif chosen is not request.extra:
        request = msgspec.structs.replace(request, extra=chosen)
    if any(field.scattered and field.path in refused for field in wire.optional_fields):
        request = msgspec.structs.replace(request, cache_prompt=False)
    body = wire.encode_request(request, stream=stream)
    for quirk in quirks:
        if quirk.routing is not None:
            _route(body, quirk.routing)
        for name in quirk.drop:
            if name not in chosen:
                body.pop(name, None)
        for name, theirs in quirk.rename.items():
            if name in body and name not in chosen:
                body.setdefault(theirs, body.pop(name))
    return without_fields(body, refused, chosen)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> JsonObject:
    """Both, objects merged key by key; where they differ `over` wins."""
    result = dict(base)
    for name, value in over.items():
        mine = result.get(name)
        result[name] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def matches_host(host: str, domain: str) -> bool:
    """The domain itself or a subdomain: `eu.openrouter.ai`, never `evil-openrouter.ai` or `openrouter.ai.evil.com`."""
    host = host.lower().rstrip(".")
    return host == domain or host.endswith(f".{domain}")


@lru_cache(maxsize=1024)
def _matching(host: str, model: str, dialect: Dialect, names: tuple[str, ...]) -> tuple[Quirk, ...]:
    if unknown := [name for name in names if name not in NAMES]:
        raise LookupError(f"no quirk is called {unknown[0]!r}; there are {', '.join(sorted(NAMES))}")
    return tuple(
        quirk
        for quirk in REGISTRY
        if (quirk.name in names or (quirk.host and matches_host(host, quirk.host)))
        and (not quirk.dialects or dialect in quirk.dialects)
        and any(fnmatchcase(model, glob) for glob in quirk.models)
    )


def _continued(
    request: ModelRequest, quirks: tuple[Quirk, ...], chosen: Mapping[str, Any]
) -> tuple[ModelRequest, Mapping[str, Any]]:
    """A continuation as the endpoint takes it: from a last assistant message where it can, else by instruction.
    With thoughts or a schema asked for, endpoints that can refuse it."""
    thinks = request.reasoning_effort not in (None, "none") or "thinking" in chosen
    for quirk in quirks:
        if quirk.add_to_prefill is not None and not thinks and request.response_schema is None:
            return request, quirk.add_to_prefill
    messages = (*request.messages, assistant(request.prefill), user(CONTINUE))
    return msgspec.structs.replace(request, messages=messages, prefill=""), NOTHING


def _route(body: JsonObject, routing: Routing) -> None:
    """Adds the preferences that leave the user's own intact: `only` is a choice already, a `sort` would be undone
    by our order, and a provider that the user listed is not ignored."""
    theirs = body.get("provider") or {}
    if not isinstance(theirs, dict) or "only" in theirs:
        return
    preferences = dict(theirs)
    ordered = theirs.get("order") or ()
    if ignored := [name for name in routing.ignore if name not in ordered]:
        preferences.setdefault("ignore", ignored)
    if "sort" not in theirs:
        preferences.setdefault("order", list(routing.order))
    body["provider"] = preferences
