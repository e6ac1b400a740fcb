"""`/keys`: who may use the server, their limits, what they have used today. Keys are made and revoked at run time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from tailrace.app import App
from tailrace.app.usage.counters import UsageRow, summed
from tailrace.app.usage.stored_keys import StoredKey, StoredKeys, check_new_key, new_key
from tailrace.config.sections import Count, Dollars, Scope, ServerKey
from tailrace.errors import ConfigError
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import ALL
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_as
from tailrace.server.http.route import Route, json_response

DEFAULT: Final = "default"  # the key that opens every route


class KeyBody(msgspec.Struct, frozen=True, kw_only=True):
    """`source`: the config, the store, or none for what is used without a key of its own (a chat, the terminal).
    `usd` is null where nothing of what was used today has a price; `unpriced` are today's tokens without one."""

    name: str
    source: Literal["config", "store", "none"]
    scopes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    usd_per_day: float | None = None
    calls: int = 0
    tokens: int = 0
    usd: float | None = None
    unpriced: int = 0


class KeyList(msgspec.Struct, frozen=True):
    data: tuple[KeyBody, ...]


class NewKeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`models`: those that it may use, with `*` for any text; empty: all."""

    name: Annotated[str, Meta(max_length=64)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)] = ("models", "runs")
    models: tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...] = ()
    requests_per_minute: Count | None = None
    tokens_per_day: Count | None = None
    usd_per_day: Dollars | None = None


class NewKeyAnswer(msgspec.Struct, frozen=True):
    """`key` is shown this once: the store has its digest alone."""

    name: str
    key: str


async def keys_today(app: App) -> tuple[KeyBody, ...]:
    """Every key, and whatever else has used tokens today; the most money first. Raises `JournalError`."""
    used = {row.key: row for row in summed(await app.usage.rows(app.usage.today()), "key")}
    known = {name: KeyBody(name=name, source="none") for name in used}
    if app.config.secret(app.config.server.key_env):
        known[DEFAULT] = KeyBody(name=DEFAULT, source="config", scopes=tuple(sorted(ALL)))
    known |= {name: _body(name, "store", key) for name, key in app.stored_keys.items()}
    known |= {key.name: _body(key.name, "config", key) for key in app.config.server.keys}
    bodies = (_with_use(body, used.get(name)) for name, body in known.items())
    return tuple(sorted(bodies, key=lambda body: (-(body.usd or 0.0), -body.tokens, body.name)))


def _body(name: str, source: Literal["config", "store"], key: StoredKey | ServerKey) -> KeyBody:
    fields = ("scopes", "models", "requests_per_minute", "tokens_per_day", "usd_per_day")
    return KeyBody(name=name, source=source, **{field: getattr(key, field) for field in fields})


def _with_use(body: KeyBody, row: UsageRow | None) -> KeyBody:
    if row is None:
        return body
    usd = None if row.is_unpriced else row.usd
    return msgspec.structs.replace(body, calls=row.calls, tokens=row.tokens, usd=usd, unpriced=row.unpriced)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    app, route = pipeline.app, partial(Route, access="admin")

    async def show(_: web.Request) -> web.Response:
        """Every key with its limits and what it has used today, and what was used today without a key."""
        return json_response(KeyList(await keys_today(app)))

    async def add(request: web.Request) -> web.Response:
        """Makes a key, which every server on the store takes from now on. The answer alone shows it."""
        body = await read_as(request, NewKeyBody)
        if not pipeline.needs_key:
            message = "this server asks for no key: a first one would lock every client out; tailrace keys add makes it"
            raise ApiError(409, message, code="no_keys")
        secret, digest = new_key()
        limits = (body.scopes, body.models, body.requests_per_minute, body.tokens_per_day, body.usd_per_day)
        try:
            check_new_key(app.config, body.name, body.usd_per_day)
            await StoredKeys(app.journal).add(body.name, StoredKey(digest, *limits, created_at=time.time()))
        except ConfigError as exc:
            raise ApiError(400, str(exc), param="name") from exc
        return json_response(NewKeyAnswer(body.name, secret), status=201)

    async def revoke(request: web.Request) -> web.Response:
        """No server lets this key in any more. 404 for one that the store has not."""
        name = request.match_info["name"]
        if name in {key.name for key in app.config.server.keys}:
            raise ApiError(409, f"the key {name!r} is in the config: remove it there, then reload", code="in_config")
        try:
            await StoredKeys(app.journal).revoke(name)
        except ConfigError as exc:
            raise ApiError(404, str(exc)) from exc
        return web.Response(status=204)

    return (
        route("GET", "/keys", show, answer=KeyList),
        route("POST", "/keys", add, status=201, body=NewKeyBody, answer=NewKeyAnswer, errors=(409, 413)),
        route("DELETE", "/keys/{name}", revoke, status=204, errors=(404, 409)),
    )
