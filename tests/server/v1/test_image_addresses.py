"""Addresses of images that a client may give."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import DIALECTS
from server.v1.replaying_provider import OK, replaying
from tailrace.messages import Dialect, JsonObject


def with_image(dialect: Dialect, url: str) -> JsonObject:
    match dialect:
        case "chat":
            part: JsonObject = {"type": "image_url", "image_url": {"url": url}}
        case "responses":
            part = {"type": "input_image", "image_url": url}
            return {"input": [{"role": "user", "content": [part]}]}
        case "anthropic":
            part = {"type": "image", "source": {"type": "url", "url": url}}
    return {"messages": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize("up", ["chat", "anthropic"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_image_has_an_address_that_a_provider_may_read(tmp_path: Path, dialect: Dialect, up: Dialect) -> None:
    """Also where the body would be passed on as it is."""
    async with replaying(tmp_path, OK) as server:
        for url, named in (
            ("file:///etc/passwd", "file:"),
            ("FTP://host/x.png", "ftp:"),
            ("data:text/html;base64,PGI+", "data:text/html"),
            ("picture.png", "no scheme"),
        ):
            status, body = await server.whole(dialect, up, **with_image(dialect, url))
            assert status == 400, url
            assert named in body["error"]["message"]
            assert "\n" not in body["error"]["message"]
        for url in ("https://host/x.png", "data:image/png;base64,AAAA"):
            status, body = await server.whole(dialect, "chat", **with_image(dialect, url))
            assert status == 200, body
