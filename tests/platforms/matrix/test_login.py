"""Logins by password: homeservers allow a handful of them, so their session is kept and used again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tailrace.config.load import load
from tailrace.delivery.port import Accepted, Failed, Place, Typing
from tailrace.errors import ConfigError, PlatformError
from tailrace.platforms.matrix.adapter import MatrixPlatform, make
from tailrace.platforms.matrix.session import SessionFile

BOT = "@bot:localhost"
RIGHT = "correct horse"
ROOM = Place("matrix", "!room:localhost")


class Accounts:
    """The part of a homeserver that knows who is logged in. One session a device: a second login ends the first."""

    def __init__(self) -> None:
        self.logins: list[str] = []  # by device
        self.password = RIGHT
        self.sessions: dict[str, str] = {}  # token by device

    def routes(self) -> list[web.RouteDef]:
        base = "/_matrix/client/{version}"
        return [
            web.post(f"{base}/login", self._log_in),
            web.post(f"{base}/logout", self._log_out),
            web.get(f"{base}/account/whoami", self._who),
            web.put(f"{base}/rooms/{{room}}/typing/{{user}}", self._typing),
        ]

    async def _log_in(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["password"] != self.password:
            return web.json_response({"errcode": "M_FORBIDDEN", "error": "Invalid password"}, status=403)
        device = asked.get("device_id") or f"D{len(self.logins)}"
        self.logins.append(device)
        token = self.sessions[device] = f"token-{len(self.logins)}"
        return web.json_response({"user_id": BOT, "device_id": device, "access_token": token})

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") in self.sessions.values():
            return None
        return web.json_response({"errcode": "M_UNKNOWN_TOKEN", "error": "Unknown token"}, status=401)

    async def _log_out(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.sessions = {device: one for device, one in self.sessions.items() if one != token}
        return web.json_response({})

    async def _who(self, request: web.Request) -> web.Response:
        return self._refusal(request) or web.json_response({"user_id": BOT})

    async def _typing(self, request: web.Request) -> web.Response:
        return self._refusal(request) or web.json_response({})


@asynccontextmanager
async def accounts() -> AsyncIterator[tuple[Accounts, str]]:
    known = Accounts()
    application = web.Application()
    application.router.add_routes(known.routes())
    async with TestServer(application) as server:
        yield known, str(server.make_url(""))


@asynccontextmanager
async def started(url: str, home: Path, password: str = RIGHT) -> AsyncIterator[MatrixPlatform]:
    platform = MatrixPlatform(url, BOT, password=password, kept=SessionFile(home, url, BOT))
    try:
        yield platform
    finally:
        await platform.close()


def kept_in(home: Path) -> list[tuple[int, bytes]]:
    return [(path.stat().st_mode & 0o777, path.read_bytes()) for path in home.iterdir()]


async def test_one_login_serves_every_start_and_every_doctor(tmp_path: Path) -> None:
    async with accounts() as (known, url):
        for _ in range(3):
            async with started(url, tmp_path) as platform:
                assert await platform.perform(ROOM, Typing()) == Accepted()
            async with started(url, tmp_path) as doctor:
                assert await doctor.check() == f"logged in as {BOT}"
        assert known.logins == ["TAILRACE"]
    [(mode, content)] = kept_in(tmp_path)
    assert mode == 0o600
    assert RIGHT.encode() not in content


async def test_a_session_that_the_homeserver_has_ended_is_begun_anew(tmp_path: Path) -> None:
    async with accounts() as (known, url), started(url, tmp_path) as platform:
        await platform.perform(ROOM, Typing())
        known.sessions.clear()
        assert isinstance(await platform.perform(ROOM, Typing()), Failed)
        assert await platform.perform(ROOM, Typing()) == Accepted()
        async with started(url, tmp_path) as later:
            assert await later.perform(ROOM, Typing()) == Accepted()
        assert known.logins == ["TAILRACE", "TAILRACE"]


async def test_another_password_is_tried_and_not_taken_for_the_kept_one(tmp_path: Path) -> None:
    async with accounts() as (known, url):
        async with started(url, tmp_path) as platform:
            await platform.perform(ROOM, Typing())
        async with started(url, tmp_path, "mistyped") as doctor:
            with pytest.raises(PlatformError, match="refused the login"):
                await doctor.check()
        async with started(url, tmp_path) as platform:
            assert await platform.perform(ROOM, Typing()) == Accepted()
        assert known.logins == ["TAILRACE"]


async def test_a_home_that_cannot_be_written_costs_a_login_and_no_more(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("not a directory", encoding="utf-8")
    async with accounts() as (known, url):
        for _ in range(2):
            async with started(url, home) as platform:
                assert await platform.perform(ROOM, Typing()) == Accepted()
        assert known.logins == ["TAILRACE", "TAILRACE"]


def test_a_token_that_is_not_exported_is_named(tmp_path: Path) -> None:
    settings = f'homeserver: "http://127.0.0.1", user: "{BOT}", token_env: MATRIX_TOKEN'
    (tmp_path / "config.yaml").write_text(f"platforms: {{matrix: {{{settings}}}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"token_env: MATRIX_TOKEN is not set in the environment"):
        make(load({}, tmp_path))


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
