"""The sections of the config file as frozen values, each key with its default.

Owns names, types, ranges and defaults. Knows neither YAML nor the environment: `section_parser` fills these in,
`load` loads them. A key's `description` is what an error message says was expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, dataclass_transform
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tailrace.config.quirks import Quirk
from tailrace.messages import Dialect
from tailrace.plugins.installed import bus_examples, bus_for, platforms, problems, reject, store_examples, store_for
from tailrace.values.urls import without_credentials

Seconds = Annotated[float, Meta(gt=0, description="a number of seconds above 0")]
Days = Annotated[float, Meta(gt=0, description="a number of days above 0")]
Workers = Annotated[int, Meta(ge=0, le=512, description="a whole number from 0 (one per core) to 512")]
Dollars = Annotated[float, Meta(gt=0, description="an amount in dollars above 0")]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
HttpUrl = Annotated[str, Meta(pattern=r"^https?://[^/\s]", description="an http:// or https:// address")]
SocketUrl = Annotated[str, Meta(pattern=r"^wss?://[^/\s]", description="a ws:// or wss:// address")]
# Such a value is never quoted in a message: a wrong one is most likely the pasted secret itself.
EnvName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="the name of an environment variable, not the secret itself",
        extra={"quote": False},
    ),
]
# Ids are compared as text. They are read as written, so that 0042 and a number past 2**64 stay unchanged.
Identifier = Annotated[str, Meta(min_length=1, description="an id", extra={"verbatim": True})]


def _other_store(url: str) -> str:
    """What is expected instead of this address; empty for one of a store that there is."""
    if url.startswith(("sqlite:///", "memory://")) or ("://" in url and store_for(url) is not None):
        return ""
    return ", ".join(["sqlite:///PATH", *store_examples()]) + " or memory://"


def _other_bus(url: str) -> str:
    """What is expected instead of this address; empty for one of a bus that there is."""
    if url == "auto" or url.startswith("memory://") or ("://" in url and bus_for(url) is not None):
        return ""
    return " or ".join(["auto, memory://", *bus_examples()])


StoreUrl = Annotated[
    str,
    Meta(
        description="sqlite:///PATH, memory:// or the address of an integration's store",
        extra={"quote": False, "expected": _other_store},
    ),
]
BusUrl = Annotated[
    str,
    Meta(
        description="auto, memory:// or the address of an integration's bus",
        extra={"quote": False, "expected": _other_bus},
    ),
]

ProxyAddress = Annotated[
    str,
    Meta(
        pattern=r"^(environment$|none$|https?://[^/\s])",
        description="environment, none, or the http:// or https:// address of a proxy",
        extra={"quote": False},
    ),
]

# `auto`: streamed wherever that works.
StreamMode: TypeAlias = Annotated[
    Literal["auto"] | bool, Meta(description="auto, or false to ask for whole answers", extra={"only": ("auto", False)})
]

NOTHING: Mapping[str, Any] = MappingProxyType({})


# For the type checker: subclasses are frozen like this one, as they are at run time.
@dataclass_transform(frozen_default=True)
class Section(msgspec.Struct, frozen=True):
    """Base of every section. Its repr shows no secret: neither a password in an address nor a header's value."""

    further_field: ClassVar[str] = ""  # holds `further_keys` by name; it is no key itself

    @classmethod
    def further_keys(cls) -> Mapping[str, Any]:
        """Keys beside the fields, by what is installed: name and type."""
        return NOTHING

    @classmethod
    def missing_key(cls, _given: Mapping[str, Any]) -> tuple[str, str] | None:
        """A key that the given keys make necessary, and the message about it."""
        return None

    @classmethod
    def instead_of(cls, _text: str) -> str:
        """What to write in place of a text that names the same; empty where that is not known."""
        return ""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, _Shown(getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={shown!r}' for name, shown in self.__rich_repr__())})"


class _Shown:
    """A value as it may be shown."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        match self._value:
            case str(text) if "://" in text:
                return repr(without_credentials(text))
            case Mapping() as mapping:
                shown = (
                    f"{key!r}: {value!r}" if isinstance(value, Section) else f"{key!r}: …"
                    for key, value in mapping.items()
                )
                return f"{{{', '.join(shown)}}}"
            case value:
                return repr(value)


# ── models and providers ─────────────────────────────────────────────────────────────────────────────────────


class ModelRef(Section):
    """One model at one provider."""

    provider: str
    name: str

    @classmethod
    def instead_of(cls, text: str) -> str:
        return _model_keys(text)


class ModelChoice(Section):
    """The default model, and its fallbacks in order."""

    provider: str = "local"
    name: str = "smollm2-135m"
    fallbacks: tuple[ModelRef, ...] = ()

    @classmethod
    def missing_key(cls, given: Mapping[str, Any]) -> tuple[str, str] | None:
        """The default name is the embedded model's: no other provider knows it."""
        provider = given.get("provider", "local")
        return None if provider == "local" or "name" in given else ("name", f"is missing: which model of {provider}?")

    @classmethod
    def instead_of(cls, text: str) -> str:
        return _model_keys(text)


def _model_keys(text: str) -> str:
    """What is meant by `<provider>/<model>`, as the command line takes it; empty for any other text."""
    provider, slash, name = text.partition("/")
    plain = slash and f"{provider}{name}".isascii() and not set(text) & set(" ,{}[]#&*!|>'\"%@`")
    return f"{{provider: {provider}, name: {name}}}" if plain and provider and name else ""


class DefaultSeconds(float):
    """A deadline that the user did not choose: a large context or a local model may lengthen it. Equal to the same
    number of seconds, and told from it by its type alone: a chosen deadline is kept, also where it is the default."""


class CallPolicy(Section):
    """Deadlines and retries of one call. None: no such deadline; for `idle_timeout_s`: by the size of the context."""

    connect_timeout_s: Seconds = 10.0
    first_token_timeout_s: Seconds | None = DefaultSeconds(120)
    idle_timeout_s: Seconds | None = None
    progress_timeout_s: Seconds | None = DefaultSeconds(300)
    total_timeout_s: Seconds | None = 1800.0
    max_attempts: Count = 3
    backoff_s: Seconds = 0.5
    backoff_max_s: Seconds = 30.0


class CallOverrides(Section):
    """The keys of `CallPolicy` under one provider. Unset: the value of `call`."""

    connect_timeout_s: Seconds | UnsetType = UNSET
    first_token_timeout_s: Seconds | UnsetType | None = UNSET
    idle_timeout_s: Seconds | UnsetType | None = UNSET
    progress_timeout_s: Seconds | UnsetType | None = UNSET
    total_timeout_s: Seconds | UnsetType | None = UNSET
    max_attempts: Count | UnsetType = UNSET
    backoff_s: Seconds | UnsetType = UNSET
    backoff_max_s: Seconds | UnsetType = UNSET

    def over(self, policy: CallPolicy) -> CallPolicy:
        """The policy with the keys that are set here replaced."""
        given = {name: getattr(self, name) for name in CallPolicy.__struct_fields__}
        return msgspec.structs.replace(policy, **{name: value for name, value in given.items() if value is not UNSET})


Price = Annotated[float, Meta(ge=0, description="dollars per million tokens, 0 or more")]


class ModelPrice(Section):
    """What tokens of a model cost. Without a price of their own, cached tokens cost what the input does."""

    input: Price
    output: Price
    cache_read: Price | None = None
    cache_write: Price | None = None


class ProviderSettings(CallOverrides):
    """An endpoint. A key that is None comes from the preset of that name, where there is one."""

    dialect: Dialect | None = None
    base_url: HttpUrl | None = None
    key_env: EnvName | None = None
    headers: Mapping[str, str] = NOTHING
    extra_body: Mapping[str, Any] = NOTHING  # merged into every request
    stream: StreamMode = "auto"
    reattach: bool = False  # `responses` alone: the provider keeps its answers, and a broken stream is read on there
    quirks: tuple[str, ...] = ()  # known deviations that this server has too, by their names in `config/quirks.py`
    prices: Mapping[str, ModelPrice] = NOTHING  # by the model's name, with * for any text; before list prices
    model_path: str | None = None  # the embedded model's file; relative to the home directory

    @classmethod
    def missing_key(cls, given: Mapping[str, Any]) -> tuple[str, str] | None:
        """A key that `reattach` needs: only the Responses API keeps answers, and only streams are read on."""
        if not given.get("reattach"):
            return None
        if given.get("dialect") not in (None, "responses"):
            return "reattach", f"needs dialect: responses; {given['dialect']} has no answers that the provider keeps"
        if given.get("stream") is False:
            return "reattach", "needs stream: auto; an answer that is asked for whole cannot be read on"
        return None


class OwnQuirk(Section):
    """A deviation of an endpoint that the registry does not have. Without a host it holds where a provider names it."""

    name: str
    host: str = ""  # this host and its subdomains
    model: str = "*"  # a glob on the model's name
    why: str = ""  # the address of what tells more
    body: Mapping[str, Any] = NOTHING  # merged into the request; what `extra_body` and the client set wins
    drop: tuple[str, ...] = ()  # fields that are left out

    def as_quirk(self) -> Quirk:
        models, body, drop = (self.model.lower(),), self.body, self.drop
        return Quirk(name=self.name, why=self.why, host=self.host, models=models, body=body, drop=drop, of_config=True)


# ── the runtime ──────────────────────────────────────────────────────────────────────────────────────────────


class TransportSettings(Section):
    """How model endpoints are reached. `proxy` of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`."""

    proxy: ProxyAddress = "environment"


class Streaming(Section):
    """Which surfaces show tokens as they arrive. A surface's own switch wins over `enabled`; None: not set. Where
    nothing is set the terminal streams, and chats do not."""

    further_field: ClassVar[str] = "platforms"
    enabled: bool | None = None
    cli: bool | None = None
    api_server: bool | None = None  # false: front ends that cannot ask for a stream (`/ui/chat`) get each text whole
    edit_interval: Seconds | None = None  # None: the platform's own
    min_tokens: Annotated[int, Meta(ge=0, description="a whole number of at least 0")] = 20
    platforms: Mapping[str, bool | None] = NOTHING  # one platform; ignored where no message can be edited

    @classmethod
    def further_keys(cls) -> Mapping[str, Any]:
        return dict.fromkeys([*platforms(), *problems()], bool | None)

    def switch(self, surface: str) -> bool | None:
        """What is set for this surface alone."""
        own: dict[str, bool | None] = {"cli": self.cli, "api_server": self.api_server, **self.platforms}
        return own.get(surface)


class AgentSettings(Section):
    """`max_turns` and `max_tokens` are the budgets of one turn: model calls, and tokens read and written in them."""

    max_turns: Count = 50
    max_tokens: Count | None = None
    context_tokens: Count = 128_000  # a history that nears this is summarised in its older part
    tools: tuple[str, ...] = ("terminal", "read_file", "write_file", "patch", "search_files", "web_fetch")
    roots: tuple[str, ...] = ()  # directories that file tools may use beside the working directory
    rules: tuple[str, ...] = ("AGENTS.md", "CLAUDE.md")  # the first that a directory has is read; empty: none is
    show_reasoning: bool = False
    think_tags: tuple[str, ...] = ()  # further tags around thoughts in a model's text
    redact: tuple[str, ...] = ()  # regular expressions, within a word: their matches are neither shown nor stored


class Approvals(Section):
    """`ask` the user, `deny` without asking, or approve without asking (`yolo`). The hard list stays blocked."""

    mode: Literal["ask", "deny", "yolo"] = "ask"
    timeout_s: Seconds | None = None  # 60; 900 where a chat is asked
    edits: Literal["allow", "ask"] = "allow"  # what a change of a file does; the question shows the difference
    allow: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()  # chats that are asked about every run, each as `<platform>:<chat>`
    api: Literal["wait", "deny"] = "wait"  # what a question in a run of `/v1` does

    def wait_s(self, *, in_chat: bool = False) -> float:
        """How long a question stands."""
        if self.timeout_s is not None:
            return self.timeout_s
        return 900.0 if in_chat or self.notify else 60.0


class McpServer(Section):
    """Where tools come from: a program that speaks MCP over its pipes (`command`), or an address (`url`)."""

    command: tuple[str, ...] = ()
    env_allow: tuple[EnvName, ...] = ()  # variables that the program gets, beside PATH, HOME and the like
    url: HttpUrl | None = None
    key_env: EnvName | None = None  # sent as a bearer token to `url`
    timeout_s: Seconds = 60.0  # for connecting, and for each call
    transport: Literal["http", "sse"] | None = None  # of `url`; None: sse where its path ends in /sse
    headers: Mapping[str, str] = NOTHING  # sent to `url`
    headers_env: Mapping[str, EnvName] = NOTHING  # the same, each with the value of a variable
    trust: bool = False  # run the tools that it calls read-only without asking

    @property
    def uses_sse(self) -> bool:
        return self.transport == "sse" or (self.transport is None and urlsplit(self.url or "").path.endswith("/sse"))


class Mcp(Section):
    servers: Mapping[str, McpServer] = NOTHING


class Checkpoints(Section):
    enabled: bool | None = None  # None: in a terminal, in a git work tree or a directory under 10,000 files


class Store(Section):
    """The token-level entries of a run are removed `compact_after_days` after its end, the run itself
    `delete_after_days` after it; None: never."""

    url: StoreUrl = "sqlite:///tailrace.db"
    durability: Literal["memory", "committed", "fsync"] = "committed"
    lease_s: Seconds = 10.0  # a process that hangs for so long loses its runs to another one
    compact_after_days: Days | None = 7.0
    delete_after_days: Days | None = None


class Bus(Section):
    url: BusUrl = "auto"  # what the store has itself, the pipes of a file for instance


Scope: TypeAlias = Literal["models", "runs", "approvals", "admin"]


class ServerKey(Section):
    """The key of one caller. Scopes: `models`: raw models; `runs`: runs, sequences and the agent; `approvals`: sees and
    answers every question; `admin`: every route.

    `models` are the ones that the key may use, as `<provider>/<model>` with `*` for any text, `tailrace` for the agent
    and `sequences` for what has its models in its steps; empty: all. The limits hold for all processes together, a day
    is one of UTC."""

    name: str
    key_env: EnvName
    scopes: tuple[Scope, ...] = ("models", "runs")
    models: tuple[str, ...] = ()
    requests_per_minute: Count | None = None
    tokens_per_day: Count | None = None
    usd_per_day: Dollars | None = None

    @property
    def is_limited(self) -> bool:
        return (self.requests_per_minute, self.tokens_per_day, self.usd_per_day) != (None, None, None)


class Server(Section):
    """`key_env` opens every route; `keys` are for several callers with scopes."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="a port from 0 (any free one) to 65535")] = 8642
    key_env: EnvName = "TAILRACE_API_KEY"
    keys: tuple[ServerKey, ...] = ()
    hosts: tuple[str, ...] = ()  # further host names of the server; without a key only these and loopback are served
    cors_origins: tuple[str, ...] = ()
    max_body_mb: Annotated[float, Meta(gt=0, description="a number of megabytes above 0")] = 32.0
    workers: Workers = 1  # processes that share the port; 0: as many as there are cores
    max_requests: Count = 4096  # in flight at once, streams included, of all workers together
    drain_s: Seconds = 20.0  # for requests in flight when the server stops
    aliases: dict[str, str] = msgspec.field(
        default_factory=lambda: {"claude-*": "anthropic/*", "gpt-*": "openai/*"}
    )  # a model's name without a provider → `<provider>/<model>`, with `*` the name asked for; or `tailrace`
    strict: bool = False  # refuse a parameter that the model's API does not support, instead of leaving it out

    def secret_variables(self) -> set[str]:
        """The environment variables that hold the server's keys."""
        return {self.key_env, *(key.key_env for key in self.keys)}


class Flows(Section):
    env_allow: tuple[EnvName, ...] = ()
    allow_hosts: tuple[str, ...] = ()  # that an orch8 `tool_call` may reach although they are not public


# ── chat platforms ───────────────────────────────────────────────────────────────────────────────────────────


TellNames = Literal["always", "none"]


class PlatformSettings(Section):
    """The keys of every platform. Only users that `allow` names are served; "*" is everyone."""

    needs_every_secret: ClassVar[bool] = True  # of its variables; False: one of them will do
    enabled: bool = False
    allow: tuple[Identifier, ...] = ()
    respond: Literal["mentions", "all"] = "mentions"
    # what a new message does to the answer in progress: it stops it, waits for it, or is given to it on its way
    busy: Literal["interrupt", "queue", "steer"] = "interrupt"
    tools: Literal["lines", "none"] = "lines"  # how tool calls are shown: a line each, or nothing
    names: TellNames = "always"  # whether the model reads who writes in a shared chat

    def secrets(self) -> dict[str, str]:
        """The keys that name a variable which holds a secret, each with the variable."""
        keys = [key for key in self.__struct_fields__ if key.endswith("_env")]
        return {key: variable for key in keys if (variable := getattr(self, key))}

    def account_id(self, token: str) -> tuple[str | None, ...]:
        """Tells the account from others on the platform. It must outlive a change of the token, where the token or the
        settings say whose it is: what waited for the account goes on then."""
        return (token,)


P = TypeVar("P", bound=PlatformSettings)


class Platforms(Section):
    """The configured platforms. Each key is the name of an integration, which has the section's class."""

    further_field: ClassVar[str] = "by_name"
    by_name: Mapping[str, PlatformSettings] = NOTHING

    @classmethod
    def further_keys(cls) -> Mapping[str, Any]:
        """The section of an integration that cannot be loaded is `Any`: it is read when the integration is mended."""
        for name, found in [*platforms().items()]:
            settings = found.integration.settings
            if settings is None or not issubclass(settings, PlatformSettings):
                reject(name, "its settings are no PlatformSettings")
        sections = {name: found.integration.settings for name, found in platforms().items()}
        return dict.fromkeys(problems(), Any) | sections

    def get(self, name: str, section: type[P]) -> P | None:
        """The settings of a platform; None where it is not configured."""
        settings = self.by_name.get(name)
        return settings if isinstance(settings, section) else None

    def secret_variables(self) -> set[str]:
        """The environment variables that hold the platforms' secrets."""
        return {variable for settings in self.by_name.values() for variable in settings.secrets().values()}


class Sections(Section):
    """Every key of the file."""

    model: ModelChoice = ModelChoice()
    providers: Mapping[str, ProviderSettings] = NOTHING
    quirks: tuple[OwnQuirk, ...] = ()
    streaming: Streaming = Streaming()
    call: CallPolicy = CallPolicy()
    transport: TransportSettings = TransportSettings()
    agent: AgentSettings = AgentSettings()
    approvals: Approvals = Approvals()
    mcp: Mcp = Mcp()
    checkpoints: Checkpoints = Checkpoints()
    store: Store = Store()
    bus: Bus = Bus()
    server: Server = Server()
    flows: Flows = Flows()
    platforms: Platforms = Platforms()
