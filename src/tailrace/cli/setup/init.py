"""`tailrace init`: finds who could answer, asks one question, tries the answer, and writes a config with streaming on.

Works without a config and with a broken one. Secrets are never asked for and never written: they stay in the
environment. Without a terminal it asks nothing and calls no model.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tailrace.cli.main import DONE, FAILED, USAGE, print_error
from tailrace.cli.setup.config_file import copied_aside, new_config, write_config
from tailrace.config.load import home_directory, load
from tailrace.config.presets import PRESETS
from tailrace.errors import TailraceError
from tailrace.system.own_program import typed

LOCAL, LOCAL_MODEL = "local", "smollm2-135m"
OLLAMA = "ollama"
OLLAMA_PORT = 11434
LOOK_TIMEOUT_S = 1.0
TRIAL_TIMEOUT_S = 60.0
# The model of each provider that a new config names: a good one of its kind, for an agent with tools.
SUGGESTED_MODELS: Mapping[str, str] = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5-mini",
    "openrouter": "minimax/minimax-m2.7",
    "deepseek": "deepseek-chat",
    "mistral": "mistral-large-latest",
    "groq": "llama-3.3-70b-versatile",
    "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "gemini": "gemini-2.5-flash",
    "xai": "grok-4",
    LOCAL: LOCAL_MODEL,
}


class Candidate(NamedTuple):
    """A model that could answer. `reason` says how it was found; `base_url` where it is not the preset's."""

    provider: str
    model: str
    reason: str
    base_url: str = ""


def is_set(environ: Mapping[str, str], variable: str) -> bool:
    """A variable of blanks counts as not set, as it does when the config is loaded."""
    return bool(environ.get(variable, "").strip())


async def found_candidates(environ: Mapping[str, str]) -> list[Candidate]:
    """The embedded model is always among them, last."""
    found = [
        Candidate(name, SUGGESTED_MODELS[name], f"{preset.key_env} is set")
        for name, preset in PRESETS.items()
        if preset.key_env and is_set(environ, preset.key_env) and name in SUGGESTED_MODELS
    ]
    ollama = await _ollama(environ)
    embedded = Candidate(LOCAL, LOCAL_MODEL, "the embedded model: small, no key, nothing leaves this machine")
    return [*found, *([ollama] if ollama else []), embedded]


def ollama_url(environ: Mapping[str, str]) -> str:
    """Where Ollama's own clients look for it: OLLAMA_HOST is a host, a port, or both."""
    named = environ.get("OLLAMA_HOST", "").strip()
    parts = urlsplit(named if "://" in named else f"//{named}")
    try:
        port = parts.port or OLLAMA_PORT
    except ValueError:
        port = OLLAMA_PORT
    host = parts.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what its server listens on, not where it is reached
        host = "127.0.0.1"
    return f"{parts.scheme or 'http'}://{f'[{host}]' if ':' in host else host}:{port}/v1"


async def _ollama(environ: Mapping[str, str]) -> Candidate | None:
    """A running Ollama that has a model."""
    from tailrace.providers.http.endpoint import Endpoint
    from tailrace.providers.http.provider import HttpProvider
    from tailrace.providers.transport.http1_transport import open_transport

    url = ollama_url(environ)
    endpoint = Endpoint(name=OLLAMA, dialect="chat", base_url=url, connect_timeout_s=LOOK_TIMEOUT_S)
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S), open_transport() as transport:
            models = await HttpProvider(endpoint, transport).list_models()
    except (TailraceError, TimeoutError, OSError):
        return None
    if not models:
        return None
    return Candidate(OLLAMA, models[0], "runs here", "" if url == PRESETS[OLLAMA].base_url else url)


async def try_model(environ: Mapping[str, str], text: str) -> None:
    """One small call to the model of a config that is not written yet. Raises `TailraceError` with the reason."""
    import tempfile
    from pathlib import Path

    from tailrace.app.models import Models
    from tailrace.messages import ModelRequest, user
    from tailrace.providers.transport.http1_transport import open_transport

    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "config.yaml").write_text(text, encoding="utf-8")
        config = load(environ, home)
        async with open_transport(config.transport) as transport:
            [route, *_] = Models(config, transport).routes(config.model)
            request = ModelRequest(route.model, (user("Say hello in one word."),))
            try:
                async with asyncio.timeout(TRIAL_TIMEOUT_S):
                    await route.provider.complete(request)
            except TimeoutError:
                raise TailraceError(f"no answer within {TRIAL_TIMEOUT_S:g} s") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--provider", help=f"who answers: {LOCAL}, {', '.join(PRESETS)}; asked for where it is not given"
    )
    parser.add_argument("--model", help="the provider's name of the model")
    parser.add_argument("--yes", action="store_true", help="take the best that is found, without a question")
    parser.add_argument("--no-test", action="store_true", help="write the config without trying the model first")
    parser.add_argument("--force", action="store_true", help="replace an existing file; a copy of it is kept")


def run(args: argparse.Namespace) -> int:
    """0 written, 1 it is there already or the model does not answer, 2 a provider or model is missing."""
    file = home_directory(os.environ) / "config.yaml"
    asking = sys.stdin.isatty() and not args.yes
    if file.exists() and not args.force and not (asking and _may_replace(file)):
        print_error(f"{file} is there already; --force replaces it and keeps a copy")
        return FAILED
    try:
        choice = _choice(args, asking=asking)
    except ValueError as mistake:
        print_error(str(mistake))
        return USAGE
    text = new_config(choice.provider, choice.model, base_url=choice.base_url)
    tested = (asking or args.yes) and not args.no_test
    answered = _answers(choice, text) if tested else None
    if answered is False:
        return FAILED
    if file.exists():
        sys.stderr.write(f"kept the old one as {copied_aside(file)}\n")
    write_config(file, text)
    load(os.environ)  # the new file must load
    _tell(file, choice, answers=bool(answered))
    return DONE


def _may_replace(file: Path) -> bool:
    return _asked(f"{file} is there already. Replace it? A copy is kept [y/N]: ").lower() in ("y", "yes")


def _asked(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        return input().strip()
    except EOFError:
        return ""
    except KeyboardInterrupt:
        sys.stderr.write("\n")  # the shell's prompt stands on a line of its own
        raise


def _choice(args: argparse.Namespace, *, asking: bool) -> Candidate:
    """Raises `ValueError` in words for a provider or model that is missing."""
    if args.provider:
        return _named(args.provider, args.model or "")
    candidates = asyncio.run(found_candidates(os.environ))
    if not asking:
        best = candidates[0]
        return best._replace(model=args.model) if args.model else best
    sys.stderr.write("Who answers?\n")
    width = max(len(f"{found.provider}/{found.model}") for found in candidates)
    for number, found in enumerate(candidates, 1):
        sys.stderr.write(f"  {number}  {f'{found.provider}/{found.model}':<{width}}   {found.reason}\n")
    while True:
        answer = _asked("A number, or provider/model [1]: ") or "1"
        try:
            return _answered(answer, candidates, args.model or "")
        except ValueError as mistake:
            print_error(str(mistake))


def _answered(answer: str, candidates: list[Candidate], model: str) -> Candidate:
    """Raises `ValueError` in words for what is no answer."""
    if answer.isdecimal():
        if not 1 <= int(answer) <= len(candidates):
            raise ValueError(f"there is no {answer} in the list: a number from 1 to {len(candidates)}")
        found = candidates[int(answer) - 1]
        return found._replace(model=model) if model else found
    provider, _, named = answer.partition("/")
    return _named(provider, model or named)


def _named(provider: str, model: str) -> Candidate:
    if provider != LOCAL and provider not in PRESETS:
        raise ValueError(f"no provider {provider!r}; there are {LOCAL}, {', '.join(PRESETS)}")
    if not (model := model or SUGGESTED_MODELS.get(provider, "")):
        raise ValueError(f"which model of {provider}? name it as {provider}/MODEL, or with --model")
    return Candidate(provider, model, "")


def _answers(choice: Candidate, text: str) -> bool | None:
    """Tries the model with one small call. None: a key that is not set, and the embedded model, are not tried."""
    preset = PRESETS.get(choice.provider)
    if preset is None or (preset.key_env and not is_set(os.environ, preset.key_env)):
        return None
    try:
        sys.stderr.write(f"asking {choice.provider}/{choice.model} for one word, {TRIAL_TIMEOUT_S:g} s at most … ")
        sys.stderr.flush()
        asyncio.run(try_model(os.environ, text))
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; nothing was written\n")
        raise
    except TailraceError as exc:
        sys.stderr.write("no answer\n")
        print_error(f"{exc}; nothing was written. --model names another one, --no-test writes it all the same")
        return False
    sys.stderr.write("it answers\n")
    return True


def _tell(file: Path, choice: Candidate, *, answers: bool) -> None:
    said = (
        "answers" if answers else "is fetched with the first question" if choice.provider == LOCAL else "was not tried"
    )
    sys.stderr.write(f"wrote {file}: {choice.provider}/{choice.model} {said}\n")
    preset = PRESETS.get(choice.provider)
    if preset is not None and preset.key_env and not is_set(os.environ, preset.key_env):
        sys.stderr.write(f"next: export {preset.key_env}=…, then {typed()}\n")
    else:
        sys.stderr.write(f"next: {typed()}\n")
