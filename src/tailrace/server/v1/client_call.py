"""One request of a connected client, and the id and the header of its answer."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from aiohttp import web

from tailrace.events import ApprovalAsked
from tailrace.messages import AnyDelta, JsonObject, Message
from tailrace.ports import Run
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IGNORED
from tailrace.system.private_apis import request_values
from tailrace.tools.typed import preview_line
from tailrace.wire.client_request import ClientRequest, InvalidRequest
from tailrace.wire.dialect import WireDialect
from tailrace.wire.dialects import ANTHROPIC, CHAT, RESPONSES
from tailrace.wire.served_dialect import AnswerHeader, ServedDialect

MAX_NAMES: Final = 32
MAX_NAME_CHARS: Final = 64
_PREFIXES: Final = "|".join(re.escape(dialect.id_prefix) for dialect in (CHAT, RESPONSES, ANTHROPIC))
_ANSWER_ID: Final = re.compile(rf"(?:{_PREFIXES})([0-9a-z]+)")


def read_client_request(request: web.Request, dialect: ServedDialect, body: JsonObject) -> ClientRequest:
    """The request, with the headers that a provider of the same dialect is sent (K128). Raises `InvalidRequest`."""
    client_request = dialect.parse_client_request(body)
    headers = forwarded_headers(request, dialect)
    return msgspec.structs.replace(client_request, headers=headers) if headers else client_request


def forwarded_headers(request: web.Request, dialect: WireDialect) -> dict[str, str]:
    """The headers of a client of this dialect that a provider of it is sent too. Raises `InvalidRequest`."""
    headers: dict[str, str] = {}
    for name in dialect.forwarded_headers:
        if name in request.headers:
            headers[name] = value = ",".join(request.headers.getall(name))
            if not (value.isascii() and value.isprintable()):
                raise InvalidRequest("holds a character that no HTTP header can", name)
    return headers


def answer_id(dialect: ServedDialect, run_id: str) -> str:
    """The id of a run's answer in this API."""
    return dialect.id_prefix + run_id.removeprefix("run_")


def run_id_of(given: str) -> str:
    """The run behind an answer's id; the text unchanged where it is no such id (no run has it)."""
    bare = _ANSWER_ID.fullmatch(given)
    return f"run_{bare[1]}" if bare else given


def set_ignored_header(request: web.Request, ignored: tuple[str, ...]) -> None:
    """Names the parameters that the model is not told in a header of the answer (K129). Clients choose these names: the
    header holds no character that could end it, and not more than clients take."""
    if not ignored:
        request_values(request).pop(IGNORED, None)
        return
    names = ["".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name) for name in ignored]
    shown = [name[:MAX_NAME_CHARS] for name in names[:MAX_NAMES]]
    more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    request[IGNORED] = (*shown, *more)


def question_delta(dialect: ServedDialect, run_id: str, address: str, asked: ApprovalAsked) -> AnyDelta:
    """What a client of this dialect is told of a question (N168)."""
    arguments = {"command": asked.command, "directory": asked.directory, "reason": asked.reason}
    waits_s = round(asked.expires_at - asked.asked_at)
    command = preview_line(asked.command)
    line = f"⏸ {asked.tool_name} waits {waits_s} s for an approval: {command} (answer at {address}/?run={run_id})"
    return dialect.question_delta(asked.approval_id, asked.tool_name, arguments, line)


class ClientCall(msgspec.Struct, frozen=True):
    """`history`: the stored messages before those of the request. `fields`: the request's fields that the answer
    repeats. `state`: the fields of the answer that are ours, not the provider's."""

    pipeline: RequestPipeline
    request: web.Request
    client_request: ClientRequest
    dialect: ServedDialect
    history: tuple[Message, ...] = ()
    fields: JsonObject = {}
    state: JsonObject = {}

    def header(self, run: Run, source: WireDialect, *, ended: float | None = None, provider: str = "") -> AnswerHeader:
        """`source`: the dialect of the answer's deltas. `ended`: when it ended, of an answer that is whole."""
        return AnswerHeader(
            id=answer_id(self.dialect, run.id),
            model=self.client_request.request.model,
            created=int(run.created_at),
            source=source,
            include_usage=self.client_request.include_usage,
            fields=self.fields,
            state=self.state,
            ended=ended,
            provider=provider,
            legacy_calls=self.client_request.legacy_functions,
            hidden_thinking=self.client_request.reasoning or bool(self.client_request.request.tools),
        )
