"""What single endpoints get wrong or need, as data; and the one place where a request body is made.

Owns the registry and how an entry is matched: on the real host, on the model, or by name. What the user set always
wins over an entry. Knows nothing of connections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec

from tailrace.messages import Dialect, JsonObject, ModelRequest, assistant, user
from tailrace.providers.http.endpoint import NOTHING, Endpoint
from tailrace.providers.http.refused_fields import without_fields
from tailrace.wire.dialect import WireDialect
from tailrace.wire.quirks import NONE, WireQuirks

CONTINUE = (
    "Your previous message was cut off by a connection failure. Go on from exactly where it stops: "
    "repeat none of it, comment on nothing, write only what comes next."
)


class Routing(msgspec.Struct, frozen=True):
    """Preferences among the hosts behind a router, in OpenRouter's terms: its field `provider`."""

    ignore: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


class Quirk(msgspec.Struct, frozen=True, kw_only=True):
    """One known deviation. Without a host it holds only where an endpoint names it."""

    name: str
    why: str  # where it is documented
    host: str = ""  # this host and its subdomains
    models: tuple[str, ...] = ("*",)  # globs on the model's name in lower case; any of them
    dialects: tuple[Dialect, ...] = ()  # empty: all
    wire: WireQuirks = NONE
    routing: Routing | None = None
    drop: tuple[str, ...] = ()  # fields the endpoint refuses
    rename: Mapping[str, str] = NOTHING  # fields it calls otherwise
    add_to_prefill: Mapping[str, Any] | None = None  # it goes on from a last assistant message, given these fields


REGISTRY: tuple[Quirk, ...] = (
    Quirk(
        name="openrouter-minimax",
        why="https://github.com/MiniMax-AI/MiniMax-M2/issues/109",  # streams with tools that never end
        host="openrouter.ai",
        models=("minimax/*",),
        routing=Routing(
            ignore=("minimax",), order=("fireworks", "novitaai", "google-vertex", "atlascloud", "together")
        ),
    ),
    Quirk(
        name="cumulative-text",
        why="https://github.com/QwenLM/qwen-code/pull/3896",  # each delta is the whole text so far (A17)
        wire=WireQuirks(cumulative_text=True),
    ),
    Quirk(
        name="name-in-pieces",
        why="https://github.com/continuedev/continue/pull/5849",  # a tool's name comes in pieces (B28)
        wire=WireQuirks(name_in_pieces=True),
    ),
    Quirk(
        name="ends-without-done",
        why="https://github.com/gpustack/llama-box/issues/2",  # small servers forget `[DONE]`; a user may say so (D48)
        dialects=("chat",),
        wire=WireQuirks(ends_without_done=True),
    ),
    Quirk(
        name="perplexity-done",
        why="https://github.com/perplexityai/api-discussion/issues/209",  # `[DONE]` is sent by some models, not all
        host="api.perplexity.ai",
        dialects=("chat",),
        wire=WireQuirks(ends_without_done=True),
    ),
    Quirk(
        name="huggingface-done",
        why="https://github.com/huggingface/text-generation-inference/pull/2221",  # older backends never send it
        host="router.huggingface.co",
        dialects=("chat",),
        wire=WireQuirks(ends_without_done=True),
    ),
    Quirk(
        name="writer-done",
        # recorded there: both streams end with the finish reason
        why="https://github.com/traceloop/openllmetry/tree/93429cfb9767e6b51db6cb35f6b70f758117669a/packages/"
        "opentelemetry-instrumentation-writer/tests/cassettes/test_chat",
        host="api.writer.com",
        dialects=("chat",),
        wire=WireQuirks(ends_without_done=True),
    ),
    Quirk(
        name="mistral-fields",
        why="https://github.com/avante-corp/avante.nvim/issues/2347",  # unknown fields are a 422; usage comes unasked
        host="api.mistral.ai",
        dialects=("chat",),
        drop=("stream_options", "store"),
        rename={"max_completion_tokens": "max_tokens", "seed": "random_seed"},
    ),
    Quirk(
        name="claude-prefill",
        why="https://github.com/vercel/ai/issues/12296",  # models from 4.6 on refuse a last assistant message
        host="anthropic.com",
        models=("claude-3*", "claude-*-4-0*", "claude-*-4-1*", "claude-*-4-5*", "claude-*-4-2025*"),
        dialects=("anthropic",),
        add_to_prefill=NOTHING,
    ),
    Quirk(
        name="prefill",
        why="https://github.com/ggml-org/llama.cpp/pull/13174",  # a last assistant message is gone on from
        add_to_prefill=NOTHING,
    ),
    Quirk(
        name="vllm-prefill",
        why="https://github.com/vllm-project/vllm/pull/8942",  # the same, when asked
        dialects=("chat",),
        add_to_prefill={"continue_final_message": True, "add_generation_prompt": False},
    ),
)
NAMES = frozenset(quirk.name for quirk in REGISTRY)


def quirks_of(endpoint: Endpoint, model: str) -> tuple[Quirk, ...]:
    """The entries that hold for this model at this endpoint."""
    return _matching(endpoint.host, model.lower(), endpoint.dialect, endpoint.quirks)


def wire_quirks_of(quirks: Iterable[Quirk]) -> WireQuirks:
    """What the decoder must be told."""
    wires = [quirk.wire for quirk in quirks]
    return WireQuirks(*(any(getattr(wire, name) for wire in wires) for name in WireQuirks.__struct_fields__))


def adapted_body(
    request: ModelRequest,
    wire: WireDialect,
    quirks: Iterable[Quirk],
    *,
    extra: Mapping[str, Any] = NOTHING,
    refused: Collection[str] = (),
    stream: bool,
) -> JsonObject:
    """The body to send: the dialect's words, then the endpoint's `extra`, then the request's own, then whatever the
    quirks add to or take from the fields that neither of the two set. `refused`: the paths of fields that the endpoint
    was found to refuse."""
    quirks = tuple(quirks)
    chosen = merged(extra, request.extra) if extra else request.extra
    if request.prefill:
        request, fields = _continued(request, quirks, chosen)
        request = msgspec.structs.replace(request, extra={**fields, **chosen})
    elif chosen is not request.extra:
        request = msgspec.structs.replace(request, extra=chosen)
    if any(field.scattered and field.path in refused for field in wire.optional_fields):
        request = msgspec.structs.replace(request, cache_prompt=False)
    body = wire.encode_request(request, stream=stream)
    for quirk in quirks:
        if quirk.routing is not None:
            _route(body, quirk.routing)
        for name in quirk.drop:
            if name not in chosen:
                body.pop(name, None)
        for name, theirs in quirk.rename.items():
            if name in body and name not in chosen:
                body.setdefault(theirs, body.pop(name))
    return without_fields(body, refused, chosen)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> JsonObject:
    """Both, objects merged key by key; where they differ `over` wins."""
    result = dict(base)
    for name, value in over.items():
        mine = result.get(name)
        result[name] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def matches_host(host: str, domain: str) -> bool:
    """The domain itself or a subdomain: `eu.openrouter.ai`, never `evil-openrouter.ai` or `openrouter.ai.evil.com`."""
    host = host.lower().rstrip(".")
    return host == domain or host.endswith(f".{domain}")


@lru_cache(maxsize=1024)
def _matching(host: str, model: str, dialect: Dialect, names: tuple[str, ...]) -> tuple[Quirk, ...]:
    if unknown := [name for name in names if name not in NAMES]:
        raise LookupError(f"no quirk is called {unknown[0]!r}; there are {', '.join(sorted(NAMES))}")
    return tuple(
        quirk
        for quirk in REGISTRY
        if (quirk.name in names or (quirk.host and matches_host(host, quirk.host)))
        and (not quirk.dialects or dialect in quirk.dialects)
        and any(fnmatchcase(model, glob) for glob in quirk.models)
    )


def _continued(
    request: ModelRequest, quirks: tuple[Quirk, ...], chosen: Mapping[str, Any]
) -> tuple[ModelRequest, Mapping[str, Any]]:
    """A continuation as the endpoint takes it: from a last assistant message where it can, else by instruction.
    With thoughts or a schema asked for, endpoints that can refuse it."""
    thinks = request.reasoning_effort not in (None, "none") or "thinking" in chosen
    for quirk in quirks:
        if quirk.add_to_prefill is not None and not thinks and request.response_schema is None:
            return request, quirk.add_to_prefill
    messages = (*request.messages, assistant(request.prefill), user(CONTINUE))
    return msgspec.structs.replace(request, messages=messages, prefill=""), NOTHING


def _route(body: JsonObject, routing: Routing) -> None:
    """Adds the preferences that leave the user's own intact: `only` is a choice already, a `sort` would be undone
    by our order, and a provider that the user listed is not ignored."""
    theirs = body.get("provider") or {}
    if not isinstance(theirs, dict) or "only" in theirs:
        return
    preferences = dict(theirs)
    ordered = theirs.get("order") or ()
    if ignored := [name for name in routing.ignore if name not in ordered]:
        preferences.setdefault("ignore", ignored)
    if "sort" not in theirs:
        preferences.setdefault("order", list(routing.order))
    body["provider"] = preferences
