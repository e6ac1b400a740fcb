"""`llm_call`: one model call as a step, streamed or not, with a schema or without.

On the one model call of `providers`. A step restarts instead of continuing: its output is exactly one provider's one
answer. Streamed or not, it takes this one path; streaming only adds the deltas to the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tailrace import messages
from tailrace.errors import ConfigError, ProviderError
from tailrace.flows.language.templates import has_template
from tailrace.flows.schema.incremental import PartialAnswer
from tailrace.flows.schema.schema import Schema, SchemaError
from tailrace.flows.schema.whole_value import NotChecked, answer_in, load_schema
from tailrace.flows.steps.base import AskedModel, Handler, StepContext, StepError, fields_of
from tailrace.flows.steps.http import host_problem
from tailrace.flows.steps.llm_params import LlmParams, ProviderParam, request_of
from tailrace.flows.steps.step_stream import StepStream, text_of
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.call_listener import ForwardingListener, Verdict
from tailrace.providers.prices import Prices
from tailrace.providers.schema_words import in_words, refuses_schema

DRY = "(dry run)"  # stands for the answer, so that later steps have a text


class Routes(Protocol):
    """Where models are asked. What a definition names is looked up here, keys included."""

    def route(self, ref: ProviderParam) -> Route:
        """Raises `ConfigError` for a provider that is not there, a key that is not set or may not be used."""

    def check(self, ref: ProviderParam) -> None:
        """Raises `ConfigError` for a provider that is not there, and for a name that the embedded model does not have;
        its key need not be set."""

    def may_use(self, variable: str) -> bool:
        """Whether a definition may name this variable as the one that holds a key."""


class LlmCall(Handler[LlmParams]):
    Params = LlmParams

    def __init__(self, caller: Caller, routes: Routes) -> None:
        self._caller = caller
        self._routes = routes

    def mistakes(self, params: messages.JsonObject) -> Iterator[tuple[str, str]]:
        known = fields_of(LlmParams)
        if "messages" not in params and "prompt" not in params and params.keys() <= known.keys():  # else it is misspelt
            yield "", "nothing is asked: give messages or prompt"
        if "providers" in params and ("provider" in params or "model" in params):
            yield ".providers", "give provider and model, or providers"
        for place, ref in [("", params), *_listed_refs(params)]:
            if (problem := self._invalid_ref(ref)) is not None:
                yield place + problem[0], problem[1]
        if isinstance(schema := params.get("response_schema"), dict) and not has_template(schema):
            try:
                Schema(schema)
            except SchemaError as exc:
                yield ".response_schema", str(exc)
        yield from super().mistakes(params)

    def unknown_models(self, params: messages.JsonObject) -> Iterator[tuple[str, str]]:
        for place, ref in _listed_refs(params) if "providers" in params else [("", params)]:
            named = {name: ref[name] for name in fields_of(ProviderParam) if name in ref}
            try:
                if not has_template(named):
                    self._routes.check(msgspec.convert(named, ProviderParam))
            except ConfigError as exc:
                yield place + (".provider" if "provider" in named else ".model" if "model" in named else ""), str(exc)
            except msgspec.ValidationError:
                pass  # the check of all parameters says so

    def _invalid_ref(self, ref: messages.JsonObject) -> tuple[str, str] | None:
        """The address and the key come from the author and the operator, never from data."""
        if isinstance(url := ref.get("base_url"), str) and (problem := host_problem(url)):
            return ".base_url", problem
        if isinstance(variable := ref.get("api_key_env"), str) and not self._routes.may_use(variable):
            return ".api_key_env", f"{variable[:40]} is not listed in flows.env_allow"
        return None

    def asks(self, params: LlmParams) -> Sequence[AskedModel]:
        routes = () if params.dry_run else map(self._routes.route, params.refs())
        return [AskedModel(route.provider.name, route.model, route.provider.dialect) for route in routes]

    async def run(self, params: LlmParams, step: StepContext) -> Any:
        if params.dry_run:
            return await self.dry_run(params, step)
        schema = await _schema_of(params)
        request = await request_of(params, step.directory)
        call = _CheckedCall(self._caller, self._routes_of(params, step), params, step, schema)
        answer = await call.answer(request)
        return await self._output(answer, params, step.prices)

    async def dry_run(self, params: LlmParams, step: StepContext) -> Any:
        await _schema_of(params)
        await request_of(params, step.directory)
        for ref in params.refs():
            self._routes.check(ref)
        route = self._routes_of(params, step)[0]
        return {
            "provider": route.provider.name,
            "model": route.model,
            "message": {"role": "assistant", "content": DRY},
            "finish_reason": "dry_run",
            "usage": _usage(messages.Usage()),
            "dry_run": True,
        }

    def _routes_of(self, params: LlmParams, step: StepContext) -> list[Route]:
        """Where the step says itself how it is tried again, each try asks each provider once."""
        changes: dict[str, Any] = {}
        if step.has_retry:
            changes["max_attempts"] = 1
        if params.stream_idle_timeout_secs is not None:
            changes["idle_timeout_s"] = params.stream_idle_timeout_secs
        if params.first_token_timeout_secs is not None:
            changes["first_token_timeout_s"] = params.first_token_timeout_secs
        if params.per_provider_timeout_secs is not None:
            changes["total_timeout_s"] = params.per_provider_timeout_secs
        routes = [self._routes.route(ref) for ref in params.refs()]
        return [
            msgspec.structs.replace(route, policy=msgspec.structs.replace(route.policy, **changes)) for route in routes
        ]

    async def _output(self, answer: _StepAnswer, params: LlmParams, prices: Prices) -> messages.JsonObject:
        completion = answer.completion
        message: messages.JsonObject = {"role": "assistant", "content": completion.text}
        if completion.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments} for call in completion.tool_calls
            ]
        if completion.refusal:
            message["refusal"] = completion.refusal
        output: messages.JsonObject = {
            "provider": answer.provider,
            "model": completion.model or answer.model,
            "message": message,
            "finish_reason": completion.finish_reason,
            "usage": _usage(completion.usage),
        }
        if params.providers:
            output["tried"] = list(answer.tried)
        if params.response_schema is not None and answer.checked:
            output |= {"schema_valid": True, "repair_attempts": answer.repairs, "parsed": answer.value}
        for model in dict.fromkeys((answer.model, output["model"])):  # a router's alias has no price, its choice may
            spent = messages.SpentTokens(answer.provider, model, completion.usage)
            if (cost := await prices.find(spent, completion.dialect)) is not None:
                return {**output, "cost_usd": cost}
        return output


def _listed_refs(params: messages.JsonObject) -> list[tuple[str, messages.JsonObject]]:
    """The entries of `providers`, each with its place."""
    refs = params.get("providers")
    listed = enumerate(refs) if isinstance(refs, list) else ()
    return [(f".providers[{number}]", ref) for number, ref in listed if isinstance(ref, dict)]


class _StepAnswer(msgspec.Struct, frozen=True):
    """The answer that stands. `checked`: it satisfies the schema, and `value` is its JSON."""

    completion: messages.Completion
    provider: str
    model: str
    tried: tuple[str, ...]
    repairs: int = 0
    checked: bool = False
    value: Any = None


class _InvalidAnswer(msgspec.Struct, frozen=True):
    """An answer that does not satisfy the schema, and why."""

    text: str
    problems: tuple[str, ...]


class _CannotSatisfySchema(Exception):
    """However the answer goes on, it cannot satisfy the schema."""


class _CheckedCall:
    """One step's call, and a repair for every answer that does not satisfy the schema."""

    def __init__(
        self, caller: Caller, routes: list[Route], params: LlmParams, step: StepContext, schema: Schema | None
    ) -> None:
        self._caller = caller
        self._routes = routes
        self._params = params
        self._step = step
        self._schema = schema
        self._tried: list[str] = []
        step.log.dialects = {route.provider.name: route.provider.dialect for route in routes}
        now = asyncio.get_running_loop().time
        self._ends_at = now() + params.total_timeout_secs if params.total_timeout_secs is not None else None

    async def answer(self, request: messages.ModelRequest) -> _StepAnswer:
        """Raises `ProviderError`, or `StepError` where no repair has helped."""
        rejected = _InvalidAnswer("", ())
        for repairs in range(self._params.max_repair_attempts + 1):
            outcome = await self._ask(request, repairs)
            if isinstance(outcome, _StepAnswer):
                return outcome
            rejected = outcome
            request = _repairing(request, rejected)
        raise StepError(
            f"no answer satisfies the schema after {self._params.max_repair_attempts} repairs: "
            f"{'; '.join(rejected.problems)}",
            code="schema",
        )

    async def _ask(self, request: messages.ModelRequest, repairs: int) -> _StepAnswer | _InvalidAnswer:
        listener = _SchemaListener(self._step.log, self._schema, stream=self._params.stream)
        try:
            result = await self._complete(request, listener)
        except _CannotSatisfySchema:
            return self._reject(listener)
        except ProviderError as exc:
            self._note(exc.tried)
            if not refuses_schema(exc, request):
                raise
            return await self._ask(in_words(request), repairs)
        self._note(result.tried)
        self._routes = sorted(self._routes, key=lambda route: route.provider.name != result.provider)
        listener.complete(result)
        model = result.attempts[-1].model
        answer = _StepAnswer(result.completion, result.provider, model, tuple(self._tried), repairs)
        if listener.partial is None or result.completion.tool_calls:
            return answer
        try:
            value, problems = await answer_in(listener.partial.text, listener.partial.schema)
        except NotChecked as exc:
            raise StepError(f"the answer: {exc}", code="schema") from exc
        if problems:
            return self._reject(listener, problems)
        return msgspec.structs.replace(answer, checked=True, value=value)

    async def _complete(self, request: messages.ModelRequest, listener: _SchemaListener) -> CallResult:
        budget_s = None
        if self._ends_at is not None:
            budget_s = max(0.001, self._ends_at - asyncio.get_running_loop().time())
        return await self._step.log.complete(
            self._caller, request, self._routes, listener=listener, purpose="step", budget_s=budget_s
        )

    def _reject(self, listener: _SchemaListener, problems: Sequence[str] = ()) -> _InvalidAnswer:
        partial = listener.partial
        found = tuple(problems) or ((partial.problem,) if partial is not None else ())
        self._step.log.discard(f"the answer does not satisfy the schema: {'; '.join(found)}")
        return _InvalidAnswer(partial.text if partial is not None else "", found)

    def _note(self, tried: Sequence[str]) -> None:
        self._tried += [name for name in tried if name not in self._tried]


class _SchemaListener(ForwardingListener):
    """Checks the answer against the schema as it comes, between the call and the step's log."""

    def __init__(self, log: StepStream, schema: Schema | None, *, stream: bool) -> None:
        super().__init__(log)
        self._log = log
        self._stream = stream
        self._schema = schema
        self.partial: PartialAnswer | None = None

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        super().attempt_started(number, provider, model)
        self.partial = PartialAnswer(self._schema) if self._schema is not None else None

    def deltas(self, deltas: list[messages.AnyDelta]) -> StopCall | None:
        if self._stream:
            self._log.deltas(deltas)
        if self.partial is not None and self.partial.feed(text_of(deltas)):
            return StopCall(_CannotSatisfySchema())
        return None

    def verdict(self, _error: ProviderError) -> Verdict:
        return "restart"

    def complete(self, result: CallResult) -> None:
        """The answer is whole. Where its text is not what was streamed, it is logged now as an attempt of its own:
        the deltas in the log, joined, are what is stored."""
        text = result.completion.text
        if self._stream and (said := self._log.text_so_far()) != text:
            if said:
                self._log.discard("the provider corrected what it had said")
                self._log.attempt_started(1, result.provider, result.attempts[-1].model)
            self._log.deltas([messages.TextDelta(text)])
        if self.partial is not None and self.partial.text != text and self._schema is not None:
            self.partial = PartialAnswer(self._schema)
            self.partial.feed(text)


async def _schema_of(params: LlmParams) -> Schema | None:
    try:
        return await load_schema(params.response_schema) if params.response_schema is not None else None
    except SchemaError as exc:
        raise StepError(f"response_schema: {exc}", code="params") from exc


def _repairing(request: messages.ModelRequest, rejected: _InvalidAnswer) -> messages.ModelRequest:
    said = (messages.Message("assistant", (messages.Text(rejected.text),)),) if rejected.text.strip() else ()
    problems = "\n".join(f"- {problem}" for problem in rejected.problems)
    words = (
        f"That does not satisfy the JSON schema:\n{problems}\nAnswer again with the corrected JSON and nothing else."
    )
    return msgspec.structs.replace(request, messages=(*request.messages, *said, messages.user(words)))


def _usage(usage: messages.Usage) -> Mapping[str, int]:
    known: Mapping[str, int] = msgspec.to_builtins(usage)
    return {"input_tokens": 0, "output_tokens": 0, **known}
