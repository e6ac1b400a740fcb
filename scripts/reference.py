"""Writes docs/reference/*.md from the code: config keys, commands, HTTP routes, metrics, events.

`python scripts/reference.py` writes the pages; `--check` compares them with the code and exits 1 where they differ. A
page quotes the comment, docstring or help text beside each key, route and flag: correct that, then run this again.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import re
import sys
import tempfile
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tailrace.app import open_app
from tailrace.app.slash_commands import SLASH_COMMANDS, SlashCommand
from tailrace.cli.main import all_commands, parser_of
from tailrace.config.load import load
from tailrace.config.sections import CallOverrides, CallPolicy, PlatformSettings, Section, Sections
from tailrace.events import AnyEvent
from tailrace.plugins.installed import platforms
from tailrace.server.app import build
from tailrace.server.http.route import Route
from tailrace.server.metrics.registry import Histogram, Metrics

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
HIDDEN_OPTIONS = {"--help", "--log-level", "--json"}  # told once, above all commands
_FIELD = re.compile(r"^    (\w+): ")
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::[^{}]*)?\}")


# ── config keys ──────────────────────────────────────────────────────────────────────────────────────────────


def configuration() -> str:
    lines = [
        "# Configuration keys",
        "",
        "Every key of `config.yaml` with its default, what else it takes, and its meaning. The file itself:",
        "[configuration](../configuration.md).",
        *_section(Sections, ""),
    ]
    for name, found in platforms().items():
        if (settings := found.integration.settings) is not None and issubclass(settings, PlatformSettings):
            lines += _section(settings, f"platforms.{name}")
    lines += _section(PlatformSettings, "platforms.NAME")
    return "\n".join(lines)


def _section(section: type[Section], path: str) -> Iterator[str]:
    """The keys of one section, then the sections below it."""
    hints = typing.get_type_hints(section, include_extras=True)
    comments = _comments(section)
    below: list[tuple[str, type[Section]]] = []
    rows: list[str] = []
    for field in msgspec.structs.fields(section):
        if field.name == section.further_field:
            if _section_in(hints[field.name]) is None:
                names = ", ".join(f"`{name}`" for name in section.further_keys())
                rows.append(f"- {names} (true or false): {_as_yaml(comments[field.name])}")
        elif (found := _section_in(hints[field.name])) is not None:
            below.append((f"{path}.{field.name}".lstrip(".") + found[0], found[1]))
        elif field.name not in _explained_elsewhere(section):
            rows.append(_key_row(field, hints[field.name], comments.get(field.name, "")))
    text = _own_doc(section)
    if path and (rows or text):
        yield from ("", f"## {path}", "")
        yield from (text, "") if text else ()
        yield from rows
    for key, each in below:
        yield from _section(each, key)


def _explained_elsewhere(section: type[Section]) -> set[str]:
    """Keys that one section shares with others, and that stand at another one."""
    if issubclass(section, CallOverrides):
        return set(CallPolicy.__struct_fields__)
    if issubclass(section, PlatformSettings) and section is not PlatformSettings:
        return set(PlatformSettings.__struct_fields__)
    return set()


def _key_row(field: msgspec.structs.FieldInfo, hint: object, comment: str) -> str:
    default = _default(field)
    row = f"- `{field.name}`" + (f" `{default}`" if default else "")
    others = [f"`{value}`" for value in _choices(hint) if value != default]
    if others or not default:
        row += f" ({', '.join(others) or _expected(hint)})"
    return f"{row}: {_as_yaml(comment)}" if comment else row


def _default(field: msgspec.structs.FieldInfo) -> str:
    """As YAML; empty for null and for a key that must be given."""
    if field.default_factory is not msgspec.NODEFAULT:
        return _yaml(field.default_factory())
    return "" if field.default in (msgspec.NODEFAULT, None) else _yaml(field.default)


def _choices(hint: object) -> list[str]:
    found = [hint, *typing.get_args(hint)]
    return [
        str(value) for each in found if typing.get_origin(each) is typing.Literal for value in typing.get_args(each)
    ]


def _expected(hint: object) -> str:
    """What may stand there, in the words of an error message."""
    for each in (hint, *typing.get_args(hint)):
        for meta in getattr(each, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description:
                return meta.description.partition(",")[0].removeprefix("an ").removeprefix("a ")
    return "true or false" if bool in (hint, *typing.get_args(hint)) else "text"


def _as_yaml(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def _section_in(hint: object) -> tuple[str, type[Section]] | None:
    """The section that a key holds, and what stands between: `.NAME` for a mapping, `[]` for a list."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return "", hint
    origin = typing.get_origin(hint)
    between = "[]" if origin is tuple else ".NAME" if origin in (Mapping, dict) else ""
    for argument in typing.get_args(hint):
        if (found := _section_in(argument)) is not None:
            return between + found[0], found[1]
    return None


def _yaml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return f"[{', '.join(map(_yaml, value))}]"
        case Mapping():
            return msgspec.json.encode(dict(value)).decode().replace('":"', '": "').replace('","', '", "')
        case _:
            return str(value)


def _own_doc(section: type[Section]) -> str:
    """The docstring, for a section that has one of its own and not the one of its base."""
    return _as_yaml(" ".join((section.__doc__ or "").split())) if "__doc__" in vars(section) else ""


def _comments(section: type[Section]) -> dict[str, str]:
    """Each key's comment: the lines above it, or what follows it on its line and the next ones."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if not issubclass(base, Section) or base is Section:
            continue
        above: list[str] = []
        last = ""
        for line in inspect.getsource(base).splitlines():
            code, mark, comment = line.partition("# ")
            if match := _FIELD.match(line):
                last = match[1]
                found[last] = comment if mark else " ".join(above)
            elif not code.strip() and mark:
                above.append(comment)
                continue
            elif mark and last:
                found[last] = comment
            above = []
    return found


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────


def commands() -> str:
    lines = [
        "# Commands",
        "",
        "Every command and its options; an argument that subcommands share stands at the first. `--log-level` works",
        "with each; `--json` prints one object or event a line; RUN is an id, the beginning of one, or `last`. Exit",
        "codes: 0 done, 1 failed, 2 wrong use, 3 incomplete (an action was not executed, or the answer was cut), 130",
        "interrupted.",
    ]
    for name, command in sorted(all_commands().items()):
        lines += ["", f"## tailrace {name}", "", f"{_sentence(command.help)}", *_options(parser_of(name))]
    lines += ["", "## Slash commands", "", "In the terminal, chats and the page, or as named.", ""]
    lines += [_slash_row(command) for command in SLASH_COMMANDS if command.is_listed]
    return "\n".join(lines)


def _slash_row(command: SlashCommand) -> str:
    only = f" ({', '.join(command.surfaces)})" if len(command.surfaces) < 3 else ""
    return f"- `/{command.name} {command.usage}".rstrip() + f"`{only}: {command.help}"


def _options(parser: argparse.ArgumentParser, *, indent: str = "") -> Iterator[str]:
    """The options of a command, then those of its subcommands. A shared argument stands at the first that has it."""
    actions = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    rows = [
        f"{indent}- `{_spelling(action)}`: {_help(parser, action)}"
        for action in actions
        if not isinstance(action, argparse._SubParsersAction)
        and not HIDDEN_OPTIONS & set(action.option_strings)
        and action.metavar != "RUN"
    ]
    below = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    if not indent and (rows or below):
        yield ""
    yield from rows
    for group in below:
        helps = {choice.dest: choice.help or "" for choice in group._choices_actions}
        shared: set[str] = set()
        for name, each in group.choices.items():
            yield f"{indent}- **{name}**: {_sentence(helps.get(name, ''))}"
            own = [row for row in _options(each, indent=f"{indent}  ") if row not in shared]
            shared.update(own)
            yield from own


def _spelling(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    if isinstance(value, tuple):
        value = " ".join(value)
    return f"{', '.join(action.option_strings)} {value if action.nargs != 0 else ''}".strip()


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return " ".join((action.help or "").split()) % {**vars(action), "prog": parser.prog}


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", " ".join(text.split()), maxsplit=1)[0]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "." if text else ""


# ── HTTP routes ──────────────────────────────────────────────────────────────────────────────────────────────


def http() -> str:
    lines = [
        "# HTTP routes",
        "",
        "Every route but the page's own files, with the scope that it needs and its query. Bodies and answers:",
        "`/openapi.json` of a running server. What clients can rely on: [HTTP](../http.md).",
    ]
    routes = [route for route in asyncio.run(_routes()) if not route.path.startswith("/web/")]
    lines += ["", *map(_route_row, sorted(routes, key=lambda route: (route.path, route.method)))]
    return "\n".join(lines)


async def _routes() -> list[Route]:
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.yaml").write_text('store: {url: "memory://"}\n', encoding="utf-8")
        async with open_app(load({"TAILRACE_HOME": home}), directory=Path(home)) as app:
            pipeline, _ = build(app)
            return list(pipeline.routes)


def _route_row(route: Route) -> str:
    query = [field.encode_name for field in msgspec.structs.fields(route.query)] if route.query is not None else []
    asked = f" Query: {', '.join(f'`{name}`' for name in query)}." if query else ""
    path = _PATH_PARAMETER.sub(r"{\1}", route.path)
    return f"- `{route.method} {path}` ({route.access}): {_first_sentence(_sentence(route.description))}{asked}"


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────


def metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "`GET /metrics`, in the text format of Prometheus. Counters cover all workers of one port.",
        "",
    ]
    for metric in vars(Metrics()).values():
        labels = () if isinstance(metric, Histogram) else metric.labels
        named = f", by {', '.join(f'`{label}`' for label in labels)}" if labels else ""
        lines.append(f"- `{metric.name}` ({metric.kind}{named}): {metric.text}")
    return "\n".join(lines)


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


def events() -> str:
    lines = [
        "# Events",
        "",
        "Every event of a run's log, by its `type` in JSON. An entry adds `seq` and `attempt` to these fields; over",
        "SSE `id:` is the `seq` and `event:` the type. A field with `?` may be absent.",
        "",
    ]
    for event in typing.get_args(AnyEvent):
        config = event.__struct_config__
        fields = ", ".join(
            f"`{field.encode_name}{'' if field.required or not config.omit_defaults else '?'}`"
            for field in msgspec.structs.fields(event)
        )
        lines.append(f"- **{config.tag}** ({fields or 'no fields'}): {_first_sentence(inspect.getdoc(event) or '')}")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    made = (configuration, commands, http, metrics, events)
    note = "<!-- Written by `make reference` from the code: do not edit. -->\n\n"
    return {PAGES / f"{page.__name__}.md": f"{note}{page()}\n" for page in made}


def main() -> int:
    wanted = pages()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the code says\n  run: make reference")
        return 1 if stale else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
        print(f"· {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
