"""`tailrace init`: finds who could answer, asks one question, tries the answer, and writes a config with streaming on.

Works without a config and with a broken one. A key that is pasted goes into `$TAILRACE_HOME/env`, which its owner alone
may read; the config has its variable's name. Without a terminal it asks nothing and calls no model.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import NamedTuple
from urllib.parse import urlsplit

from tailrace.cli.main import DONE, FAILED, USAGE, print_error
from tailrace.cli.own_journal import ask_line, is_agreed
from tailrace.cli.setup.config_file import copied_aside, keep_secret, new_config, write_config
from tailrace.config.load import home_directory, load
from tailrace.config.presets import PRESETS
from tailrace.errors import TailraceError
from tailrace.system.own_program import typed

LOCAL, LOCAL_MODEL = "local", "smollm2-135m"
OLLAMA = "ollama"
OLLAMA_PORT = 11434
OWN, OWN_KEY = "own", "OWN_API_KEY"  # the provider that is given by its address, and the variable of its key
LISTED_MODELS = 10
# How the keys of a provider begin.
KEY_FORMS = {"sk-ant-": "anthropic", "sk-or-": "openrouter", "gsk_": "groq", "AIza": "gemini", "xai-": "xai"}
KEY_FORMS["sk-proj-"] = "openai"
LOOK_TIMEOUT_S = 1.0
TRIAL_TIMEOUT_S = 60.0
ADDRESS_TIMEOUT_S = 10.0
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
    """A model that could answer. `reason` says how it was found; `base_url` where it is not the preset's; `key` is one
    that was pasted."""

    provider: str
    model: str
    reason: str
    base_url: str = ""
    key: str = ""

    @property
    def key_env(self) -> str:
        """The variable of its key; empty where it wants none."""
        if self.provider == OWN:
            return OWN_KEY if self.key else ""
        preset = PRESETS.get(self.provider)
        return (preset.key_env or "") if preset is not None else ""


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


async def models_at(url: str, *, name: str, key: str = "", timeout_s: float = LOOK_TIMEOUT_S) -> tuple[str, ...]:
    """What the server lists. Raises `TailraceError`, `TimeoutError`, `OSError`."""
    from tailrace.providers.http.endpoint import Endpoint
    from tailrace.providers.http.provider import HttpProvider
    from tailrace.providers.transport.http1_transport import open_transport

    endpoint = Endpoint(name=name, dialect="chat", base_url=url, key=key, connect_timeout_s=timeout_s)
    async with asyncio.timeout(timeout_s), open_transport() as transport:
        return await HttpProvider(endpoint, transport).list_models()


async def _ollama(environ: Mapping[str, str]) -> Candidate | None:
    """A running Ollama that has a model."""
    url = ollama_url(environ)
    try:
        models = await models_at(url, name=OLLAMA)
    except (TailraceError, TimeoutError, OSError):
        return None
    own_url = "" if url == PRESETS[OLLAMA].base_url else url
    return Candidate(OLLAMA, models[0], "runs here", own_url) if models else None


async def try_model(environ: Mapping[str, str], text: str) -> None:
    """One small call to the model of a config that is not written yet. Raises `TailraceError` with the reason."""
    import tempfile

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
        "--provider", help=f"the model's provider: {LOCAL}, {', '.join(PRESETS)}; without it, init asks"
    )
    parser.add_argument("--model", help="the provider's name of the model")
    parser.add_argument("--yes", action="store_true", help="take the best model that is found, without asking")
    parser.add_argument("--no-test", action="store_true", help="write the config without trying the model")
    parser.add_argument("--force", action="store_true", help="replace an existing config; a copy is kept")


def run(args: argparse.Namespace) -> int:
    """0 written, 1 it is there already or the model does not answer, 2 a provider or model is missing."""
    file = home_directory(os.environ) / "config.yaml"
    asking = sys.stdin.isatty() and not args.yes
    there = f"{file} is there already"
    if file.exists() and not args.force and not (asking and is_agreed(f"{there}. Replace it? A copy is kept")):
        print_error(f"{there}; --force replaces it and keeps a copy")
        return FAILED
    try:
        choice = _choice(args, asking=asking)
    except ValueError as mistake:
        print_error(str(mistake))
        return USAGE
    text = new_config(choice.provider, choice.model, base_url=choice.base_url, key_env=choice.key_env)
    tested = (asking or args.yes) and not args.no_test
    answered = _answers(choice, text) if tested else None
    if answered is False:
        return FAILED
    if file.exists():
        sys.stderr.write(f"kept the old one as {copied_aside(file)}\n")
    if choice.key:
        keep_secret(file.parent, choice.key_env, choice.key)
    write_config(file, text)
    load(os.environ)  # the new file must load
    _tell(file, choice, answers=bool(answered))
    return DONE


def _choice(args: argparse.Namespace, *, asking: bool) -> Candidate:
    """Raises `ValueError` in words for a provider or model that is missing."""
    model: str = args.model or ""
    if args.provider:
        return _named(args.provider, model)
    candidates = asyncio.run(found_candidates(os.environ))
    if not asking:
        best = candidates[0]
        return best._replace(model=model or best.model)
    if candidates[0].provider == LOCAL:
        variables = ", ".join(preset.key_env for preset in PRESETS.values() if preset.key_env)
        looked = f"No key is set in {variables}, and no Ollama runs at {ollama_url(os.environ)}."
        sys.stderr.write(f"{fill(looked, get_terminal_size().columns)}\n\n")
    sys.stderr.write("Which model should answer?\n")
    width = max(len("paste a key"), *(len(f"{found.provider}/{found.model}") for found in candidates))
    for number, found in enumerate(candidates, 1):
        sys.stderr.write(f"  {number}  {f'{found.provider}/{found.model}':<{width}}   {found.reason}\n")
    sys.stderr.write(f"  k  {'paste a key':<{width}}   of {', '.join(KEY_FORMS.values())} …\n")
    sys.stderr.write(f"  a  {'an address':<{width}}   of a server that speaks OpenAI's API\n")
    while True:
        answer = ask_line("A number, k, a, or provider/model [1]: ") or "1"
        try:
            if answer.lower() == "k" or provider_of_key(answer):
                return _with_pasted_key(model, answer if len(answer) > 1 else "")
            if answer.lower() == "a" or answer.startswith(("http://", "https://")):
                return _at_address(answer if len(answer) > 1 else ask_line("The address, as http://…/v1: "), model)
            return _answered(answer, candidates, model)
        except ValueError as mistake:
            print_error(str(mistake))


def _pasted(question: str, key: str = "") -> str:
    """`key`, where it was pasted already; what is pasted here is not shown. Raises `ValueError` for what is no key."""
    try:
        key = key or getpass.getpass(question, stream=sys.stderr).strip()
    except EOFError:
        return ""
    if not key.isprintable() or " " in key:
        raise ValueError("a key is one word")
    return key


def provider_of_key(key: str) -> str:
    """Empty where the key does not tell."""
    return next((name for start, name in KEY_FORMS.items() if key.startswith(start)), "")


def _with_pasted_key(model: str, key: str) -> Candidate:
    """Raises `ValueError` in words for what is no key, and for a provider that is not known."""
    if not (key := _pasted("The key (it is not shown): ", key)):
        raise ValueError("no key was pasted")
    provider = provider_of_key(key) or ask_line(f"Whose key is it? {', '.join(SUGGESTED_MODELS)[: -len(LOCAL) - 2]}: ")
    found = _named(provider, model)
    if not found.key_env:
        raise ValueError(f"{provider} takes no key")
    return found._replace(key=key)


def _at_address(url: str, model: str) -> Candidate:
    """Raises `ValueError` in words where no server with a model answers there."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("that is no http:// or https:// address")
    key = _pasted("Its key, if it wants one (it is not shown): ")
    try:
        models = asyncio.run(models_at(url, name=OWN, key=key, timeout_s=ADDRESS_TIMEOUT_S))
    except (TailraceError, TimeoutError, OSError) as exc:
        raise ValueError(f"no list of models there: {str(exc) or 'no answer'}") from exc
    if not model:
        if not models:
            raise ValueError("the server lists no model: name one with --model")
        more = f" and {len(models) - LISTED_MODELS} more" if len(models) > LISTED_MODELS else ""
        sys.stderr.write(f"It has {', '.join(models[:LISTED_MODELS])}{more}.\n")
        model = ask_line(f"Which model [{models[0]}]: ") or models[0]
    return Candidate(OWN, model, "", url, key)


def _answered(answer: str, candidates: list[Candidate], model: str) -> Candidate:
    """Raises `ValueError` in words for what is no answer."""
    if answer.isdecimal():
        if not 1 <= int(answer) <= len(candidates):
            raise ValueError(f"that number is not in the list: from 1 to {len(candidates)}")
        found = candidates[int(answer) - 1]
        return found._replace(model=model or found.model)
    provider, _, named = answer.partition("/")
    return _named(provider, model or named)


def _named(provider: str, model: str) -> Candidate:
    if provider != LOCAL and provider not in PRESETS:
        is_word = len(provider) < 16 and provider.isascii() and provider.isalpha() and provider.islower()  # else a key?
        shown = repr(provider) if is_word else "of that name"
        raise ValueError(f"no provider {shown}; there are {LOCAL}, {', '.join(PRESETS)}")
    if not (model := model or SUGGESTED_MODELS.get(provider, "")):
        raise ValueError(f"which model of {provider}? name it as {provider}/MODEL, or with --model")
    return Candidate(provider, model, "")


def _answers(choice: Candidate, text: str) -> bool | None:
    """Tries the model with one small call. None: a key that is not set, and the embedded model, are not tried."""
    environ = {**os.environ, choice.key_env: choice.key} if choice.key else dict(os.environ)
    if choice.provider == LOCAL or (choice.key_env and not is_set(environ, choice.key_env)):
        return None
    try:
        sys.stderr.write(f"asking {choice.provider}/{choice.model} for one word, {TRIAL_TIMEOUT_S:g} s at most … ")
        sys.stderr.flush()
        asyncio.run(try_model(environ, text))
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
    is_missing = choice.key_env and not choice.key and not is_set(os.environ, choice.key_env)
    sys.stderr.write(f"next: {f'export {choice.key_env}=…, then ' if is_missing else ''}{typed()}\n")
