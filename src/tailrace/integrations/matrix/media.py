"""Files of the homeserver's content repository, read as they come: matrix-nio's own download has them whole in memory
before their size can be checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import nio
from aiohttp import ClientResponse

from tailrace.gateway.base import UPLOAD_S


@asynccontextmanager
async def opened(client: nio.AsyncClient, mxc: str) -> AsyncGenerator[ClientResponse, None]:
    """The response that has the content of `mxc://<server>/<id>`. Raises as aiohttp does."""
    uri = urlsplit(mxc)
    method, path = nio.Api.download(uri.netloc, uri.path.strip("/"), access_token=client.access_token)
    headers = {"Authorization": f"Bearer {client.access_token}"}
    bare = urlsplit(path)._replace(query="").geturl()  # the token is in the header and in no address
    async with await client.send(method, bare, headers=headers, timeout=UPLOAD_S) as response:
        yield response
