"""One HTTP request as a step.

Where it goes is the author's: the host stands in the definition, or in the environment that the operator allows, never
in a template that data could fill (J116). Redirects are not followed: another step can request the new address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tailrace import __version__
from tailrace.flows.language.templates import as_text
from tailrace.flows.steps.base import Handler, Params, StepContext, StepError
from tailrace.messages import JsonObject

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES: Final = 10 * 1024 * 1024
CONNECT_TIMEOUT_S: Final = 10.0
_RETRYABLE: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110, 9.2.2
_HOST: Final = re.compile(r"^[^/]*//[^/?#]*")
_ENV_ONLY: Final = re.compile(r"\{\{\s*env\.[A-Za-z0-9_]+\s*\}\}")
_WHOLE_ENV: Final = re.compile(r"^\{\{\s*env\.[A-Za-z0-9_]+\s*\}\}")


class HttpParams(Params):
    """`repeatable`: a POST or PATCH that may be sent again after a crash; it carries the same `Idempotency-Key`."""

    url: Annotated[str, Meta(min_length=1)]
    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    query: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    json: Any = None
    body: str | None = None
    fail_on_status: bool = True
    repeatable: bool = False


class HttpStep(Handler[HttpParams]):
    Params = HttpParams

    def repeatable(self, params: HttpParams) -> bool:
        return params.method in _IDEMPOTENT or params.repeatable

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        if isinstance(url := params.get("url"), str) and (problem := host_problem(url)):
            yield ".url", problem
        if params.get("json") is not None and params.get("body") is not None:
            yield ".body", "give json or body, not both"
        yield from super().mistakes(params)

    async def run(self, params: HttpParams, step: StepContext) -> Any:
        return await send_request(params, f"{step.key}/{step.number}")

    async def dry_run(self, _params: HttpParams, _step: StepContext) -> Any:
        return {"status": 200, "headers": {}, "body": "", "json": None, "dry_run": True}


async def send_request(params: HttpParams, key: str, connector: aiohttp.BaseConnector | None = None) -> JsonObject:
    """The answer. `key` makes a repeated request the same one; `connector` decides what may be reached. Raises
    `StepError`."""
    import aiohttp

    headers = {"user-agent": f"tailrace/{__version__}", **params.headers}
    if params.method not in ("GET", "HEAD", "OPTIONS") and "idempotency-key" not in map(str.lower, headers):
        headers["idempotency-key"] = key
    data = params.body.encode() if params.body is not None else None
    if params.json is not None:
        data = msgspec.json.encode(params.json)
        headers.setdefault("content-type", "application/json")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout, trust_env=False, connector=connector
            ) as session,
            session.request(
                params.method,
                params.url,
                params={name: as_text(value) for name, value in params.query.items()},
                headers=headers,
                data=data,
                allow_redirects=False,
            ) as response,
        ):
            body = await _body(response)
    except aiohttp.InvalidURL as exc:
        raise StepError(f"{params.url!r} is no address", code="params") from exc
    except (aiohttp.ClientError, OSError) as exc:
        message = f"{params.method} {params.url}: {str(exc) or type(exc).__name__}"
        raise StepError(message, kind="retryable", code="connection") from exc
    return _output(params, response, body)


def host_problem(url: str) -> str:
    """What is wrong with the address of a definition before its templates are filled in; empty when nothing is."""
    if (whole := _WHOLE_ENV.match(url)) is not None and url[whole.end() :][:1] in ("", "/", "?"):
        return ""
    if not url.startswith(("http://", "https://")):
        return "expected an http:// or https:// address"
    host = _HOST.match(url)
    if host is not None and "{{" in _ENV_ONLY.sub("", host[0]):
        return "the host cannot come from a template, unless it is {{env.…}}"
    return ""


async def _body(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for piece in response.content.iter_chunked(65_536):
        data += piece
        if len(data) > MAX_BYTES:
            raise StepError(f"the answer is larger than {MAX_BYTES} bytes", code="too_large")
    return bytes(data)


def _output(params: HttpParams, response: aiohttp.ClientResponse, body: bytes) -> JsonObject:
    text = body.decode(response.charset or "utf-8", "replace")
    if params.fail_on_status and response.status >= 400:
        message = f"{params.method} {params.url}: {response.status} {response.reason or ''}: {text[:300]}"
        kind: Literal["retryable", "permanent"] = "retryable" if response.status in _RETRYABLE else "permanent"
        after = response.headers.get("Retry-After", "")
        asked_s = float(after) if after.isdigit() else None
        raise StepError(message, kind=kind, code=str(response.status), retry_after_s=asked_s)
    try:
        parsed = msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        parsed = None
    headers = {name.lower(): value for name, value in response.headers.items()}
    return {"status": response.status, "headers": headers, "body": text, "json": parsed}
