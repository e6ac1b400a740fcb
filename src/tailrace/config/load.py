"""What the user has set: the config file and the environment, read once into one frozen value.

Owns precedence, aliases and the location of files. The environment is a parameter and is kept here; no other module
reads it. Knows no adapter: `app` knows which providers and platforms exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tailrace.config.env_file import FILE_NAME as ENV_FILE
from tailrace.config.env_file import read_env_file
from tailrace.config.sections import CallPolicy, Sections
from tailrace.errors import ConfigError
from tailrace.plugins.installed import store_for

CONFIG_FILE: Final = "config.yaml"  # below the home directory
MAX_FILE_BYTES: Final = 1 << 20
# First match wins; the second of each is an alias.
STREAMING_VARIABLES: Final = ("TAILRACE_STREAMING_ENABLED", "HERMES_STREAMING_ENABLED")
YOLO_VARIABLES: Final = ("TAILRACE_YOLO_MODE", "HERMES_YOLO_MODE")
SWITCH_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class Environment:
    """The environment as it was when the config was loaded, and beneath it the variables of the file `env`, which no
    child process is given. Its repr shows no variable."""

    __slots__ = ("_kept", "_variables")

    def __init__(self, variables: Mapping[str, str], kept: Mapping[str, str] | None = None) -> None:
        self._variables = dict(variables)
        self._kept = dict(kept or {})

    def __repr__(self) -> str:
        return "Environment(…)"

    def get(self, name: str) -> str | None:
        """A variable that is set to nothing, or to blanks alone, counts as not set (M151)."""
        for variables in (self._variables, self._kept):
            if (value := variables.get(name, "")).strip():
                return value
        return None

    def with_kept(self, variables: Mapping[str, str]) -> Environment:
        """With these variables too, which no child process is given."""
        return Environment(self._variables, {**self._kept, **variables})

    def without(self, names: Collection[str]) -> dict[str, str]:
        """All variables but these, for a child process."""
        return {name: value for name, value in self._variables.items() if name not in names}

    def switch(self, names: tuple[str, ...]) -> bool | None:
        """The first of these variables that is set, as a bool. Raises `ConfigError` for any other word."""
        for name in names:
            if word := self.get(name):
                if (value := SWITCH_WORDS.get(word.strip().lower())) is None:
                    raise ConfigError(f"expected true or false; found {word[:40]!r}", key=name)
                return value
        return None


class Config(Sections, kw_only=True):
    """The whole configuration. The entry point loads it and passes it down."""

    home: Path  # $TAILRACE_HOME: the base of relative paths in the file
    environment: Environment
    streaming_default: bool | None = None  # what the environment sets
    yolo: bool = False  # the environment or `approvals.mode` approves without asking; the hard list stays blocked

    def streams(self, surface: str, asked: bool | None = None) -> bool:
        """Whether this surface shows tokens as they come: what the client asked for → `streaming.<surface>`, where
        there is such a key → the environment → `streaming.enabled` → on in the terminal, off in chats."""
        said = (asked, self.streaming.switch(surface), self.streaming_default, self.streaming.enabled, surface == "cli")
        return next(choice for choice in said if choice is not None)

    def call_for(self, provider: str) -> CallPolicy:
        """The deadlines and retries of calls to this provider."""
        settings = self.providers.get(provider)
        return settings.over(self.call) if settings else self.call

    def secret(self, variable: str | None) -> str | None:
        """The value of the variable that a `…_env` key names, or None where it is not set. Blanks around it are
        dropped: a secret that was read from a file often ends in a newline."""
        value = self.environment.get(variable) if variable else None
        return value.strip() if value is not None else None

    @property
    def store_password(self) -> str | None:
        """Of an integration's store, where `store.url` has none. Passed on rather than left to the driver, which would
        look for it in the process's environment: secrets are taken out of there."""
        return self.environment.get(self.store_password_env)

    @property
    def store_password_env(self) -> str:
        """The variable that holds it; empty for a store that has none."""
        found = store_for(self.store.url)
        return found[1].password_env if found is not None else ""

    def require_secret(self, variable: str | None, key: str) -> str:
        """The same for a required secret. `key` is the config key that names it. Raises `ConfigError`, also for one
        that goes over several lines: no header and no address can hold it."""
        if value := self.secret(variable):
            if any(character < " " for character in value):
                raise ConfigError(f"{variable} holds a line break or another control character", key=key)
            return value
        raise ConfigError(f"{variable} is not set in the environment" if variable else "is missing", key=key)

    def path(self, text: str) -> Path:
        """A path from the file: `~` is the user's home, a relative one starts at `home`."""
        return self.home / _expanded(text, self.environment)

    @property
    def database(self) -> Path | None:
        """The file behind a `sqlite:///` store (four slashes: an absolute path), None for any other store."""
        parts = urlsplit(self.store.url)
        return self.path(unquote(parts.path[1:])) if parts.scheme == "sqlite" else None

    @property
    def store_is_kept(self) -> bool:
        """Whether what is stored outlives the process, and other processes see it."""
        return not self.store.url.startswith("memory:")

    @property
    def runs_are_kept(self) -> bool:
        """Whether another process can go on with the runs of this one."""
        return self.store_is_kept and self.store.durability != "memory"


def load(env: Mapping[str, str], home: Path | None = None) -> Config:
    """`config.yaml` in `home`, else in `$TAILRACE_HOME`, else in `~/.tailrace`. No file: the defaults. Variables that
    are not set come from the file `env` beside it. Raises `ConfigError` with the file, the line and the key of the
    mistake."""
    environment = Environment(env)
    if home is None:
        home = home_directory(env)
    if kept := read_env_file(home / ENV_FILE):
        environment = Environment(env, kept)
    sections = _load_file(home / CONFIG_FILE)
    return Config(
        **{name: getattr(sections, name) for name in Sections.__struct_fields__},
        home=home.absolute(),
        environment=environment,
        streaming_default=environment.switch(STREAMING_VARIABLES),
        yolo=environment.switch(YOLO_VARIABLES) or sections.approvals.mode == "yolo",
    )


def _load_file(file: Path) -> Sections:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return Sections()
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", file=str(file)) from exc
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"larger than {MAX_FILE_BYTES} bytes", file=str(file))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError("not UTF-8 text", file=str(file), line=line) from exc

    from tailrace.config.section_parser import parse_section  # most start-ups have no file and need no YAML parser

    return parse_section(text, Sections, str(file))


def _expanded(text: str, environment: Environment) -> Path:
    """Expands `~` by the given environment, not by that of the process."""
    if text == "~" or text.startswith("~/"):
        user = environment.get("HOME")
        return (Path(user) if user else _own_home()) / text[2:]
    return Path(text)


def home_directory(env: Mapping[str, str]) -> Path:
    """`$TAILRACE_HOME`, else `~/.tailrace`. Raises `ConfigError` where neither is known."""
    named = env.get("TAILRACE_HOME", "")
    return _expanded(named if named.strip() else "~/.tailrace", Environment(env))


def _own_home() -> Path:
    """The home directory of this process's user."""
    try:
        return Path.home()
    except RuntimeError as exc:  # neither HOME nor an entry in the list of users, as in a container with a bare number
        raise ConfigError("HOME is not set and this user has no home directory; set TAILRACE_HOME to one") from exc
