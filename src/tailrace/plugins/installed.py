"""Which integrations are installed. Looked up once per process, and only when one is asked for.

One that cannot be loaded is left out: `problems` says why, for the log and for `doctor`. It stops no start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tailrace.errors import ConfigError, TailraceError
from tailrace.plugins.integration import BusKind, CliCommand, Integration, StoreKind
from tailrace.system.extras import install_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "tailrace.integrations"
_OWN_SCHEMES: Final = frozenset({"sqlite", "memory", "auto"})  # no integration is looked up for these
_FIELDS: Final[Mapping[str, Any]] = {  # of an `Integration`, with their types
    **dict.fromkeys(("title", "extra", "library", "platform", "questions", "routes", "checks"), str),
    "streams": bool,
    "commands": Mapping[str, CliCommand],
    "store": StoreKind | None,
    "bus": BusKind | None,
}
T = TypeVar("T")


class Installed(NamedTuple):
    """An integration and the package that it came from."""

    integration: Integration
    package: str

    def load(self, reference: str, *, key: str = "") -> Any:
        """What the reference names. `Any`: the text says nothing of its type; the caller does. Raises `ConfigError`
        about `key` where it cannot be loaded, whatever the integration's own code raised."""
        module, _, attribute = reference.partition(":")
        shown, extra = self.integration.shown, self.integration.extra
        try:
            loaded = import_module(module, self.package)
            return attrgetter(attribute)(loaded) if attribute else loaded
        except (Exception, SystemExit) as exc:
            if isinstance(exc, ImportError) and extra:
                message = f"the library of {shown} is not installed ({exc}); {install_command(extra)}"
            else:
                message = f"{shown} cannot be loaded: {_reason(exc)}"
            raise ConfigError(message, key=key) from exc

    def call(self, reference: str, *arguments: object, key: str = "") -> Any:
        """Calls what the reference names. Raises `ConfigError` as `load` does, and for any failure of the integration's
        own code that is no `TailraceError`."""
        named = self.load(reference, key=key)
        with self.failures(key):
            return named(*arguments)

    def call_for_each(
        self, kind: type[T], reference: str, *arguments: object, check: Callable[[T], object] | None = None
    ) -> tuple[T, ...]:
        """All that the call returns. Raises `ConfigError` as `call` does, and where one of them is no `kind` or `check`
        raises."""
        returned = self.call(reference, *arguments)
        with self.failures():
            items = tuple(returned)
            for item in items:
                if not isinstance(item, kind):
                    raise TypeError(f"{reference} returned {item!r}, which is no {kind.__name__}")
                if check is not None:
                    check(item)
            return items

    @contextmanager
    def failures(self, key: str = "") -> Iterator[None]:
        """Translates what the integration's own code raises. `SystemExit` too: a package must not end the process."""
        try:
            yield
        except TailraceError:
            raise
        except (Exception, SystemExit) as exc:
            raise ConfigError(f"{self.integration.shown} failed: {_reason(exc)}", key=key) from exc


class Search(NamedTuple):
    """What a search found: the integrations that can be loaded, and why the others cannot, both by name."""

    installed: dict[str, Installed]
    problems: dict[str, str]


def search(entry_points: Iterable[EntryPoint]) -> Search:
    """Loads each entry point's `Integration`. Of two with one name the first is taken."""
    installed: dict[str, Installed] = {}
    problems: dict[str, str] = {}
    for point in sorted(entry_points, key=lambda point: point.name):
        try:
            found = Installed(_integration(point), point.module)
        except ConfigError as exc:
            problems.setdefault(point.name, exc.message)
            continue
        if point.name in installed:
            problems[point.name] = f"two packages have an integration {point.name}; {point.module} is not used"
        else:
            installed[point.name] = found
    return Search(installed, problems)


def _integration(point: EntryPoint) -> Integration:
    """Raises `ConfigError`, whatever the foreign code raised."""
    try:
        value = point.load()
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"the integration {point.name} cannot be loaded: {_reason(exc)}") from exc
    if not isinstance(value, Integration) or value.name != point.name:
        raise ConfigError(f"the integration {point.name} cannot be used: {point.value} is no Integration of that name")
    return _with_checked_fields(value)


def _with_checked_fields(given: Integration) -> Integration:
    """Raises `ConfigError` for a field of another type: each would fail later, in a command that needs it or not."""
    import msgspec  # only where an integration is asked for

    fields: dict[str, Any] = {}
    for field, expected in _FIELDS.items():
        try:
            plain = msgspec.to_builtins(getattr(given, field), enc_hook=_as_dict)  # an instance would pass unchecked
            fields[field] = msgspec.convert(plain, expected)
        except (msgspec.ValidationError, TypeError) as exc:
            raise ConfigError(f"the integration {given.name} cannot be used: its {field}: {exc}") from exc
    if not isinstance(given.settings, type | None):
        raise ConfigError(f"the integration {given.name} cannot be used: its settings are no class")
    return given._replace(**fields)


def _as_dict(value: object) -> dict[object, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is of an unexpected type")
    return dict(value)


def _reason(exc: BaseException) -> str:
    """In one line."""
    return f"{type(exc).__name__}: {' '.join(str(exc).split())}"


# ── of this process ──────────────────────────────────────────────────────────────────────────────────────────


@cache
def _search() -> Search:
    from importlib.metadata import entry_points  # 30 ms of CPU: most commands ask for no integration

    return search(entry_points(group=GROUP))


def installed() -> Mapping[str, Installed]:
    """By name, in alphabetical order."""
    return _search().installed


def problems() -> Mapping[str, str]:
    """What is wrong with those that cannot be used, by name."""
    return _search().problems


def reject(name: str, why: str) -> None:
    """Leaves out an integration that a room has found unusable."""
    _search().installed.pop(name, None)
    _search().problems[name] = f"the integration {name} cannot be used: {why}"


def platforms() -> Mapping[str, Installed]:
    """The chat platforms by name."""
    return {name: found for name, found in installed().items() if found.integration.platform}


def is_platform(name: str) -> bool:
    """Whether this is the name of a chat platform. One that cannot be loaded counts: its chats stay its own."""
    return name in platforms() or (name in problems() and name not in installed())


def store_for(url: str) -> tuple[Installed, StoreKind] | None:
    """The integration whose store `store.url` names; None for one of the journal's own, and for an unknown one."""
    scheme = url.partition(":")[0]
    known = () if scheme in _OWN_SCHEMES else installed().values()
    stores = [(found, kind) for found in known if (kind := found.integration.store) is not None]
    return next((each for each in stores if scheme in each[1].schemes), None)


def store_examples() -> list[str]:
    """An address of each kind of store that an integration has."""
    return [kind.example for found in installed().values() if (kind := found.integration.store) is not None]


def bus_for(url: str) -> tuple[Installed, BusKind] | None:
    """The integration whose bus `bus.url` names; None for what the store has itself, and for an unknown one."""
    scheme = url.partition(":")[0]
    known = () if scheme in _OWN_SCHEMES else installed().values()
    buses = [(found, kind) for found in known if (kind := found.integration.bus) is not None]
    return next((each for each in buses if scheme in each[1].schemes), None)


def bus_examples() -> list[str]:
    """An address of each kind of bus that an integration has."""
    return [kind.example for found in installed().values() if (kind := found.integration.bus) is not None]
