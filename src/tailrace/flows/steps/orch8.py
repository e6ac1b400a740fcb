"""Handlers for documents of orch8 that `definition.orch8` has translated: its parameters in, its outputs out.

A `tool_call` whose address comes from the instance's data reaches public addresses alone (J116): data must not choose
a host behind our firewall.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tailrace.flows.definition.public_ids import public_form
from tailrace.flows.language.expressions import Scope
from tailrace.flows.steps.base import Handler, Params, StepContext, StepError
from tailrace.flows.steps.http import HttpParams, send_request
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.flows.steps.llm_params import LlmParams
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import JsonObject


class Orch8LlmParams(LlmParams, kw_only=True):
    response_format: JsonObject | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    total_timeout_secs: Annotated[float, Meta(ge=0)] | None = None  # 0: without end


class Orch8LlmCall(LlmCall):
    """`llm_call` with orch8's output: the answer in Chat Completions' shape, the usage by the provider's own names."""

    Params = Orch8LlmParams

    def fill(self, params: JsonObject, scope: Scope, *, strict: bool) -> JsonObject:
        """A parameter whose template leads nowhere counts as not given."""
        filled = super().fill(params, scope, strict=strict)
        return {name: value for name, value in filled.items() if value is not None}

    async def run(self, params: LlmParams, step: StepContext) -> Any:
        return _orch8_output(await super().run(_as_ours(params), step), params)

    async def dry_run(self, params: LlmParams, step: StepContext) -> Any:
        return _orch8_output(await super().dry_run(_as_ours(params), step), params)


def _as_ours(params: LlmParams) -> LlmParams:
    if not isinstance(params, Orch8LlmParams):
        return params
    changes: dict[str, Any] = {"total_timeout_secs": params.total_timeout_secs or None}
    passed = {name: getattr(params, name) for name in ("frequency_penalty", "presence_penalty", "n")}
    match params.response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            changes["response_schema"] = schema
        case form:
            passed["response_format"] = form
    if not any(ref.provider == "anthropic" for ref in params.refs()):  # its API has none of these
        changes["extra"] = {**{name: value for name, value in passed.items() if value is not None}, **params.extra}
    return msgspec.structs.replace(params, **changes)


def _orch8_output(output: JsonObject, params: LlmParams) -> JsonObject:
    """With `content`, which orch8's own patterns read: the JSON that the answer is, else its text."""
    message = dict(output["message"])
    if "tool_calls" in message:
        message["tool_calls"] = [_chat_call(call) for call in message["tool_calls"]]
    parsed = _json_in(message["content"])
    made = {**output, "message": message, "usage": _provider_usage(output), "content": parsed}
    made.pop("parsed", None)
    form = params.response_format if isinstance(params, Orch8LlmParams) else None
    merges = form is not None and form.get("type") == "json_object" and isinstance(parsed, dict)
    return {**parsed, **made} if merges else made


def _chat_call(call: JsonObject) -> JsonObject:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


def _provider_usage(output: JsonObject) -> JsonObject:
    usage: JsonObject = output["usage"]
    if output["provider"] == "anthropic":
        return usage
    read, written = usage["input_tokens"], usage["output_tokens"]
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _json_in(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


class Orch8ToolParams(Params):
    url: Annotated[str, Meta(min_length=1)]
    tool_name: str = "unknown"
    arguments: Any = msgspec.field(default_factory=dict)
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout_ms: Annotated[int, Meta(ge=1)] = 30_000


class Orch8ToolCall(Handler[Orch8ToolParams]):
    """A request to the address of a tool. `allow_hosts`: those that may be reached although they are not public."""

    Params = Orch8ToolParams

    def __init__(self, allow_hosts: Collection[str] = ()) -> None:
        self._allow_hosts = allow_hosts

    def repeatable(self, params: Orch8ToolParams) -> bool:
        return params.method in ("GET", "PUT", "DELETE")

    async def run(self, params: Orch8ToolParams, step: StepContext) -> Any:
        from tailrace.tools.web.page_fetch import FetchRefused, PageFetch, parsed_url  # aiohttp: few steps need it

        instance_id = public_form(step.instance_id, SEQUENCE)
        place = {"instance_id": instance_id, "block_id": step.block_id, "attempt": step.number}
        body = {"tool_name": params.tool_name, "arguments": params.arguments, "context": place}
        request = HttpParams(params.url, params.method, params.headers, json=None if params.method == "GET" else body)
        try:
            async with asyncio.timeout(params.timeout_ms / 1000):
                connector = await PageFetch(self._allow_hosts, None, 0).connector(parsed_url(params.url))
                answer = await send_request(request, f"{step.key}/{step.number}", connector)
        except FetchRefused as exc:
            raise StepError(f"{exc}; flows.allow_hosts can name the host", code="params") from exc
        except TimeoutError as exc:
            message = f"no answer within {params.timeout_ms} ms"
            raise StepError(message, kind="retryable", code="timeout") from exc
        return {"tool_name": params.tool_name, "result": answer["json"]}

    async def dry_run(self, params: Orch8ToolParams, _step: StepContext) -> Any:
        return {"tool_name": params.tool_name, "result": None, "dry_run": True}


class ValuesParams(Params):
    given: JsonObject


class Values(Handler[ValuesParams]):
    """Gives its parameters as its output: `noop`, `transform`, `set_state`."""

    Params = ValuesParams

    def convert(self, params: JsonObject) -> ValuesParams:
        return ValuesParams(params)

    def mistakes(self, _params: JsonObject) -> Iterator[tuple[str, str]]:
        return iter(())

    async def run(self, params: ValuesParams, _step: StepContext) -> Any:
        return params.given

    async def dry_run(self, params: ValuesParams, _step: StepContext) -> Any:
        return params.given
