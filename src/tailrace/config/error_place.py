"""Where in the config file the key of an error stands, for errors that are found after the file was loaded.

For people who can open the file: a command's output, a log, an editor. What clients of the server are told names no
path of this machine. The file is read once more, and only when there is something to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.config.load import CONFIG_FILE, Config
from tailrace.errors import ConfigError


def with_place(problem: ConfigError, config: Config) -> ConfigError:
    """The same error with the file and the line; as it is where it names a file already, or where neither its key nor
    the section of that key is in the config file."""
    file = config.home / CONFIG_FILE
    if problem.file or not problem.key:
        return problem
    try:
        if not file.is_file():  # a pipe has been read, and may have no writer any more
            return problem
        text = file.read_text(encoding="utf-8-sig")

        from tailrace.config.yaml import read_yaml  # a start without a file needs no YAML parser

        _, lines = read_yaml(text, str(file))
    except (OSError, UnicodeDecodeError, ConfigError):  # the file was changed since
        return problem
    lines.pop("", None)  # of the whole file
    line = _line_about(problem, config, lines)
    return ConfigError(problem.message, file=str(file), line=line, key=problem.key) if line else problem


def _line_about(problem: ConfigError, config: Config, lines: Mapping[str, int]) -> int:
    """0 where the file has nothing to do with it."""
    key = problem.key.partition(": ")[0]
    if key == "model":  # a client has named any other model that is refused
        is_configured = config.model.provider == "local" and problem.refused == config.model.name
        return lines.get("model.name", 0) if problem.refused and is_configured else 0
    section, _, name = key.partition(".")
    parent = key.rpartition(".")[0]
    if line := lines.get(key) or (lines.get(_use_of(name, config)) if section == "providers" else None):
        return line
    return 0 if parent == "providers" else lines.get(parent, 0)


def _use_of(provider: str, config: Config) -> str:
    """The key that names a provider which is not there: a model's, or an alias."""
    refs = {"model": config.model.provider}
    refs |= {f"model.fallbacks[{number}]": ref.provider for number, ref in enumerate(config.model.fallbacks)}
    aliases = {f"server.aliases.{name}": target for name, target in config.server.aliases.items()}
    used = [f"{place}.provider" for place, name in refs.items() if name == provider]
    used += [place for place, target in aliases.items() if target.startswith(f"{provider}/")]
    return used[0] if used else ""
