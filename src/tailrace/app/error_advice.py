"""What the operator reads of a run that failed: what happened, and what to do next.

The words of the advice are in `delivery/planning/failure_advice.py`, beside those that guests of a chat read; this
module fills in what the config says of the provider. Pure: nothing is asked and nothing is looked up.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tailrace.agent.context import has_media as question_has_media
from tailrace.app.models import LOCAL
from tailrace.config.load import Config
from tailrace.config.presets import PRESETS, Preset
from tailrace.config.sections import ProviderSettings
from tailrace.delivery.planning.failure_advice import ADVICE, problem_of, wait_words
from tailrace.events import RunFailure
from tailrace.messages import Message
from tailrace.ports import Run

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
    status = f"HTTP {failure.status}" if failure.status and not _is_own_deadline(failure) else ""
    if model:
        message = message.removeprefix(f"{provider}: ")
    if status and message.startswith(status):
        message = message.removeprefix(status).lstrip(": ")
    if status:
        message = f"{status} “{message}”" if message else status
    counted = f", {tries} tries in {took_s:.1f} s" if tries > 1 else ""
    return f"{model}: {message}{counted}" if model else f"{message}{counted}"


def _is_own_deadline(failure: RunFailure) -> bool:
    """A deadline of ours has no status; the log has 504 for it."""
    return failure.status == 504 and failure.kind == "retryable" and failure.message.find(" within ") > 0


# ── what to do next ──────────────────────────────────────────────────────────────────────────────────────────


def error_advice(failure: RunFailure, provider: FailedProvider | None = None, *, has_media: bool = False) -> str:
    """What the operator can do about it, in one line without a full stop; empty where nothing is known. It names no
    command of one surface alone. `has_media`: an image or a file is in the question."""
    asked = provider or FailedProvider()
    at = asked.name or "the provider"
    problem = problem_of(failure)
    if failure.status == 500 and has_media and problem == "broken":  # an image may be why, and some servers say no more
        maybe = f"the fault is at {at}, or its model does not take the image or file"
        return f"{maybe}: ask without it, or choose another model"
    if problem is None or (problem == "timeout" and not _is_own_deadline(failure)):
        return "tailrace doctor says what the embedded model needs" if asked.name == LOCAL else ""
    return ADVICE[problem].operator.format(
        account=f"the key in {asked.key_env}" if asked.key_env else "this account",
        key=_key(asked),
        not_found=_not_found(failure, asked),
        provider=at,
        unreachable=_unreachable(failure, asked),
        wait=wait_words(failure),
    )


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


def _key(asked: FailedProvider) -> str:
    if asked.key_env:
        return f"the key in {asked.key_env} was refused: set a valid one, or choose another model"
    return f"{asked.name or 'the provider'} wants a key: name its variable in providers.{asked.name or 'NAME'}.key_env"


def _not_found(failure: RunFailure, asked: FailedProvider) -> str:
    if asked.name == "ollama":
        return "is the model there? `ollama list` names those that are, `ollama pull NAME` fetches one"
    if "model" in failure.message.lower() or failure.kind == "model_not_found":
        return "is the model's name right? /v1/models of the provider lists those that there are"
    return f"is {asked.base_url} the right base_url? is the model's name right?" if asked.base_url else ""
