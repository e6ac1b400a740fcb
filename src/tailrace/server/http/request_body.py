"""A request's body and query, read within limits: size, time and depth (J126), and types.

Owns the reading of requests and its error messages; every mistake is an `ApiError` 400, 408 or 413.
"""

from __future__ import annotations

import asyncio
import re
from itertools import accumulate
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from tailrace.errors import validation_mistake
from tailrace.messages import JsonObject
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
MAX_DEPTH: Final = 128  # far below what the interpreter survives, far above any real request
BODY_S: Final = 60.0  # for a whole body

IDENTITY: Final = web.RequestKey("identity", Identity)
REQUEST_ID: Final = web.RequestKey("request_id", str)
IGNORED: Final = web.RequestKey("ignored", tuple[str, ...])  # parameters that the model is not told (K129)

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


async def read_body(request: web.Request, timeout_s: float = BODY_S) -> bytes:
    """The raw body. Raises `ApiError` 408, 413, and 400 for JSON nested deeper than `MAX_DEPTH`."""
    if (request.content_length or 0) > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size)
    try:
        async with asyncio.timeout(timeout_s):
            body = await request.read()
    except TimeoutError:
        raise ApiError(408, "the body did not arrive in time", headers={"Connection": "close"}) from None
    except web.RequestPayloadError as exc:
        raise ApiError(400, f"the body cannot be read: {exc}") from exc
    if depth_of(body) > MAX_DEPTH:
        raise ApiError(400, f"JSON nested more than {MAX_DEPTH} deep")
    return body


def depth_of(body: bytes) -> int:
    """An upper bound of the nesting of this JSON; exact where it could exceed `MAX_DEPTH`. Linear, never recurses."""
    most = body.count(b"[") + body.count(b"{")
    if most <= MAX_DEPTH:
        return most
    steps = _STRING.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


async def read_as(request: web.Request, kind: type[T]) -> T:
    """The JSON body as this type. Raises `ApiError` 400 that names the field."""
    body = await read_body(request)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as exc:
        raise _invalid(exc) from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ApiError(400, f"the body is not JSON: {exc}", code="invalid_json") from exc


async def read_object(request: web.Request) -> JsonObject:
    """The JSON object that the body is, opaque."""
    return await read_as(request, JsonObject)


def query_of(request: web.Request, kind: type[S]) -> S:
    """The query as this struct, numbers and booleans parsed from text. Unknown parameters are refused: a misspelt
    filter must not show everything."""
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise ApiError(400, "given twice", param=name)
        given[name] = value
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    if unknown := sorted(set(given) - fields):
        raise ApiError(400, f"no such parameter: {unknown[0][:80]!r}; there are {', '.join(sorted(fields))}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise _invalid(exc) from exc


def _invalid(exc: msgspec.ValidationError) -> ApiError:
    place, message = validation_mistake(exc)
    param = place.lstrip(".") or None
    return ApiError(400, f"{param}: {message}" if param else message, param=param)
