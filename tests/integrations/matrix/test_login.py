"""Logins by password: homeservers allow a handful of them, so their session is kept and used again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.gateways import config_for
from integrations.matrix.matrix_bot import meet
from integrations.matrix.synapse import Homeserver, password_of, people
from tailrace.app import open_app
from tailrace.cli.setup.doctor import findings
from tailrace.config.load import load
from tailrace.delivery.port import Accepted, Failed, Place, Send, Sent, Typing
from tailrace.errors import ConfigError, PlatformError
from tailrace.gateway.gateway import Gateway
from tailrace.integrations.matrix.adapter import MatrixPlatform, make
from tailrace.integrations.matrix.session import SessionFile
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.provider import FaultyProvider

BOT = "@bot:localhost"
RIGHT = "correct horse"
ROOM = Place("matrix", "!room:localhost")


class Accounts:
    """The part of a homeserver that knows who is logged in. One session a device: a second login ends the first."""

    def __init__(self) -> None:
        self.logins: list[str] = []  # by device
        self.refused = 0  # logins
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
            self.refused += 1
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


async def test_a_password_that_was_changed_is_tried_once(tmp_path: Path) -> None:
    async with accounts() as (known, url), started(url, tmp_path) as platform:
        await platform.perform(ROOM, Typing())
        known.password = "another"
        known.sessions.clear()
        replies = [await platform.perform(ROOM, Typing()) for _ in range(5)]
        assert replies[0] == Failed("the homeserver has ended our session")
        reason = f"matrix: the homeserver refused the login of {BOT} (M_FORBIDDEN: Invalid password): "
        advice = "set the account's password (password_env) and restart"
        assert replies[1:] == [Failed(reason + advice, needs_operator=True)] * 4
        assert known.refused == 1
        assert platform.stops_when_refused  # the gateway leaves it alone, and says so
        with pytest.raises(PlatformError, match="refused the login") as refused:
            await platform.run(CollectingInbox())
        assert refused.value.permanent
        assert known.refused == 2  # a new run is a new try


@driven
async def test_a_gateway_stops_at_a_refused_password_and_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with accounts() as (known, url), FaultyProvider() as provider:
        known.password = "another"
        settings = f'matrix: {{enabled: true, homeserver: "{url}", user: "{BOT}", password_env: MATRIX_PASSWORD}}'
        config = config_for(tmp_path, provider, settings, {"MATRIX_PASSWORD": RIGHT})
        async with open_app(config, directory=tmp_path) as app, Gateway(app):
            await asyncio.sleep(3600)
            told = "set the account's password (password_env) and restart; it is not tried again before a restart"
            assert app.degraded["matrix"].endswith(told)
        assert known.refused == 1
    assert [record.levelname for record in caplog.records if "password_env" in record.getMessage()] == ["ERROR"]


async def test_doctor_asks_for_the_password_and_not_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.setenv("MATRIX_PASSWORD", "mistyped")
    async with accounts() as (_, url):
        settings = f'enabled: true, allow: ["*"], homeserver: "{url}", user: "{BOT}", password_env: MATRIX_PASSWORD'
        (tmp_path / "config.yaml").write_text(f"platforms: {{matrix: {{{settings}}}}}\n", encoding="utf-8")
        [found] = [each async for each in findings() if each.what.startswith("matrix:")]
    assert found.what.endswith("set the account's password (password_env) and restart")
    assert found.advice == "see docs/integrations/matrix.md"


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


async def test_the_logger_of_the_sdk_is_the_hosts_own_again_after_closing() -> None:
    before = list(logging.getLogger("nio").handlers)
    platform = MatrixPlatform("http://127.0.0.1:1", BOT, token="token")
    assert len(logging.getLogger("nio").handlers) == len(before) + 1
    await platform.close()
    assert logging.getLogger("nio").handlers == before


@pytest.mark.parametrize("user", ["@Bot:localhost", "@other:localhost", "bot"])
async def test_a_token_of_another_user_is_told_before_anything_is_done(user: str) -> None:
    async with accounts() as (known, url):
        known.sessions["D"] = "token"
        platform = MatrixPlatform(url, user, token="token")
        told = f'the homeserver knows us as {BOT}: set user: "{BOT}" in place of {user}'
        for tried in (platform.check(), platform.run(CollectingInbox())):
            with pytest.raises(PlatformError) as refused:
                await tried
            assert str(refused.value) == f"matrix: {told}"
            assert refused.value.permanent
        await platform.close()


async def doctor_on(settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **env: str) -> list[str]:
    """What it finds broken on Matrix."""
    for name, value in {"TAILRACE_HOME": str(tmp_path), **env}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "config.yaml").write_text(f"platforms: {{matrix: {{{settings}}}}}\n", encoding="utf-8")
    return [each.what async for each in findings() if "matrix" in each.what and each.state == "broken"]


async def test_doctor_names_neither_a_token_nor_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = f'enabled: true, allow: ["*"], homeserver: "http://127.0.0.1:1", user: "{BOT}"'
    found = await doctor_on(settings, tmp_path, monkeypatch)
    assert found == ["platforms.matrix: needs token_env or password_env"]


async def test_doctor_misses_no_password_where_there_is_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with accounts() as (known, url):
        known.sessions["D"] = "token"
        secrets = "token_env: MATRIX_TOKEN, password_env: MATRIX_PASSWORD"
        settings = f'enabled: true, allow: ["*"], homeserver: "{url}", user: "{BOT}", {secrets}'
        assert await doctor_on(settings, tmp_path, monkeypatch, MATRIX_TOKEN="token") == []


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, "what answers at {url} (HTTP 404) does not speak as a homeserver"),
        (502, "the homeserver is not there for now (HTTP 502)"),
    ],
)
async def test_an_address_without_a_homeserver_is_told(status: int, told: str) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(status=status, text="<html>")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        platform = MatrixPlatform(url, BOT, token="token")
        with pytest.raises(PlatformError) as refused:
            await platform.check()
        await platform.close()
    assert str(refused.value) == "matrix: " + told.format(url=url)


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


async def test_a_password_logs_in_once_and_doctor_does_not_end_the_session(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        platform = MatrixPlatform(server.url, account.user_id, password=password_of(account.user_id), allow=("*",))
        async with running(platform) as inbox:
            doctor = MatrixPlatform(server.url, account.user_id, password=password_of(account.user_id))
            assert await doctor.check() == f"logged in as {account.user_id}"
            await doctor.close()
            await ada.write(place.chat, "hello")
            await inbox.wait_for(1)
            assert isinstance(await platform.perform(place, Send("k", "hello")), Sent)
        wrong = MatrixPlatform(server.url, account.user_id, password="wrong")
        with pytest.raises(PlatformError, match="refused the login") as refused:
            await wrong.check()
        assert refused.value.permanent
        await wrong.close()
