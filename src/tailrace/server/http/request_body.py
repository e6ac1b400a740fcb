"""A request's body and query, read within limits: size, time, depth (J126), and types.

Owns the reading of requests and its error messages; every mistake is an `ApiError` 400, 408 or 413.
"""

from __future__ import annotations

import asyncio
import io
import sys
import zlib
from collections.abc import Callable, Coroutine
from functools import cache, partial
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import HttpVersion11, hdrs, web

from tailrace.messages import JsonObject
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.body_budget import ARRIVING_BYTES, FREE_BYTES, BodyClaim
from tailrace.server.http.json_shape import scanned_shape, small_problem
from tailrace.system.private_apis import take_whole_body
from tailrace.values.validation_words import decoding_problem, validation_mistake

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
BODY_S: Final = 60.0  # for a whole body
# Made once: what a type means takes longer to find out than a small body to decode.
_decoder_of: Final[Callable[[Any], msgspec.json.Decoder[Any]]] = cache(msgspec.json.Decoder)
ARRIVED_BYTES: Final = 1 << 16  # of a body, and what is unpacked of a compressed one at once: less than a millisecond
LARGE_BYTES: Final = 500_000  # such bodies are scanned and decoded in a thread, and the loop has its turn in between

IDENTITY: Final = web.RequestKey("identity", Identity)
REQUEST_ID: Final = web.RequestKey("request_id", str)
IGNORED: Final = web.RequestKey("ignored", tuple[str, ...])  # parameters that the model is not told (K129)
LEFT: Final = web.RequestKey("left", dict[str, str])  # headers that say how much the key may still use
BODY_CLAIM: Final = web.RequestKey("body_claim", BodyClaim)


async def read_body(
    request: web.Request, timeout_s: float = BODY_S, *, max_bytes: int | None = None, as_json: bool = True
) -> bytes:
    """The raw body. Raises `ApiError` 408, 413, 503 where the bodies of all requests together have no more room, and
    400 for JSON that is nested too deeply or has too many values."""
    limit = min(request.client_max_size or sys.maxsize, max_bytes or sys.maxsize)
    if (given := take_whole_body(request)) is not None:  # it is as long as was announced
        if len(given) > limit:
            raise _too_large(limit)
        if as_json and (problem := small_problem(given)):
            raise ApiError(400, problem)
        return given
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            body = await _arrived(request, limit)
    except TimeoutError:
        raise ApiError(408, "the body did not arrive in time", headers={"Connection": "close"}) from None
    except web.RequestPayloadError as exc:
        raise ApiError(400, f"the body cannot be read: {exc}") from exc
    if as_json:
        large = len(body) > LARGE_BYTES  # such a text is scanned in a thread
        if problem := (await asyncio.to_thread(scanned_shape, body)).problem if large else small_problem(body):
            raise ApiError(400, problem)
    return body


async def _arrived(request: web.Request, limit: int) -> bytes:
    """All bytes of the body, unpacked. One that may be large takes them from the budget as they arrive, and is refused
    before it is read where there is no room."""
    length, unpacker = request.content_length, _unpacker(request)
    is_small = request.content.at_eof() or (unpacker is None and length is not None and length <= FREE_BYTES)
    claim = None if is_small else request[BODY_CLAIM]
    if claim is not None:
        await with_room(claim.grow(ARRIVING_BYTES))
    try:
        if request.headers.get(hdrs.EXPECT) and request.version >= HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # RFC 9110, 10.1.1
            request.writer.output_size = 0  # the answer has not begun
        body = io.BytesIO()  # whose value is no second copy
        while piece := await request.content.readany():  # `read` would let more wait: twice of what it asks for
            if unpacker is not None:
                await _unpack(unpacker, piece, body, limit, claim)
            else:
                await _add(body, piece, limit, claim)
    finally:
        if claim is not None:
            claim.arrived()
    if unpacker is not None:
        body.write(unpacker.flush())  # of input that was all given: some hundred bytes
        if not unpacker.eof or unpacker.unused_data:
            raise _not_packed()
    return body.getvalue()


def _unpacker(request: web.Request) -> zlib._Decompress | None:
    """For a compressed body; its bytes come as the client sent them. Raises `ApiError` 415."""
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "").lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        headers = {"Accept-Encoding": "gzip, deflate", "Connection": "close"}
        raise ApiError(415, f"the body has the encoding {encoding[:40]!r}; send gzip, deflate or none", headers=headers)
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # finds out which of the two it is


async def _unpack(
    unpacker: zlib._Decompress, packed: bytes, body: io.BytesIO, limit: int, claim: BodyClaim | None
) -> None:
    """Adds what these bytes unpack to, in steps between which the loop has its turn (O176)."""
    while packed and not unpacker.eof:
        try:
            piece = unpacker.decompress(packed, ARRIVED_BYTES)
        except zlib.error as exc:
            raise _not_packed() from exc
        packed = unpacker.unconsumed_tail
        await _add(body, piece, limit, claim)
        await asyncio.sleep(0)


def _not_packed() -> ApiError:
    return ApiError(400, "the body is not in the encoding that Content-Encoding names", headers={"Connection": "close"})


async def _add(body: io.BytesIO, piece: bytes, limit: int, claim: BodyClaim | None) -> None:
    """Takes the room for these bytes from the budget. Raises `ApiError` 413, 503."""
    if body.tell() + len(piece) > limit:
        raise _too_large(limit)
    if claim is not None:
        await with_room(claim.grow(len(piece)))
    body.write(piece)


async def with_room(taking: Coroutine[Any, Any, None]) -> None:
    """Raises `ApiError` 503 where the budget has no room."""
    try:
        await taking
    except TimeoutError as exc:
        headers = {"Retry-After": "5", "Connection": "close"}
        raise ApiError(503, "too many large bodies at once", code="overloaded", headers=headers) from exc


def _too_large(limit: int) -> ApiError:
    message = f"the body is larger than {limit / 1_000_000:g} MB, which is what this route accepts"
    return ApiError(413, message, code="request_too_large", headers={"Connection": "close"})


async def read_as(request: web.Request, kind: type[T], *, max_bytes: int | None = None) -> T:
    """The JSON body as this type. Raises `ApiError` 400 that names the field."""
    body = await read_body(request, max_bytes=max_bytes)
    try:
        decoder: msgspec.json.Decoder[T] = _decoder_of(kind)
        if len(body) > LARGE_BYTES:
            return await asyncio.to_thread(decoder.decode, body)
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise _invalid(exc, kind) from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        if not body and needs_nothing(kind):
            return kind()
        problem = f"the body is not JSON: {decoding_problem(exc)}" if body else "the body is empty; expected JSON"
        raise ApiError(400, problem, code="invalid_json") from exc


read_object: Final = partial(read_as, kind=JsonObject)  # the JSON object that the body is, opaque


def query_of(request: web.Request, kind: type[S], *, ignore_others: bool = False) -> S:
    """The query as this struct, numbers and booleans parsed from text. Unknown parameters are refused: a misspelt
    filter must not show everything. `ignore_others`: they are not, because a protocol says so."""
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise ApiError(400, "given twice", param=name)
        given[name] = value
    fields = _parameters(kind)
    if (unknown := sorted(given.keys() - fields)) and not ignore_others:
        raise ApiError(400, f"no such parameter: {unknown[0][:80]!r}; there are {', '.join(sorted(fields))}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise _invalid(exc, kind) from exc


def needs_nothing(kind: object) -> bool:
    """Whether a body of this type may be left out: it is a struct in which every field has a default."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return False
    return not any(field.required for field in msgspec.structs.fields(kind))


@cache
def _parameters(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


def _invalid(exc: msgspec.ValidationError, kind: object) -> ApiError:
    place, words = validation_mistake(exc, kind)
    param = place.lstrip(".") or None
    return ApiError(400, f"{param or 'the body'}: {words}", param=param)
