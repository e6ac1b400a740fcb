"""Responses that are not streams."""

from __future__ import annotations

import msgspec
from aiohttp import web

_ENCODER = msgspec.json.Encoder()


def json_response(value: object, *, status: int = 200) -> web.Response:
    """Any msgspec value as the body."""
    return web.Response(status=status, body=_ENCODER.encode(value), content_type="application/json")
