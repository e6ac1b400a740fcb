"""A real Synapse with its default limits, and people who use it through the client-server API.

Synapse lives in an environment of its own: `$TAILRACE_SYNAPSE_PYTHON`, or `.venv-synapse/bin/python` of the project.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml

STARTED_S = 120.0
PATIENCE_S = 90.0
SERVER_NAME = "localhost"


def synapse_python() -> Path | None:
    """The interpreter that has Synapse; None where there is none."""
    named = os.environ.get("TAILRACE_SYNAPSE_PYTHON")
    python = Path(named) if named else Path(__file__).parents[3] / ".venv-synapse" / "bin" / "python"
    return python if python.exists() else None


@dataclass(frozen=True)
class Homeserver:
    url: str
    secret: str


@contextmanager
def homeserver(python: Path, directory: Path) -> Iterator[Homeserver]:
    """A homeserver that knows nobody and talks to no other. It says itself when it is ready (sd_notify)."""
    secret = secrets.token_hex(16)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = directory / "homeserver.yaml"
    config.write_text(yaml.safe_dump(_config(directory, port, secret)), encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (directory / "log").open("wb") as log:
        ready.bind(str(directory / "notify"))
        ready.settimeout(STARTED_S)
        server = subprocess.Popen(
            [python, "-m", "synapse.app.homeserver", "-c", config],
            env=os.environ | {"NOTIFY_SOCKET": str(directory / "notify")},
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while b"READY=1" not in ready.recv(4096):
                pass
            yield Homeserver(f"http://127.0.0.1:{port}", secret)
        finally:
            server.kill()  # nobody needs what it would still write
            server.wait()


def _config(directory: Path, port: int, secret: str) -> dict[str, Any]:
    seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    (directory / "signing.key").write_text(f"ed25519 a_test {seed}\n", encoding="utf-8")
    return {
        "server_name": SERVER_NAME,
        "listeners": [
            {"port": port, "type": "http", "bind_addresses": ["127.0.0.1"], "resources": [{"names": ["client"]}]}
        ],
        "database": {"name": "sqlite3", "args": {"database": str(directory / "homeserver.db")}},
        "media_store_path": str(directory / "media"),
        "signing_key_path": str(directory / "signing.key"),
        "registration_shared_secret": secret,
        "macaroon_secret_key": secrets.token_hex(16),
        "form_secret": secrets.token_hex(16),
        "federation_domain_whitelist": [],
        "trusted_key_servers": [],
        "report_stats": False,
    }


# ── people ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Seen:
    """A message as a client shows it: what its edits have made of it, in each state."""

    event_id: str
    sender: str
    states: list[dict[str, Any]] = field(default_factory=list)
    thread: str = ""
    redacted: bool = False

    @property
    def text(self) -> str:
        return str(self.states[-1].get("body", ""))

    @property
    def html(self) -> str:
        return str(self.states[-1].get("formatted_body", ""))


class Person:
    """An account and what it sees: a client with a screen."""

    def __init__(self, server: Homeserver, session: aiohttp.ClientSession, user_id: str, token: str) -> None:
        self.user_id, self.token = user_id, token
        self.rooms: dict[str, dict[str, Seen]] = {}
        self.typing: set[str] = set()  # who has typed in any room
        self.typing_now: dict[str, set[str]] = {}  # by room
        self.highlights: dict[str, int] = {}  # messages that mention this person and are not read, by room
        self.joined: set[tuple[str, str]] = set()  # rooms and who came in
        self._server, self._session = server, session
        self._since = ""
        self._transaction = 0

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self._server.url}/_matrix/{path}"
        async with self._session.request(method, url, json=body, headers=headers) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, (path, answer)
            return answer

    async def room(self, *invited: str, preset: str = "private_chat") -> str:
        answer = await self.ask("POST", "client/v3/createRoom", {"preset": preset, "invite": list(invited)})
        return str(answer["room_id"])

    async def write(self, room: str, text: str, **content: Any) -> str:
        self._transaction += 1
        path = f"client/v3/rooms/{quote(room)}/send/m.room.message/t{self._transaction}"
        answer = await self.ask("PUT", path, {"msgtype": "m.text", "body": text} | content)
        return str(answer["event_id"])

    async def react(self, room: str, event_id: str, key: str) -> str:
        self._transaction += 1
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        path = f"client/v3/rooms/{quote(room)}/send/m.reaction/t{self._transaction}"
        return str((await self.ask("PUT", path, {"m.relates_to": relation}))["event_id"])

    async def upgrade(self, room: str, version: str = "10") -> str:
        """The room that takes its place."""
        answer = await self.ask("POST", f"client/v3/rooms/{quote(room)}/upgrade", {"new_version": version})
        return str(answer["replacement_room"])

    async def redact(self, room: str, event_id: str) -> None:
        self._transaction += 1
        await self.ask("PUT", f"client/v3/rooms/{quote(room)}/redact/{quote(event_id)}/t{self._transaction}", {})

    async def upload(self, name: str, content: bytes, media_type: str) -> str:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media_type}
        url = f"{self._server.url}/_matrix/media/v3/upload?filename={name}"
        async with self._session.post(url, data=content, headers=headers) as response:
            return str((await response.json())["content_uri"])

    async def until(self, condition: Callable[[], object]) -> None:
        """Looks at what the homeserver has to say until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                since = f"&since={self._since}" if self._since else ""
                answer = await self.ask("GET", f"client/v3/sync?timeout=30000{since}")
                self._since = str(answer["next_batch"])
                for room, news in answer.get("rooms", {}).get("join", {}).items():
                    self._show(room, news)

    def from_(self, room: str, sender: str) -> list[Seen]:
        """What this sender has in the room, from top to bottom."""
        there = self.rooms.get(room, {}).values()
        return [message for message in there if message.sender == sender and not message.redacted]

    def _show(self, room: str, news: dict[str, Any]) -> None:
        screen = self.rooms.setdefault(room, {})
        for event in news["timeline"]["events"]:
            content = event["content"]
            relation = content.get("m.relates_to", {})
            match event["type"]:
                case "m.room.message" if relation.get("rel_type") == "m.replace":
                    if relation["event_id"] in screen:
                        screen[relation["event_id"]].states.append(content["m.new_content"])
                case "m.room.message" if content:
                    thread = relation.get("event_id", "") if relation.get("rel_type") == "m.thread" else ""
                    screen[event["event_id"]] = Seen(event["event_id"], event["sender"], [content], thread)
                case "m.room.redaction":
                    redacted = event.get("redacts") or content.get("redacts")
                    if redacted in screen:
                        screen[redacted].redacted = True
                case "m.room.member" if content.get("membership") == "join":
                    self.joined.add((room, event["state_key"]))
        for event in news.get("ephemeral", {}).get("events", []):
            if event["type"] == "m.typing":
                self.typing_now[room] = set(event["content"]["user_ids"])
                self.typing |= self.typing_now[room]
        if "unread_notifications" in news:
            self.highlights[room] = news["unread_notifications"]["highlight_count"]


@asynccontextmanager
async def people(server: Homeserver, *names: str) -> AsyncIterator[list[Person]]:
    """New accounts, with these names and a number of their own: limits are by account."""
    async with aiohttp.ClientSession() as session:
        yield [await _register(server, session, f"{name}-{secrets.token_hex(4)}") for name in names]


async def _register(server: Homeserver, session: aiohttp.ClientSession, name: str) -> Person:
    url = f"{server.url}/_synapse/admin/v1/register"
    async with session.get(url) as response:
        nonce = (await response.json())["nonce"]
    signed = "\0".join((nonce, name, password_of(name), "notadmin")).encode()
    mac = hmac.new(server.secret.encode(), signed, hashlib.sha1).hexdigest()
    body = {"nonce": nonce, "username": name, "password": password_of(name), "admin": False, "mac": mac}
    async with session.post(url, json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
    return Person(server, session, answer["user_id"], answer["access_token"])


def password_of(name: str) -> str:
    return f"password of {name.removeprefix('@').partition(':')[0]}"
