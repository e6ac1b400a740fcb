"""The words for a run that failed: what happened, and what to do next. The same on every surface whose reader can
change the config; chats have their own (`delivery/planning/failure_advice.py`).

Pure: a failure and what is known of the provider in, text out. Nothing is asked and nothing is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.agent.context import has_media as question_has_media
from tailrace.app.models import LOCAL
from tailrace.config.load import Config
from tailrace.config.sections import ProviderSettings
from tailrace.events import RunFailure
from tailrace.messages import Message
from tailrace.ports import Run
from tailrace.providers.presets import PRESETS, Preset
from tailrace.providers.transport.port import CANNOT_CONNECT
from tailrace.runs.failures import is_media_refused, is_out_of_quota, is_too_long

# How the servers that people run themselves are started.
_STARTED_BY: Final = {
    "ollama": "ollama serve",
    "llamacpp": "llama-server -m MODEL.gguf",
    "vllm": "vllm serve MODEL",
    "lmstudio": "lms server start",
}
_DNS: Final = re.compile(r"name or service|name resolution|nodename|getaddrinfo|no address", re.IGNORECASE)


class FailedProvider(msgspec.Struct, frozen=True):
    """What is known of the provider that a call failed at."""

    name: str = ""
    base_url: str = ""
    key_env: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the server is one that the user starts."""
        return self.name in _STARTED_BY or self.is_here

    @property
    def is_here(self) -> bool:
        """Whether its address is one of this machine."""
        return bool(re.search(r"//(localhost|127\.|\[::1\])", self.base_url))


def failed_provider(config: Config, name: str) -> FailedProvider:
    """The provider of this name, as the config and its preset have it; one that neither knows has its name alone."""
    settings = config.providers.get(name, ProviderSettings())
    preset = PRESETS.get(name, Preset(""))
    key_env = settings.key_env or (preset.key_env if settings.base_url is None else None)
    return FailedProvider(name, settings.base_url or preset.base_url, key_env or "")


# ── what happened ────────────────────────────────────────────────────────────────────────────────────────────


def failure_text(failure: RunFailure, *, model: str = "", tries: int = 0, took_s: float = 0.0) -> str:
    """`openai/gpt-5: HTTP 500 "boom", 3 tries in 2.1 s`. `model` is `<provider>/<model>` of the last attempt; nothing
    is said of `tries` below 2."""
    provider = model.partition("/")[0]
    message = failure.message
    status = f"HTTP {failure.status}" if failure.status and not _is_timeout(failure) else ""
    if model:
        message = message.removeprefix(f"{provider}: ")
    if status and message.startswith(status):
        message = message.removeprefix(status).lstrip(": ")
    if status:
        message = f"{status} “{message}”" if message else status
    counted = f", {tries} tries in {took_s:.1f} s" if tries > 1 else ""
    return f"{model}: {message}{counted}" if model else f"{message}{counted}"


def _is_timeout(failure: RunFailure) -> bool:
    """A deadline of ours has no status; the log has 504 for it."""
    return failure.status == 504 and failure.kind == "retryable" and failure.message.find(" within ") > 0


# ── what to do next ──────────────────────────────────────────────────────────────────────────────────────────


def error_advice(failure: RunFailure, provider: FailedProvider | None = None, *, has_media: bool = False) -> str:
    """What a person can do about it, in one line without a full stop; empty where nothing is known. It names no command
    of one surface alone. `has_media`: an image or a file is in the question."""
    asked = provider or FailedProvider()
    if failure.kind == CANNOT_CONNECT or "cannot connect to" in failure.message:
        return _unreachable(failure, asked)
    if is_media_refused(failure):
        return "this model does not take the image or file: ask without it, or choose another model"
    if failure.status == 500 and has_media:  # some servers say no more of an image that their model does not take
        at = asked.name or "the provider"
        maybe = f"the fault is at {at}, or its model does not take the image or file"
        return f"{maybe}: ask without it, or choose another model"
    for statuses, advice in _BY_STATUS:
        if failure.status in statuses:
            return advice(failure, asked)
    if _is_timeout(failure):
        return "the provider is slow or overloaded: ask again, or raise call.first_token_timeout_s"
    if asked.name == LOCAL:
        return "tailrace doctor says what the embedded model needs"
    return ""


def run_advice(config: Config, run: Run, error: RunFailure) -> str:
    """What a person can do about the failure of a run. Its message names the provider, where that was another one than
    the run's model names."""
    if run.state == "stopped":
        return ""
    named_first = error.message.partition(": ")[0]
    known = named_first in config.providers or named_first in PRESETS
    name = named_first if known else run.new.model.partition("/")[0] or config.model.provider
    return error_advice(error, failed_provider(config, name), has_media=_asks_with_media(run))


def _asks_with_media(run: Run) -> bool:
    try:
        return question_has_media([msgspec.convert(run.new.input.get("message"), Message)])
    except msgspec.ValidationError:
        return False


def _unreachable(failure: RunFailure, asked: FailedProvider) -> str:
    if command := _STARTED_BY.get(asked.name):
        return f"is {asked.name} running? start it: `{command}`"
    if asked.is_own:
        return f"is the server at {asked.base_url} running?"
    if _DNS.search(failure.message):
        return "is there a network? the name of the host cannot be resolved"
    return f"can {asked.base_url} be reached from here? network, proxy or firewall" if asked.base_url else ""


def _key(_failure: RunFailure, asked: FailedProvider) -> str:
    if asked.key_env:
        return f"the key in {asked.key_env} was refused: set a valid one, or choose another model"
    return f"{asked.name or 'the provider'} wants a key: name its variable in providers.{asked.name or 'NAME'}.key_env"


def _forbidden(_failure: RunFailure, asked: FailedProvider) -> str:
    which = f"the key in {asked.key_env}" if asked.key_env else "this account"
    return f"{which} may not use this model, or not from here"


def _not_found(failure: RunFailure, asked: FailedProvider) -> str:
    if asked.name == "ollama":
        return "is the model there? `ollama list` names those that are, `ollama pull NAME` fetches one"
    if "model" in failure.message.lower() or failure.kind == "model_not_found":
        return "is the model's name right? /v1/models of the provider lists those that there are"
    return f"is {asked.base_url} the right base_url? is the model's name right?" if asked.base_url else ""


def _limited(failure: RunFailure, _asked: FailedProvider) -> str:
    if is_out_of_quota(failure):
        return "the account has no quota left: add credit, or choose another model"
    wait = f" in {failure.retry_after_s:.0f} s" if failure.retry_after_s else " in a moment"
    return f"too many requests: ask again{wait}, or choose another model"


def _too_long(_failure: RunFailure, _asked: FailedProvider) -> str:
    return "too long for this model: send less, begin a new conversation, or choose another model"


def _malformed(failure: RunFailure, asked: FailedProvider) -> str:
    if is_too_long(failure):
        return _too_long(failure, asked)
    return "the same request will be refused again: change it, or choose another model"


def _broken(_failure: RunFailure, asked: FailedProvider) -> str:
    return f"the fault is at {asked.name or 'the provider'}: ask again later, or choose another model"


_Advice = Callable[[RunFailure, FailedProvider], str]
_BY_STATUS: Final[tuple[tuple[frozenset[int], _Advice], ...]] = (
    (frozenset({401}), _key),
    (frozenset({402}), _limited),
    (frozenset({403}), _forbidden),
    (frozenset({404}), _not_found),
    (frozenset({413}), _too_long),
    (frozenset({400, 422}), _malformed),
    (frozenset({429}), _limited),
    (frozenset({500, 502, 503, 529}), _broken),
)
