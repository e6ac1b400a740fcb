"""The small language of conditions and templates: paths, literals, comparisons, `and`, `or`, `not`, `in`, `??`.

Pure. Owns the grammar and the meaning of every operator; what a name stands for is the scope's. There are no calls,
no arithmetic and no loops: whatever can be written ends at once.

    or      = and (("or" | "||") and)*
    and     = not (("and" | "&&") not)*
    not     = ("not" | "!") not | compare
    compare = default (("==" | "!=" | "<" | "<=" | ">" | ">=" | "in") default)?
    default = operand ("??" operand)*           the first that is there and not null
    operand = literal | path | "(" or ")"
    path    = name ("." name | "[" number "]" | "[" string "]")*
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Literal, Protocol, TypeAlias, assert_never

import msgspec

from tailrace.errors import TailraceError
from tailrace.values.validation_words import decoding_problem

MAX_CHARS = 10_000
MAX_DEPTH = 50
MAX_OPERANDS = 200  # a chain of operators is as deep as it is long


class ExpressionError(TailraceError):
    """The text is no expression, or a path in it leads nowhere."""


class Scope(Protocol):
    """What names stand for."""

    def root(self, name: str) -> Any:
        """Raises `KeyError` for a name that stands for nothing."""


class Constant(msgspec.Struct, frozen=True):
    value: Any


class Path(msgspec.Struct, frozen=True):
    """`steps.a.output[0]` is ("steps", "a", "output", 0)."""

    parts: tuple[str | int, ...]

    def __str__(self) -> str:
        text = str(self.parts[0])
        return text + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.parts[1:])


Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "and", "or", "??"]


class Binary(msgspec.Struct, frozen=True):
    operator: Operator
    left: Expression
    right: Expression


class Not(msgspec.Struct, frozen=True):
    operand: Expression


Expression: TypeAlias = Constant | Path | Binary | Not

# ── meaning ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Missing:
    """Where a path leads nowhere."""


MISSING = _Missing()


def evaluate(expression: Expression, scope: Scope, *, strict: bool = True) -> Any:
    """The value. A path that leads nowhere raises `ExpressionError`, or is null where it is not `strict`."""
    value = _value(expression, scope)
    if value is MISSING:
        if strict:
            raise ExpressionError(f"there is no {expression}")
        return None
    return value


def is_true(value: object) -> bool:
    """null, false, 0 and everything empty are false."""
    return bool(value)


def _value(expression: Expression, scope: Scope) -> Any:
    match expression:
        case Constant(value):
            return value
        case Path(parts):
            return _follow(parts, scope)
        case Not(operand):
            return not is_true(_null(_value(operand, scope)))
        case Binary("??", left, right):
            value = _value(left, scope)
            return _value(right, scope) if value is None or value is MISSING else value
        case Binary("and", left, right):
            return is_true(_null(_value(left, scope))) and is_true(_null(_value(right, scope)))
        case Binary("or", left, right):
            return is_true(_null(_value(left, scope))) or is_true(_null(_value(right, scope)))
        case Binary(operator, left, right):
            return _compare(operator, _null(_value(left, scope)), _null(_value(right, scope)))
        case _:
            assert_never(expression)


def _null(value: Any) -> Any:
    return None if value is MISSING else value


def _follow(parts: Sequence[str | int], scope: Scope) -> Any:
    try:
        value = scope.root(str(parts[0]))
        for part in parts[1:]:
            if isinstance(value, Mapping):
                value = value[str(part)]
            elif isinstance(value, list | tuple):
                value = value[int(part)]
            else:
                return MISSING
    except (KeyError, IndexError, ValueError):
        return MISSING
    return value


def _compare(operator: str, left: Any, right: Any) -> bool:
    """Numbers with numbers and texts with texts; what cannot be compared is not less, not more and not in."""
    if operator == "in":
        if isinstance(right, str | Mapping):
            return isinstance(left, str) and left in right
        return isinstance(right, list | tuple) and any(equal_values(left, item) for item in right)
    if operator in ("==", "!="):
        return equal_values(left, right) == (operator == "==")
    if not _comparable(left, right):
        return False
    return bool(_ORDER[operator](left, right))


_ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def _comparable(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return isinstance(left, str) == isinstance(right, str) and all(
        isinstance(value, int | float | str) for value in (left, right)
    )


def equal_values(left: Any, right: Any) -> bool:
    """Equal as JSON values: 1 is 1.0 and is not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(equal_values(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(equal_values, left, right))
    return bool(left == right)


def paths_in(expression: Expression) -> Iterator[Path]:
    match expression:
        case Path():
            yield expression
        case Binary(_, left, right):
            yield from paths_in(left)
            yield from paths_in(right)
        case Not(operand):
            yield from paths_in(operand)
        case Constant():
            pass
        case _:
            assert_never(expression)


# ── grammar ──────────────────────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign>==|!=|<=|>=|&&|\|\||\?\?|[<>!().\[\]]))"""
)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_SPELLINGS = {"&&": "and", "||": "or", "!": "not"}
_COMPARISONS: tuple[Operator, ...] = ("==", "!=", "<", "<=", ">", ">=", "in")


class _Token(msgspec.Struct, frozen=True):
    kind: str  # "number", "name", "text", "sign" or "end"
    text: str
    at: int


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> Expression:
    """Raises `ExpressionError` that names the place."""
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    return _Parser(text).parse_all()


def parse_condition(text: str) -> Expression:
    """A condition may stand in the braces of a template or without them."""
    bare = text.strip()
    if bare.startswith("{{") and bare.endswith("}}") and "{{" not in bare[2:]:
        bare = bare[2:-2]
    return parse_expression(bare)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._at = 0
        self._depth = 0
        self._operands = 0

    def _scan(self) -> Iterator[_Token]:
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                raise ExpressionError(f"{self._text!r}: {self._text[at:].strip()[:1]!r} makes no sense here")
            yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            at = found.end()
        yield _Token("end", "the end", end)

    def parse_all(self) -> Expression:
        expression = self._or()
        if self._next().kind != "end":
            raise self._expected("an operator")
        return expression

    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str | None:
        token = self._next()
        word = _SPELLINGS.get(token.text, token.text)
        if token.kind in ("sign", "name") and word in texts:
            self._at += 1
            return word
        return None

    def _expected(self, what: str) -> ExpressionError:
        return ExpressionError(f"{self._text!r}: expected {what}, found {self._next().text}")

    def _or(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError("nested too deeply")
        left = self._and()
        while self._take("or"):
            left = Binary("or", left, self._and())
        self._depth -= 1
        return left

    def _and(self) -> Expression:
        left = self._not()
        while self._take("and"):
            left = Binary("and", left, self._not())
        return left

    def _not(self) -> Expression:
        negations = 0
        while self._take("not"):
            negations += 1
        expression = self._compare()
        for _ in range(min(negations, 2 - negations % 2)):
            expression = Not(expression)
        return expression

    def _compare(self) -> Expression:
        left = self._default()
        taken = next((operator for operator in _COMPARISONS if self._take(operator)), None)
        return left if taken is None else Binary(taken, left, self._default())

    def _default(self) -> Expression:
        left = self._operand()
        while self._take("??"):
            left = Binary("??", left, self._operand())
        return left

    def _operand(self) -> Expression:
        token = self._next()
        self._operands += 1
        if self._operands > MAX_OPERANDS:
            raise ExpressionError(f"more than {MAX_OPERANDS} values in one expression")
        if self._take("("):
            inner = self._or()
            if not self._take(")"):
                raise self._expected("a closing parenthesis")
            return inner
        if token.kind in ("number", "text"):
            self._at += 1
            return Constant(_literal(token))
        if token.kind == "name" and token.text not in ("and", "or", "not", "in"):
            self._at += 1
            return Constant(_WORDS[token.text]) if token.text in _WORDS else self._path(token.text)
        raise self._expected("a value")

    def _path(self, name: str) -> Path:
        parts: list[str | int] = [name]
        while True:
            if self._take("."):
                token = self._next()
                if token.kind not in ("name", "number") or token.text.startswith("-"):
                    raise self._expected("a name")
                self._at += 1
                parts += [int(part) if part.isdigit() else part for part in token.text.split(".")]
            elif self._take("["):
                token = self._next()
                if token.kind not in ("number", "text"):
                    raise self._expected("an index")
                self._at += 1
                parts.append(int(token.text) if token.text.isdigit() else str(_literal(token)))
                if not self._take("]"):
                    raise self._expected("a closing bracket")
            else:
                return Path(tuple(parts))


def _literal(token: _Token) -> Any:
    if token.kind == "number":
        return float(token.text) if any(c in token.text for c in ".eE") else int(token.text)
    body = token.text[1:-1]
    if token.text[0] == "'":
        body = body.replace("\\'", "'").replace('"', '\\"')
    try:
        return msgspec.json.decode(f'"{body}"')
    except msgspec.DecodeError as exc:
        raise ExpressionError(f"{token.text} is no text: {decoding_problem(exc)}") from exc
