"""The lines of the config file that an error is about.

Works on the YAML alone: it sees what stands in the file, also where that cannot be loaded any more.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

from tailrace.config.yaml import YamlReader, joined, line_of, translated_errors
from tailrace.errors import ConfigError

_PROVIDER_USED: Final = re.compile(r"model\.(?:fallbacks\[\d+\]\.)?provider")
_ALIASES: Final = "server.aliases."


def line_about(problem: ConfigError, text: str, file: str) -> int:
    """0 where the text has nothing to do with it. Raises `ConfigError` for a text that is no YAML."""
    with translated_errors(text, file):
        return _KeyLines(text, file).line_about(problem)


class _KeyLines(YamlReader):
    """The lines of all keys and items by their paths, and the texts of the leaves."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self._texts: dict[str, str] = {}
        if self.root is not None:
            self._note(self.root, "")

    def _note(self, node: yaml.Node, path: str) -> None:
        self.count(node, path)
        if isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self._note_at(line_of(item), item, f"{path}[{number}]")
        elif isinstance(node, yaml.MappingNode):
            for key, key_node, value_node in self.items(node, path):
                self._note_at(line_of(key_node), value_node, joined(path, key))
        else:
            self._texts[path] = str(node.value)

    def _note_at(self, line: int, node: yaml.Node, path: str) -> None:
        self.lines[path] = line
        self._note(node, path)

    def line_about(self, problem: ConfigError) -> int:
        """0 where the file has nothing to do with it."""
        key = problem.key.partition(": ")[0]
        if key == "model":
            return self._line_of_model(problem.refused)
        if line := self.lines.get(key):
            return line
        section, _, name = key.partition(".")
        if section == "providers" and (line := self._line_that_names(name)):
            return line
        parent = key.rpartition(".")[0]
        return 0 if parent == "providers" else self.lines.get(parent, 0)

    def _line_of_model(self, refused: str) -> int:
        """The embedded model has another name than the configured one. A client has named any other model
        that is refused."""
        is_embedded = self._texts.get("model.provider", "local") == "local"
        is_configured = is_embedded and refused == self._texts.get("model.name")
        return self.lines["model.name"] if refused and is_configured else 0

    def _line_that_names(self, provider: str) -> int:
        """Where a provider is used that is not there: as a model's, or by an alias."""
        for path, text in self._texts.items():
            if _PROVIDER_USED.fullmatch(path) and text == provider:
                return self.lines[path]
            if path.startswith(_ALIASES) and text.startswith(f"{provider}/"):
                return self.lines[path]
        return 0
