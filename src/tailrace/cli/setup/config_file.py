"""The config file as text: a new one with its comments, written whole or not at all, and never over another one.

Secrets are never written: they stay in the environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tailrace.cli.setup.platform_questions import questions_of
from tailrace.config.env_file import FILE_NAME, with_variable
from tailrace.config.presets import PRESETS
from tailrace.errors import ConfigError
from tailrace.plugins.installed import platforms, store_examples
from tailrace.system.private_files import make_private_directory, make_private_file

TEMPLATE = Path(__file__).with_name("new_config.txt")  # braces as in `str.format`


def new_config(provider: str, model: str, *, base_url: str = "", key_env: str = "") -> str:
    """The text of a config. `base_url`: where it is not the preset's; `key_env`: the variable of the key."""
    settings = ["dialect: chat"] if base_url and provider not in PRESETS else []
    if base_url:
        settings.append(f"base_url: {json.dumps(base_url)}")
    if key_env:
        settings.append(f"key_env: {key_env}")
    providers = f"\nproviders:\n  {provider}: {{{', '.join(settings)}}}\n" if settings else ""
    return TEMPLATE.read_text(encoding="utf-8").format(
        provider=provider,
        model=json.dumps(model),
        providers=providers,
        surfaces=", ".join(["cli", *(name for name, found in platforms().items() if found.integration.streams)]),
        stores=" or ".join(store_examples()) or "another store",
        platforms=_example_platform(),
    )


def _example_platform() -> str:
    """The lines of a platform that needs nothing but one secret, as comments."""
    for name in platforms():
        try:
            questions = questions_of(name)
        except ConfigError:  # of an integration that is broken
            continue
        if questions is not None and len(questions.secrets) == 1 and not questions.keys:
            [(key, variable)] = questions.secrets.items()
            settings = f"enabled: true, {key}: {variable}, allow: [{questions.user_ids.example}]"
            return f"# platforms:{' ' * 35}# tailrace add {name}\n#   {name}: {{{settings}}}\n"
    return ""


def copied_aside(file: Path) -> Path:
    """A copy that replaces no earlier copy (M156)."""
    number = 1
    while (copy := file.with_name(f"{file.name}.bak{number}")).exists():
        number += 1
    shutil.copy2(file, copy)
    copy.chmod(0o600)
    return copy


def write_config(file: Path, text: str) -> None:
    """Atomic: a half-written config is worse than none."""
    make_private_directory(file.parent)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    make_private_file(temporary)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def keep_secret(home: Path, variable: str, value: str) -> None:
    """In the file `env`, which its owner alone may read; it says so."""
    file = home / FILE_NAME
    write_config(file, with_variable(file.read_text("utf-8") if file.exists() else "", variable, value))
    sys.stderr.write(f"kept {variable} in {file}, which you alone may read\n")


_PLATFORMS = re.compile(r"^platforms[ \t]*:(.*)$", re.MULTILINE)
_INDENTED = re.compile(r"([ \t]+)\S")


def section_lines(name: str, settings: Mapping[str, object], indent: str = "  ") -> str:
    """The section as it would be typed. Values are written as JSON, which is YAML."""
    lines = [f"{indent}{name}:", f"{indent * 2}enabled: true"]
    lines += [f"{indent * 2}{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def with_platform(text: str, name: str, settings: Mapping[str, object]) -> str:
    """Raises `ConfigError` where the lines must be added by hand, and names them."""
    if text and not text.endswith("\n"):
        text += "\n"
    if (found := _PLATFORMS.search(text)) is None:
        gap = "\n" if text.strip() else ""
        return f"{text}{gap}platforms:\n{section_lines(name, settings)}"
    if found[1].split("#")[0].strip() not in ("", "{}", "null", "~"):
        line = f"{name}: {json.dumps({'enabled': True, **settings}, ensure_ascii=False)}"
        raise ConfigError(f"stands on one line, so it is not changed; add by hand: {line}")
    end = found.end() + 1
    head = text[: found.start()] + "platforms:" + _comment(found[1]) + "\n"
    below = next((line for line in text[end:].splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    indented = _INDENTED.match(below)
    return head + section_lines(name, settings, indented[1] if indented else "  ") + text[end:]


def _comment(rest: str) -> str:
    _, hash_, comment = rest.partition("#")
    return f"  #{comment}" if hash_ else ""
