"""What an integration says of itself. A reference is text, so that finding an integration imports nothing of it:
`.adapter:make` is the attribute `make` of the module `adapter` in the integration's own package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import msgspec


class CliCommand(NamedTuple):
    """A command of the command line. `module` has `add_arguments(parser)` and `run(args, config) -> int`; of an
    integration's it is relative to its package (`.command`). `reads_config=False`: works with a broken config file too;
    its `run` takes the arguments alone. `starts_programs`: tools and MCP servers run as its children. `mixed`: options
    may stand between its words. `group`: where `tailrace --help` lists it."""

    help: str
    module: str
    reads_config: bool = True
    starts_programs: bool = False
    mixed: bool = False
    group: Literal["talk", "look", "serve", "flows", "admin"] = "admin"


class StoreKind(NamedTuple):
    """A store for the journal, by the scheme of `store.url`."""

    schemes: tuple[str, ...]
    example: str  # an address as messages show it
    open: str  # `journal.open_journal.OpenStorage`
    backup_command: str = ""  # `(url, file) -> str`: the program that backs it up, as typed into a shell
    password_env: str = ""  # the variable that holds the password where `store.url` has none


class BusKind(NamedTuple):
    """What carries entries to other machines beside a `StoreKind`, by the scheme of `bus.url`."""

    schemes: tuple[str, ...]
    example: str
    make: str  # `(url) -> journal.bus.Bus`, not yet open
    ping: str  # `async (url) -> None`; raises `JournalError` where it does not answer


class Integration(NamedTuple):
    """One chat platform, protocol or store. `name` is the entry point's own."""

    name: str
    title: str = ""  # as people write it, where that is not the name
    extra: str = ""  # of this project, where the integration needs one
    library: str = ""  # the module that the extra installs
    # ── a chat platform
    settings: type[msgspec.Struct] | None = None  # its section of the config: a `config.sections.PlatformSettings`
    platform: str = ""  # `(config) -> delivery.port.Platform`
    streams: bool = False  # a message can grow there while it is written
    questions: str = ""  # a `cli.setup.platform_questions.PlatformQuestions`
    # ── a protocol
    commands: Mapping[str, CliCommand] = MappingProxyType({})
    routes: str = ""  # a `server.app.RouteModule`
    # ── a store or a bus
    store: StoreKind | None = None
    bus: BusKind | None = None
    # ── each
    checks: str = ""  # `(config) -> Sequence[cli.setup.finding.Finding]`: beside what `doctor` checks of every one

    @property
    def shown(self) -> str:
        return self.title or self.name
