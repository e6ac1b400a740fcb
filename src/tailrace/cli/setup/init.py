"""`tailrace init`: finds who could answer, asks one question, tries the answer, and writes a config with streaming on.

Works without a config and with a broken one. Secrets are never asked for and never written: they stay in the
environment. Without a terminal it asks nothing and calls no model.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from tailrace.cli.main import DONE, FAILED, USAGE, print_error
from tailrace.cli.setup.candidates import (
    LOCAL,
    SUGGESTED_MODELS,
    TRIAL_TIMEOUT_S,
    Candidate,
    found_candidates,
    is_set,
    try_model,
)
from tailrace.cli.setup.config_file import copied_aside, new_config, write_config
from tailrace.config.load import home_directory, load
from tailrace.config.presets import PRESETS
from tailrace.errors import TailraceError
from tailrace.system.own_program import typed


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
    if (asking or args.yes) and not args.no_test and not _answers(choice, text):
        return FAILED
    if file.exists():
        sys.stderr.write(f"kept the old one as {copied_aside(file)}\n")
    write_config(file, text)
    load(os.environ)  # the new file must load
    _tell(file, choice)
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


def _answers(choice: Candidate, text: str) -> bool:
    """Tries the model with one small call. A key that is not set, and the embedded model, are not tried."""
    preset = PRESETS.get(choice.provider)
    if preset is None or (preset.key_env and not is_set(os.environ, preset.key_env)):
        return True
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


def _tell(file: Path, choice: Candidate) -> None:
    sys.stderr.write(f"wrote {file}: {choice.provider}/{choice.model} answers\n")
    preset = PRESETS.get(choice.provider)
    if preset is not None and preset.key_env and not is_set(os.environ, preset.key_env):
        sys.stderr.write(f"next: export {preset.key_env}=…, then {typed()}\n")
    else:
        sys.stderr.write(f"next: {typed()}\n")
