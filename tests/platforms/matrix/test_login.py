"""A homeserver that allows no more logins for now, as Synapse does after a handful of them."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tailrace.errors import PlatformError
from tailrace.platforms.matrix.adapter import MatrixPlatform


async def test_a_login_too_many_is_told_with_what_helps() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many", "retry_after_ms": 9}, status=429)

    application = web.Application()
    application.router.add_post("/_matrix/client/{version}/login", refuse)
    async with TestServer(application) as server:
        platform = MatrixPlatform(str(server.make_url("")), "@bot:localhost", password="secret")
        with pytest.raises(PlatformError, match=r"allows few logins \(M_LIMIT_EXCEEDED\): wait .*token_env") as refused:
            await platform.check()
        await platform.close()
    assert not refused.value.permanent
