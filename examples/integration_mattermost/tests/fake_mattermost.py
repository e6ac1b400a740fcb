"""A Mattermost server on loopback: one bot, one direct channel, the routes and the web socket that the adapter uses."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from tailrace.testing.platforms.loopback import LoopbackFake

BOT, ADA, CHANNEL = "bot00000000000000000000000", "ada00000000000000000000000", "channel0000000000000000000"


class FakePost(msgspec.Struct):
    id: str
    user_id: str
    body: dict[str, Any]
    states: list[str]
    deleted: bool = False

    def json(self) -> dict[str, Any]:
        fields = {"id": self.id, "channel_id": CHANNEL, "user_id": self.user_id, "root_id": "", "type": "", "props": {}}
        return fields | self.body | {"message": self.states[-1]}


class FakeMattermost(LoopbackFake):
    def __init__(self) -> None:
        super().__init__()
        self.token = "opens-the-door"  # noqa: S105 - of this fake
        self.posts: dict[str, FakePost] = {}
        self._events: list[dict[str, Any]] = []  # of the one connection, in the order of their numbers
        self._connection = secrets.token_hex(13)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v4/users/me", self._me),
            web.post("/api/v4/users/me/typing", self._typing),
            web.post("/api/v4/posts", self._create),
            web.put("/api/v4/posts/{id}/patch", self._patch),
            web.delete("/api/v4/posts/{id}", self._delete),
            web.get("/api/v4/channels/{id}/posts", self._list),
            web.get("/api/v4/files/{id}", self._file),
            web.get("/api/v4/websocket", self._websocket),
        ]

    # ── what a person does ───────────────────────────────────────────────────────────────────────────────────

    def write(self, text: str, *, channel_type: str = "D", mentions: tuple[str, ...] = (), **body: Any) -> None:
        post = self._add(ADA, {"message": text, **body})
        data = {"post": msgspec.json.encode(post.json()).decode(), "channel_type": channel_type, "sender_name": "@ada"}
        self._emit("posted", data | {"mentions": msgspec.json.encode(mentions).decode()})

    def attach(self, name: str, content: bytes) -> None:
        self._files["f1"] = content
        files = [{"id": "f1", "name": name, "mime_type": "text/plain", "size": len(content)}]
        self.write("", metadata={"files": files})

    def repeat(self) -> None:
        self._emit("posted", self._events[-1]["data"])

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        self._events.append({"event": event, "data": data, "seq": len(self._events)})
        self.changed()

    # ── what the bot does ────────────────────────────────────────────────────────────────────────────────────

    def _add(self, user_id: str, body: dict[str, Any]) -> FakePost:
        post = FakePost(secrets.token_hex(13), user_id, body, [str(body["message"])])
        self.posts[post.id] = post
        return post

    async def _answer(self, request: web.Request, method: str, act: Any) -> web.Response:
        params = await request.json() if request.can_read_body else {}
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _problem(401, "api.context.session_expired.app_error")
        return await self.answer(request, method, params, lambda: act(params))

    async def _me(self, request: web.Request) -> web.Response:
        return await self._answer(request, "me", lambda _: web.json_response({"id": BOT, "username": "tailrace"}))

    async def _typing(self, request: web.Request) -> web.Response:
        return await self._answer(request, "typing", lambda _: web.json_response({"status": "OK"}))

    async def _create(self, request: web.Request) -> web.Response:
        def act(body: dict[str, Any]) -> web.Response:
            if len(body["message"]) > 16_383:
                return _problem(400, "model.post.is_valid.message_length.app_error")
            return web.json_response(self._add(BOT, body).json(), status=201)

        return await self._answer(request, "create", act)

    async def _patch(self, request: web.Request) -> web.Response:
        def act(body: dict[str, Any]) -> web.Response:
            post = self.posts.get(request.match_info["id"])
            if post is None or post.deleted:
                return _problem(404, "app.post.get.app_error")
            post.states.append(body["message"])
            return web.json_response(post.json())

        return await self._answer(request, "patch", act)

    async def _delete(self, request: web.Request) -> web.Response:
        def act(_: object) -> web.Response:
            post = self.posts.get(request.match_info["id"])
            if post is None or post.deleted:
                return _problem(404, "app.post.get.app_error")
            post.deleted = True
            return web.json_response({"status": "OK"})

        return await self._answer(request, "delete", act)

    async def _list(self, request: web.Request) -> web.Response:
        def act(_: object) -> web.Response:
            shown = [post for post in self.posts.values() if not post.deleted]
            return web.json_response({"order": [post.id for post in shown], "posts": {p.id: p.json() for p in shown}})

        return await self._answer(request, "list", act)

    async def _file(self, request: web.Request) -> web.Response:
        return await self._answer(request, "file", lambda _: self.file(request.match_info["id"]))

    async def _websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A connection that names itself goes on at the number that it names; another one begins with `hello`."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        challenge = await socket.receive()
        if challenge.type != WSMsgType.TEXT or challenge.json()["data"]["token"] != self.token:
            await socket.close()
            return socket
        await socket.send_json({"status": "OK", "seq_reply": 1})
        if request.query.get("connection_id") == self._connection:
            sent = int(request.query["sequence_number"])
        else:
            self._events, sent = [], 0
            self._emit("hello", {"connection_id": self._connection})
        while not self._closing.is_set() and not socket.closed:
            for event in self._events[sent:]:
                await socket.send_json(event)
            sent = len(self._events)
            await self.until(lambda seen=sent: len(self._events) > seen or self._closing.is_set(), timeout_s=1e9)  # type: ignore[misc]
        return socket


def _problem(status: int, problem_id: str) -> web.Response:
    body = {"id": problem_id, "message": f"refused: {problem_id}", "status_code": status}
    return web.json_response(body, status=status)
