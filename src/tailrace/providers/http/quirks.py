"""Which quirks hold for a model at an endpoint, and the one place where a request body is made. What the user set
wins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tailrace.config.quirks import REGISTRY, Quirk, Routing, WireQuirks
from tailrace.messages import JsonObject, ModelRequest, assistant, user
from tailrace.providers.http.endpoint import NOTHING, Endpoint
from tailrace.providers.http.refused_fields import without_fields
from tailrace.wire.dialect import WireDialect
from tailrace.wire.peer_json import merged

CONTINUE = (
    "Your previous message was cut off by a connection failure. Go on from exactly where it stops: "
    "repeat none of it, comment on nothing, write only what comes next."
)


def quirks_of(endpoint: Endpoint, model: str) -> tuple[Quirk, ...]:
    """The entries that hold for this model at this endpoint."""
    host, name, dialect = endpoint.host, model.lower(), endpoint.dialect
    known = (*REGISTRY, *endpoint.own_quirks)
    names = {quirk.name for quirk in known}
    if unknown := [quirk for quirk in endpoint.quirks if quirk not in names]:
        raise LookupError(f"no quirk is called {unknown[0]!r}; there are {', '.join(sorted(names))}")
    return tuple(
        quirk
        for quirk in known
        if (quirk.name in endpoint.quirks or (quirk.host and matches_host(host, quirk.host)))
        and (not quirk.dialects or dialect in quirk.dialects)
        and any(fnmatchcase(name, glob) for glob in quirk.models)
    )


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
    """The body to send: the dialect's words, the endpoint's `extra`, the request's own, then what the quirks change of
    the fields that neither of the two set, without the `refused` paths. A quirk of the config drops a request's own
    too."""
    quirks = tuple(quirks)
    chosen = merged(extra, request.extra) if extra else request.extra
    if request.prefill:
        request, fields = _continued(request, quirks, chosen)
        request = msgspec.structs.replace(request, extra={**fields, **chosen})
    elif chosen is not request.extra:
        request = msgspec.structs.replace(request, extra=chosen)
    if refused and any(field.scattered and field.path in refused for field in wire.optional_fields):
        request = msgspec.structs.replace(request, cache_prompt=False)
    body = wire.encode_request(request, stream=stream)
    for quirk in quirks:
        if quirk.body:
            body = merged(body, merged(quirk.body, {name: chosen[name] for name in quirk.body if name in chosen}))
        if quirk.routing is not None:
            _route(body, quirk.routing)
        for name in quirk.drop:
            if name not in (extra if quirk.of_config else chosen):
                body.pop(name, None)
        for name, theirs in quirk.rename.items():
            if name in body and name not in chosen:
                body.setdefault(theirs, body.pop(name))
    return without_fields(body, refused, chosen) if refused else body


def matches_host(host: str, domain: str) -> bool:
    """The domain itself or a subdomain: `eu.openrouter.ai`, never `evil-openrouter.ai` or `openrouter.ai.evil.com`."""
    host = host.lower().rstrip(".")
    return host == domain or host.endswith(f".{domain}")


def _continued(
    request: ModelRequest, quirks: tuple[Quirk, ...], chosen: Mapping[str, Any]
) -> tuple[ModelRequest, Mapping[str, Any]]:
    """A continuation from a last assistant message where the endpoint takes it, else by instruction."""
    thinks = request.reasoning_effort not in (None, "none") or "thinking" in chosen
    for quirk in quirks:
        if quirk.add_to_prefill is not None and not thinks and request.response_schema is None:
            return request, quirk.add_to_prefill
    messages = (*request.messages, assistant(request.prefill), user(CONTINUE))
    return msgspec.structs.replace(request, messages=messages, prefill=""), NOTHING


def _route(body: JsonObject, routing: Routing) -> None:
    """Adds the preferences that leave the user's own intact: an `only`, a `sort`, an order."""
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
