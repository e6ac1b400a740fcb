"""`tailrace init`: writes a config with streaming on, and asks as little as possible.

Works without a config and with a broken one. Secrets are never asked for and never written: they stay in the
environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from tailrace.cli.main import DONE, FAILED, USAGE, print_error
from tailrace.config.load import load
from tailrace.providers.presets import PRESETS
from tailrace.system.private_files import make_private_directory, make_private_file

LOCAL = "local"
LOCAL_MODEL = "smollm2-135m"

TEMPLATE = """\
# Tailrace. Every key is optional; what is not here has its default.
# Secrets stay in the environment: a key that ends in _env holds the name of a variable.

model:
  provider: {provider}
  name: {model}
  # Who stands in, in this order, when the model cannot be reached or breaks off:
  # fallbacks: [{{provider: openrouter, name: minimax/minimax-m2.7}}]
{providers}
streaming:
  enabled: true            # tokens appear as they are made; per surface: cli, telegram, discord, slack, matrix, …

agent:
  max_turns: 50            # model calls of one turn
  show_reasoning: false    # what the model thinks, dimmed

approvals:
  mode: ask                # ask, deny or yolo: what becomes of a dangerous command
  timeout_s: 60            # no answer means no
  # allow: ["git push *"]  # never asked about

checkpoints:
  enabled: false           # a snapshot before the first change of a turn; tailrace rollback goes back to it

# server: {{host: 127.0.0.1, port: 8642}}
# platforms:
#   telegram: {{enabled: true, token_env: TELEGRAM_BOT_TOKEN, allow: [12345]}}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--provider", help=f"who answers: {LOCAL}, {', '.join(PRESETS)}; asked for where it is not given"
    )
    parser.add_argument("--model", help="the provider's name of the model")
    parser.add_argument("--force", action="store_true", help="replace an existing file; a copy of it is kept")


def run(args: argparse.Namespace) -> int:
    """0 written, 1 it is there already, 2 a provider or model is missing."""
    file = _home() / "config.yaml"
    if file.exists() and not args.force:
        print_error(f"{file} is there already; --force replaces it and keeps a copy")
        return FAILED
    provider = args.provider or _ask("provider", _suggested(), "who answers? local, or one of " + ", ".join(PRESETS))
    if provider != LOCAL and provider not in PRESETS:
        print_error(f"no provider {provider!r}; there are {LOCAL}, {', '.join(PRESETS)}")
        return USAGE
    model = args.model or (LOCAL_MODEL if provider == LOCAL else _ask("model", "", f"which model of {provider}?"))
    if not model:
        print_error(f"which model of {provider}? name it with --model")
        return USAGE
    if file.exists():
        sys.stderr.write(f"kept the old one as {_copied_aside(file)}\n")
    _write(file, _config(provider, model))
    load(os.environ)  # the new file must load
    _tell(file, provider)
    return DONE


def _home() -> Path:
    named = os.environ.get("TAILRACE_HOME", "")
    return Path(named).expanduser() if named.strip() else Path.home() / ".tailrace"


def _is_set(variable: str) -> bool:
    """A variable of blanks counts as not set, as it does when the config is loaded."""
    return bool(os.environ.get(variable, "").strip())


def _suggested() -> str:
    """The first provider whose key is set; without any, the embedded model."""
    return next((name for name, preset in PRESETS.items() if preset.key_env and _is_set(preset.key_env)), LOCAL)


def _ask(what: str, default: str, question: str) -> str:
    """The user's answer; the default where stdin is no terminal."""
    if not sys.stdin.isatty():
        return default
    sys.stderr.write(f"{question}\n{what}{f' [{default}]' if default else ''}: ")
    sys.stderr.flush()
    try:
        return input().strip() or default
    except EOFError:
        return default


def _config(provider: str, model: str) -> str:
    preset = PRESETS.get(provider)
    providers = ""
    if preset is not None and preset.key_env:
        providers = f"\nproviders:\n  {provider}: {{key_env: {preset.key_env}}}\n"
    return TEMPLATE.format(provider=provider, model=json.dumps(model), providers=providers)


def _copied_aside(file: Path) -> Path:
    """A copy that replaces no earlier copy (M156)."""
    number = 1
    while (copy := file.with_name(f"{file.name}.bak{number}")).exists():
        number += 1
    shutil.copy2(file, copy)
    copy.chmod(0o600)
    return copy


def _write(file: Path, text: str) -> None:
    """Atomic: a half-written config is worse than none."""
    make_private_directory(file.parent)
    temporary = file.with_suffix(".tmp")
    make_private_file(temporary)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def _tell(file: Path, provider: str) -> None:
    sys.stderr.write(f"wrote {file}\n")
    preset = PRESETS.get(provider)
    if preset is not None and preset.key_env and not _is_set(preset.key_env):
        sys.stderr.write(f"next: export {preset.key_env}=…, then tailrace\n")
    else:
        sys.stderr.write("next: tailrace\n")
