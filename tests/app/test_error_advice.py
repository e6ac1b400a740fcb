"""What a person reads of a failed run: what happened, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.app.error_advice import FailedProvider, error_advice, failed_provider, failure_text
from tailrace.config.load import load
from tailrace.errors import Rejected, TimedOut, Unavailable
from tailrace.events import RunFailure
from tailrace.runs.failures import failure_of

OPENAI = FailedProvider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
OLLAMA = FailedProvider("ollama", "http://127.0.0.1:11434/v1")
MINE = FailedProvider("mine", "http://127.0.0.1:9/v1")
REFUSED = "cannot connect to 127.0.0.1: Connect call failed"


@pytest.mark.parametrize(
    ("failure", "provider", "advice"),
    [
        (RunFailure("cannot_connect", REFUSED), OLLAMA, "is ollama running? start it: `ollama serve`"),
        (RunFailure("cannot_connect", REFUSED), MINE, "is the server at http://127.0.0.1:9/v1 running?"),
        (
            RunFailure("cannot_connect", "cannot connect to api.openai.com: Name or service not known"),
            OPENAI,
            "is there a network? the name of the host cannot be resolved",
        ),
        (
            RunFailure("invalid_api_key", "no", status=401),
            OPENAI,
            "the key in OPENAI_API_KEY was refused: set a valid one, or choose another model",
        ),
        (
            RunFailure("permanent", "no", status=401),
            MINE,
            "mine wants a key: name its variable in providers.mine.key_env",
        ),
        (
            RunFailure("x", "no", status=403),
            OPENAI,
            "the key in OPENAI_API_KEY may not use this model, or not from here",
        ),
        (
            RunFailure("not_found", "model 'x' not found", status=404),
            OLLAMA,
            "is the model there? `ollama list` names those that are, `ollama pull NAME` fetches one",
        ),
        (
            RunFailure("rate_limit", "slow down", status=429, retry_after_s=7.0),
            OPENAI,
            "too many requests: ask again in 7 s, or choose another model",
        ),
        (
            RunFailure("insufficient_quota", "You exceeded your quota", status=429),
            OPENAI,
            "the account has no quota left: add credit, or choose another model",
        ),
        (
            RunFailure("x", "maximum context length is 8192 tokens", status=400),
            OPENAI,
            "too long for this model: send less, begin a new conversation, or choose another model",
        ),
        (
            RunFailure("x", "No endpoints found that support image input", status=404),
            OPENAI,
            "this model does not take the image or file: ask without it, or choose another model",
        ),
        (
            RunFailure("retryable", "boom", status=500),
            OPENAI,
            "the fault is at openai: ask again later, or choose another model",
        ),
        (RunFailure("stopped", "interrupted"), OPENAI, ""),
    ],
)
def test_each_failure_has_its_next_step(failure: RunFailure, provider: FailedProvider, advice: str) -> None:
    assert error_advice(failure, provider) == advice


def test_an_unknown_provider_is_no_reason_to_say_nothing() -> None:
    assert "wants a key" in error_advice(RunFailure("x", "no", status=401))


def test_the_text_says_who_failed_how_and_how_often() -> None:
    boom = failure_of(Unavailable("boom", status=500, provider="fake"))
    assert (
        failure_text(boom, model="fake/small", tries=3, took_s=2.14) == "fake/small: HTTP 500 “boom”, 3 tries in 2.1 s"
    )
    assert failure_text(boom, model="fake/small", tries=1) == "fake/small: HTTP 500 “boom”"
    bare = failure_of(Unavailable("HTTP 502: <html>", status=502, provider="fake"))
    assert failure_text(bare, model="fake/small") == "fake/small: HTTP 502 “<html>”"
    refused = failure_of(Unavailable(REFUSED, code="cannot_connect", provider="ollama"))
    assert failure_text(refused, model="ollama/qwen3", tries=3, took_s=1.0) == (
        f"ollama/qwen3: {REFUSED}, 3 tries in 1.0 s"
    )
    assert failure_text(failure_of(Rejected("no", provider="fake"))) == "fake: no"


def test_a_deadline_of_ours_is_no_status_of_the_providers() -> None:
    late = failure_of(TimedOut("no first token within 120 s", deadline="first_token", provider="openai"))
    assert failure_text(late, model="openai/gpt-5") == "openai/gpt-5: no first token within 120 s"
    assert "slow or overloaded" in error_advice(late, OPENAI)


def test_what_is_known_of_a_provider_comes_from_the_config_and_its_preset(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("providers: {openai: {base_url: 'http://10.0.0.5/v1', key_env: MINE}}")
    config = load({}, tmp_path)
    assert failed_provider(config, "openai") == FailedProvider("openai", "http://10.0.0.5/v1", "MINE")
    assert failed_provider(config, "anthropic").key_env == "ANTHROPIC_API_KEY"
    assert failed_provider(config, "elsewhere") == FailedProvider("elsewhere")
