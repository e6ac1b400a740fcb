"""What single endpoints get wrong or need, as data. An entry is matched on the real host, on the model, or by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from tailrace.messages import Dialect

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class WireQuirks(msgspec.Struct, frozen=True):
    """Deviations that cannot be detected from the bytes: the caller tells a decoder which apply. All off: the provider
    speaks its dialect as documented."""

    cumulative_text: bool = False  # each delta repeats the whole text so far (A17)
    name_in_pieces: bool = False  # a tool's name arrives in pieces to be joined (B28)
    ends_without_done: bool = False  # the finish reason is the terminal event: `[DONE]` is never sent (D48)


NONE = WireQuirks()


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
    cumulative_text: bool = False  # each delta repeats the whole text so far
    name_in_pieces: bool = False  # a tool's name arrives in pieces to be joined
    ends_without_done: bool = False  # the finish reason is the terminal event: `[DONE]` is never sent
    routing: Routing | None = None
    body: Mapping[str, Any] = _NOTHING  # fields that it needs
    drop: tuple[str, ...] = ()  # fields the endpoint refuses
    of_config: bool = False  # the user wrote it: `drop` holds for what a request brings too
    rename: Mapping[str, str] = _NOTHING  # fields it calls otherwise
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
        cumulative_text=True,
    ),
    Quirk(
        name="name-in-pieces",
        why="https://github.com/continuedev/continue/pull/5849",  # a tool's name comes in pieces (B28)
        name_in_pieces=True,
    ),
    Quirk(
        name="ends-without-done",
        why="https://github.com/gpustack/llama-box/issues/2",  # small servers forget `[DONE]`; a user may say so (D48)
        dialects=("chat",),
        ends_without_done=True,
    ),
    Quirk(
        name="perplexity-done",
        why="https://github.com/perplexityai/api-discussion/issues/209",  # `[DONE]` is sent by some models, not all
        host="api.perplexity.ai",
        dialects=("chat",),
        ends_without_done=True,
    ),
    Quirk(
        name="huggingface-done",
        why="https://github.com/huggingface/text-generation-inference/pull/2221",  # older backends never send it
        host="router.huggingface.co",
        dialects=("chat",),
        ends_without_done=True,
    ),
    Quirk(
        name="writer-done",
        # recorded there: both streams end with the finish reason
        why="https://github.com/traceloop/openllmetry/tree/93429cfb9767e6b51db6cb35f6b70f758117669a/packages/"
        "opentelemetry-instrumentation-writer/tests/cassettes/test_chat",
        host="api.writer.com",
        dialects=("chat",),
        ends_without_done=True,
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
        add_to_prefill=_NOTHING,
    ),
    Quirk(
        name="prefill",
        why="https://github.com/ggml-org/llama.cpp/pull/13174",  # a last assistant message is gone on from
        add_to_prefill=_NOTHING,
    ),
    Quirk(
        name="vllm-prefill",
        why="https://github.com/vllm-project/vllm/pull/8942",  # the same, when asked
        dialects=("chat",),
        add_to_prefill={"continue_final_message": True, "add_generation_prompt": False},
    ),
)
NAMES = frozenset(quirk.name for quirk in REGISTRY)
