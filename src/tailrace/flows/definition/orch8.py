"""Documents of orch8 (https://github.com/orch8-io/engine) as definitions of ours, translated once, at the edge.

Pure. Owns its envelope, its names in templates and conditions, and its milliseconds. A field without a counterpart here
is refused by name, never ignored. Beyond this module only `steps.orch8` knows the format: its handlers give orch8's
outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace.flows.definition.definition import Definition, DefinitionError, parsed
from tailrace.flows.definition.signals import WAIT_SIGNAL
from tailrace.messages import JsonObject

LLM_CALL, TOOL_CALL, VALUES = "orch8.llm_call", "orch8.tool_call", "orch8.values"
_HANDLERS: Final = {
    "llm_call": LLM_CALL,
    "tool_call": TOOL_CALL,
    "noop": VALUES,
    "transform": VALUES,
    "set_state": VALUES,
}
_ENVELOPE: Final = frozenset({"tenant_id", "namespace", "deprecated", "created_at"})
_UNUSED: Final = _ENVELOPE | {"id", "version", "status", "notes"}  # they change nothing here
# The fields of each block that have a counterpart, beside `type` and `id`.
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "step": frozenset({"handler", "params", "retry", "timeout", "wait_for_input"}),
    "parallel": frozenset({"branches"}),
    "race": frozenset({"branches"}),
    "loop": frozenset({"condition", "body", "max_iterations"}),
    "for_each": frozenset({"collection", "item_var", "body"}),
    "router": frozenset({"routes", "default"}),
    "try_catch": frozenset({"try_block", "catch_block", "finally_block"}),
    "sub_sequence": frozenset({"sequence_name", "version", "input"}),
}
# What a block may have that is what happens here anyway.
_AS_HERE: Final[Mapping[str, JsonObject]] = {
    "race": {"semantics": "first_to_succeed"},
    "step": {"cancellable": True},
    "loop": {"continue_on_error": False},
}
_FOREIGN_NAME: Final = r"(?<![\w.])(?:context\.(?:data|config)|outputs)\."
# No search starts twice over the same text: a hostile document is read in linear time (L140).
_FOREIGN: Final = re.compile(rf"\{{\{{[^{{}}]*?{_FOREIGN_NAME}")
_TEMPLATE: Final = re.compile(r"\{\{([^{}]*)\}\}")
_WORD: Final = re.compile(
    r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|([A-Za-z_][\w-]*)((?:\.[\w-]+|\[\d+\])*)(\s*\()?"""
)
_PIECE: Final = re.compile(r"""\|\||\||"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^|"']+""")
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_FILTERS: Final = frozenset({"upper", "lower", "trim", "abs", "url_encode", "base64", "base64_decode"})
_OPERATORS: Final = frozenset({"true", "false", "null", "in"})


def read_definition(value: Any) -> Definition:
    """The definition that a JSON value is, in our format or in orch8's. Raises `DefinitionError`."""
    try:
        return parsed(_Document(value).translated() if is_orch8(value) else value)
    except RecursionError as exc:
        raise DefinitionError("$", "nested too deeply") from exc


def is_orch8(value: Any) -> bool:
    """Whether it has orch8's envelope, or names of orch8's, which no definition of ours can have."""
    if not isinstance(value, Mapping):
        return False
    return not _ENVELOPE.isdisjoint(value) or any(map(_FOREIGN.search, _texts(value.get("blocks"))))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


class _Unsupported(Exception):
    """Something of orch8's that has no counterpart here."""


class _Document:
    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._writers: dict[str, str] = {}  # what steps write, `data.done` or `state.answer` → the step's id

    def translated(self) -> JsonObject:
        known = {"name", "description", "input_schema", "blocks"}
        _refuse({key: self._document[key] for key in self._document.keys() - known - _UNUSED}, "$")
        self._note_writers(self._document.get("blocks"))
        kept = {key: self._document[key] for key in known & self._document.keys() if self._document[key] is not None}
        return {**kept, "blocks": self._blocks(self._document.get("blocks"), "$.blocks", frozenset())}

    def _note_writers(self, value: Any) -> None:
        match value:
            case {"type": "step", "id": str(name), "handler": "transform", "params": {"target": str(target)}}:
                self._note_writer(target.removeprefix("context."), name)
            case {"type": "step", "id": str(name), "handler": "set_state", "params": {"key": str(key)}}:
                self._note_writer(f"state.{key}", name)
            case Mapping() | list():
                for inner in value.values() if isinstance(value, Mapping) else value:
                    self._note_writers(inner)
            case _:
                pass

    def _note_writer(self, written: str, name: str) -> None:
        if self._writers.setdefault(written, name) != name:
            raise DefinitionError("$.blocks", f"{written} is written by two steps: {self._writers[written]} and {name}")

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────

    def _blocks(self, blocks: Any, path: str, items: frozenset[str]) -> Any:
        """`items`: the names of the items of the iterations that these blocks are in."""
        if not isinstance(blocks, list):
            return blocks
        return [self._block(block, f"{path}[{number}]", items) for number, block in enumerate(blocks)]

    def _block(self, block: Any, path: str, items: frozenset[str]) -> Any:
        kind = str(block.get("type")) if isinstance(block, dict) else ""
        if kind not in _FIELDS:
            return block
        as_here = _AS_HERE.get(kind, {})
        unknown = {key: block[key] for key in block.keys() - _FIELDS[kind] - {"type", "id"}}
        _refuse({key: value for key, value in unknown.items() if as_here.get(key) != value}, path)
        if kind == "race" and block.get("semantics") != "first_to_succeed":
            raise DefinitionError(path, "a race of orch8 is supported with semantics: first_to_succeed alone")
        given = {key: value for key, value in block.items() if key not in unknown and value is not None}
        try:
            return self._step(given, items) if kind == "step" else self._composite(given, path, items)
        except _Unsupported as exc:
            raise DefinitionError(path, str(exc)) from exc

    def _composite(self, block: JsonObject, path: str, items: frozenset[str]) -> JsonObject:
        if block["type"] == "for_each":
            block = {"max_concurrency": 1, **block}  # one after the other
            items |= {str(block.get("item_var", "item"))}
        if "{{" in str(block.get("sequence_name", "")):
            raise _Unsupported("a template cannot name a sequence: it is written into the instance before this starts")
        return {key: self._field(key, value, f"{path}.{key}", items) for key, value in block.items()}

    def _field(self, key: str, value: Any, path: str, items: frozenset[str]) -> Any:
        """One field of a block that holds others. Of another shape it stays as it is: `parsed` says what is wrong."""
        match key, value:
            case (("condition" | "collection"), str()):
                return self._expression(value, items)
            case "input", _:
                return self._templates(value, items)
            case (("body" | "blocks" | "default" | "try_block" | "catch_block" | "finally_block"), _):
                return self._blocks(value, path, items)
            case "branches", list():
                return [self._blocks(branch, f"{path}[{number}]", items) for number, branch in enumerate(value)]
            case "routes", list():
                return [
                    {name: self._field(name, inner, f"{path}[{number}].{name}", items) for name, inner in route.items()}
                    if isinstance(route, dict)
                    else route
                    for number, route in enumerate(value)
                ]
            case _:
                return value

    def _step(self, step: JsonObject, items: frozenset[str]) -> JsonObject:
        handler, params = step.get("handler"), step.get("params", {})
        waits = step.pop("wait_for_input", None)
        if (timeout_ms := step.pop("timeout", None)) is not None:
            step["timeout_secs"] = _seconds(timeout_ms)
        if isinstance(retry := step.get("retry"), dict):
            step["retry"] = {key: _retry_value(key, value) for key, value in retry.items() if value is not None}
        if handler == "human_review":
            if isinstance(waits, dict) and waits.get("timeout") is not None:
                step["timeout_secs"] = _seconds(waits["timeout"])
            return {**step, "handler": WAIT_SIGNAL, "params": {"signal": f"human_input:{step.get('id')}"}}
        if waits is not None:
            raise _Unsupported("wait_for_input is supported for human_review alone")
        if isinstance(params, dict):
            params = self._params(str(handler), self._templates(params, items), items)
        return {**step, "handler": _HANDLERS.get(str(handler), handler), "params": params}

    def _params(self, handler: str, params: JsonObject, items: frozenset[str]) -> JsonObject:
        match handler:
            case "llm_call":
                params = _with_variable(params)
                if not {"provider", "providers", "base_url"} & params.keys():
                    params["provider"] = "openai"
                if isinstance(listed := params.get("providers"), list):
                    params["providers"] = [_with_variable(ref) if isinstance(ref, dict) else ref for ref in listed]
                return params
            case "sleep":
                return {"seconds": _seconds(params.get("duration_ms", 100))}
            case "transform" if isinstance(params.get("expression"), str):
                return {**params, "value": f"{{{{{self._expression(params['expression'], items)} ?? null}}}}"}
            case _:
                return params

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────

    def _templates(self, value: Any, items: frozenset[str]) -> Any:
        if isinstance(value, str):
            return _TEMPLATE.sub(lambda found: f"{{{{{self._template(found[1], items)}}}}}", value)
        if isinstance(value, dict):
            return {key: self._templates(inner, items) for key, inner in value.items()}
        return [self._templates(inner, items) for inner in value] if isinstance(value, list) else value

    def _template(self, text: str, items: frozenset[str]) -> str:
        """`a | b` is the first of them that is there; null where none is."""
        parts = [""]
        for piece in _PIECE.finditer(text):
            if piece[0] == "|":
                parts.append("")
            else:
                parts[-1] += piece[0]
        if filters := _FILTERS.intersection(map(str.strip, parts)):
            raise _Unsupported(f"the filter {min(filters)} of orch8 is not supported")
        return " ?? ".join([*(self._expression(part, items) for part in parts), "null"])

    def _expression(self, text: str, items: frozenset[str]) -> str:
        bare = text.strip()
        if bare.startswith("{{") and bare.endswith("}}"):
            bare = bare[2:-2].strip()

        def translated(found: re.Match[str]) -> str:
            quoted, root, rest, calls = found.groups()
            if calls:
                raise _Unsupported(f"the function {root} of orch8 is not supported")
            return quoted or self._name(root, rest, items)

        return _WORD.sub(translated, bare)

    def _name(self, root: str, rest: str, items: frozenset[str]) -> str:
        if root == "context" and rest.startswith(".data"):
            root, rest = "data", rest.removeprefix(".data")
        first = re.match(r"\.([\w-]+)", rest)
        name, below = (first[1], rest[first.end() :]) if first else ("", rest)
        match root:
            case "data" if name in items:
                return f"{name}{below}"
            case "data" | "state" if (writer := self._writers.get(f"{root}.{name}")) is not None:
                written = f"steps.{writer}.output.value{below}"
                return f"{written} ?? input.{name}{below}" if root == "data" else written
            case "data":
                return f"input{rest}"
            case "input":
                return f"input.input{rest}"
            case "outputs" | "steps" if name:
                return f"steps.{name}.output{below}"
            case "context" | "config" | "runtime" | "state" | "instance_id":
                raise _Unsupported(f"{root}{rest} of orch8 is not supported")
            case _ if not rest and root not in _OPERATORS and root not in items:
                return f'"{root}"'  # a bare word is a text
            case _:
                return f"{root}{rest}"


def _refuse(fields: JsonObject, path: str) -> None:
    """Raises `DefinitionError` for the first of these fields that is set."""
    for key, value in fields.items():
        if value not in (None, [], {}, ""):
            raise DefinitionError(f"{path}.{key}", "this field of orch8 is not supported")


def _seconds(milliseconds: Any) -> float:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise _Unsupported("a time of orch8 is a number of milliseconds")
    return milliseconds / 1000


def _retry_value(key: str, value: Any) -> Any:
    if key in ("retry_if", "non_retryable_codes"):
        raise _Unsupported(f"retry.{key} of orch8 is not supported")
    return _seconds(value) if key in ("initial_backoff", "max_backoff") else value


def _with_variable(ref: JsonObject) -> JsonObject:
    """`api_key` as the name of a variable: no key stands in a document."""
    key, others = ref.get("api_key"), {name: value for name, value in ref.items() if name != "api_key"}
    if key is None:
        return others
    if not isinstance(key, str) or not _VARIABLE.fullmatch(key):
        raise _Unsupported("api_key: a key cannot stand in a document; name the variable that holds it")
    return {**others, "api_key_env": key}
