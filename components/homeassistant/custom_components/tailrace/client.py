"""The server over HTTP: starts runs, follows their logs through lost connections, stops them, answers approvals.

Knows aiohttp and nothing of Home Assistant.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp

from .log_view import LogView, Told
from .sse import SseReader

CONNECT_S = 5.0
REQUEST_S = 15.0
SILENCE_S = 40.0  # the server sends a comment after 15 s of silence: a stream without one is dead
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 5.0


class TailraceError(Exception):
    """The server did not do what it was asked for."""


class Unreachable(TailraceError):
    """No answer, or one that says to come back: asking again later may help."""


class CertificateRefused(Unreachable):
    """The certificate of the server is not trusted."""


class NoTls(Unreachable):
    """The address begins with https, and the server speaks no TLS there."""


class OverLimit(Unreachable):
    """The key has used up what it may use for now; the message is the server's and says when it may again."""


class KeyRefused(TailraceError):
    """The key is wrong, or missing."""


class KeyMayNot(TailraceError):
    """The key is good and lacks the scope `runs`, or the run was started with another key."""


class Refused(TailraceError):
    """The request itself was refused; the message is the server's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotTailrace(TailraceError):
    """Something else answers at this address."""


class TailraceClient:
    """`session` is shared with others and not closed here."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str = "") -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def check(self) -> None:
        """Whether the address and the key are good for runs. Raises `TailraceError`."""
        try:
            body = await self._ask("GET", "/runs", params={"limit": "1"})
        except Refused as exc:
            raise NotTailrace(str(exc)) from exc
        if not isinstance(body.get("data"), list):
            raise NotTailrace("the answer is none of Tailrace's")

    async def ready(self) -> None:
        """Whether new work is taken. Raises `TailraceError`."""
        await self._ask("GET", "/readyz")

    async def models(self) -> list[str]:
        """What `model` may name."""
        body = await self._ask("GET", "/v1/models")
        return [str(model["id"]) for model in body.get("data", []) if isinstance(model, dict) and "id" in model]

    async def knows_model(self, model: str) -> bool:
        """Whether `model` names one. True where the key may not ask. Raises `TailraceError`."""
        try:
            await self._ask("GET", f"/v1/models/{quote(model, safe='/')}")
        except KeyMayNot:
            return True
        except Refused:
            return False
        return True

    async def start(self, text: str, *, session: str, key: str, model: str = "", instructions: str = "") -> str:
        """The id of a run that answers `text`. Asked again with the same `key`, it is the same run."""
        system = [{"role": "system", "content": instructions}] if instructions else []
        body: dict[str, Any] = {
            "input": [*system, {"role": "user", "content": text}],
            "session": session,
            "idempotency_key": key,
            **({"model": model} if model else {}),
        }
        return str((await self._ask("POST", "/runs", body))["id"])

    async def state(self, run_id: str) -> dict[str, Any]:
        return await self._ask("GET", f"/runs/{run_id}")

    async def newest_run(self, session: str) -> dict[str, Any] | None:
        """The session's last run, in short."""
        runs = (await self._ask("GET", "/runs", params={"session": session, "limit": "1"}))["data"]
        return dict(runs[0]) if runs else None

    async def stop(self, run_id: str) -> None:
        await self._ask("POST", f"/runs/{run_id}/stop")

    async def answer(self, run_id: str, approval_id: str, *, allowed: bool) -> None:
        """Answers an approval. One that was answered meanwhile, or whose run has ended, is left as it is."""
        body = {"approval_id": approval_id, "decision": "once" if allowed else "deny"}
        try:
            await self._ask("POST", f"/runs/{run_id}/approval", body)
        except Refused as refused:
            if refused.status != 409:
                raise

    async def follow(self, run_id: str, view: LogView, *, patience_s: float | None) -> AsyncGenerator[list[Told], None]:
        """What the log tells from `view.seq` on, to its end. A lost connection is made again from there; one that
        cannot be made for `patience_s` raises `Unreachable` (None: never)."""
        clock = asyncio.get_running_loop().time
        lost_at, wait_s = clock(), _FIRST_WAIT_S
        while not view.ended:
            try:
                async with aclosing(self._read_on(run_id, view)) as batches:
                    async for told in batches:
                        yield told
                        lost_at, wait_s = clock(), _FIRST_WAIT_S
            except Unreachable:
                if patience_s is not None and clock() - lost_at > patience_s:
                    raise
            if not view.ended:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def _read_on(self, run_id: str, view: LogView) -> AsyncGenerator[list[Told], None]:
        """One connection's part of the log. Raises `Unreachable` where it is cut."""
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=SILENCE_S)
        headers = {"Last-Event-ID": str(view.seq)} if view.seq else {}
        async with self._request("GET", f"/runs/{run_id}/stream", headers=headers, timeout=timeout) as response:
            if response.status == 204:  # there is nothing behind the last event that was read
                view.ended = True
                return
            await _raise_refusal(response)
            reader = SseReader()
            try:
                async for piece, _ in response.content.iter_chunks():
                    events = [event for event in reader.feed(piece) if event.event != "error"]
                    if told := view.feed(json.loads(event.data) for event in events):
                        yield told
            except ValueError as exc:  # too long, or no JSON
                raise Unreachable(str(exc)) from exc

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, params: dict[str, str] | None = None
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=REQUEST_S, connect=CONNECT_S)
        async with self._request(method, path, json=body, params=params, timeout=timeout) as response:
            await _raise_refusal(response)
            try:
                answer = await response.json()
            except (aiohttp.ContentTypeError, ValueError) as exc:
                raise NotTailrace("the answer is none of Tailrace's") from exc
        if not isinstance(answer, dict):
            raise NotTailrace("the answer is none of Tailrace's")
        return answer

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, headers: dict[str, str] | None = None, **given: Any
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        try:
            async with self._session.request(
                method, self._url + path, headers={**self._headers, **(headers or {})}, allow_redirects=False, **given
            ) as response:
                yield response
        except aiohttp.ClientConnectorCertificateError as exc:
            raise CertificateRefused(str(exc)) from exc
        except aiohttp.ClientConnectorSSLError as exc:
            raise NoTls(str(exc)) from exc
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise Unreachable(str(exc) or type(exc).__name__) from exc


async def _raise_refusal(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    message, kind = await _error(response)
    match response.status:
        case 401:
            raise KeyRefused(message)
        case 403 if kind == "model_not_allowed":  # the key is good: another model would do
            raise Refused(response.status, message)
        case 403:
            raise KeyMayNot(message)
        case 429 if message:
            raise OverLimit(message)
        case 408 | 425 | 429 | 500 | 502 | 503 | 504:
            raise Unreachable(message)
        case status if status < 400 or not message:
            raise NotTailrace(f"the answer has the status {status}")
        case status:
            raise Refused(status, message)


async def _error(response: aiohttp.ClientResponse) -> tuple[str, str]:
    """What the server says, and the kind of the error; both empty where something else has answered."""
    try:
        error = (await response.json())["error"]
        return str(error["message"]), str(error.get("kind") or "")
    except (aiohttp.ContentTypeError, ValueError, KeyError, TypeError, AttributeError):
        return "", ""


async def persist(request: Callable[[], Awaitable[str]], *, patience_s: float) -> str:
    """The result of a request that may be repeated, asked again while the server is away. A limit lasts longer than
    anybody waits for a first word."""
    clock = asyncio.get_running_loop().time
    begun, wait_s = clock(), _FIRST_WAIT_S
    while True:
        try:
            return await request()
        except OverLimit:
            raise
        except Unreachable:
            if (left_s := begun + patience_s - clock()) <= 0:
                raise
        await asyncio.sleep(min(wait_s, left_s))
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
