"""Reads a shell command line with the bash grammar, far enough to know which programs it would start.

Pure, runs nothing. Resolves what hides a command from a reader: quotes, escapes, variables, brace expansion, `$'…'`,
command substitution, groups. What only a run can tell is marked `dynamic`. What the grammar cannot read, and every
place where the grammar is known to read a line otherwise than bash does, is reported in `unclear` (M153); the commands
that can be read in such a line count all the same. The cost is linear in the length of the line: the length, the
operators and the expansions are bounded before the work (L140).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tailrace.agent.safety.heredoc import HereDocument, cut_line, lift_heredocs, replace_misread

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMANDS = 500  # a line that holds more is not read to its end
MAX_EXPANDED_CHARS = 100_000  # what all variables of a line may grow to
MAX_BRACE_WORDS = 64
MAX_DEPTH = 40
_RESERVED = frozenset(
    {"!", "{", "}", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in"}
    | {"select", "then", "until", "while"}
)
# The grammar has no such command.
_BRACE_COMMAND = re.compile(r"(?:^|[;&|\n(])[ \t]*(\{[^\s{}]*,[^\s{}]*\}[^;&|\n()]*)")
_NAME_START = re.compile(r"[A-Za-z_]")
_PLAIN_WORD = re.compile(r"[a-zA-Z0-9_./:=+@%-]+")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ANSI_C = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_CONTROL_CHARS = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": ""}
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad]")
_QUOTED_BRACES = str.maketrans("{,}", "\ue000\ue001\ue002")  # braces in quotes do not expand
_PLAIN_BRACES = str.maketrans("\ue000\ue001\ue002", "{,}")
_COMPOUND = frozenset(
    {"subshell", "compound_statement", "while_statement", "for_statement", "c_style_for_statement", "if_statement"}
    | {"case_statement", "function_definition"}
)
_REDIRECTS = ("file_redirect", "herestring_redirect")


class Word(NamedTuple):
    """A word after expansion. `dynamic`: part of it is known only when it runs. `globbed`: an unquoted * ? or [."""

    text: str
    dynamic: bool = False
    globbed: bool = False


class Redirect(NamedTuple):
    """`target` is the file; for `<<` and `<<<` it is the text that is fed to the program."""

    operator: str
    target: Word


class SimpleCommand(msgspec.Struct):
    """One program start: its words, its redirections, and whether its input comes from another command or a group."""

    words: list[Word]
    redirects: list[Redirect]
    piped: bool = False

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""

    @property
    def fed(self) -> bool:
        """Its input is not the terminal."""
        return self.piped or any(redirect.operator.startswith("<") for redirect in self.redirects)


class ShellLine(msgspec.Struct):
    """Every program start found. `unclear` says what could not be read. `fork_bomb`: a function pipes into itself."""

    commands: list[SimpleCommand]
    unclear: str = ""
    fork_bomb: bool = False


class _Piece(NamedTuple):
    """Part of a word. `quoted` text neither splits nor expands; `expanded` text splits at blanks."""

    text: str
    dynamic: bool = False
    quoted: bool = False
    expanded: bool = False


def parse_shell(line: str) -> ShellLine:
    """The programs that a shell would start for this line. Never raises."""
    source = line.encode("utf-8", "replace")
    lifted, documents = lift_heredocs(source)
    reader = _Reader(lifted, documents)
    reader.read_line()
    if documents and reader.documents_met != len(documents):  # a `<<` in quotes: the text is no document
        reader = _Reader(source, {})
        reader.read_line()
    return ShellLine(reader.commands[:MAX_COMMANDS], reader.unclear, reader.fork_bomb)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Reader:
    def __init__(
        self,
        source: bytes,
        documents: dict[int, HereDocument],
        depth: int = 0,
        variables: dict[str, Word] | None = None,
    ) -> None:
        self._source, self._documents, self._depth = source, documents, depth
        self._variables = {} if variables is None else variables
        self._expandable_chars = MAX_EXPANDED_CHARS
        self._last: SimpleCommand | None = None  # the command that a redirection after it belongs to
        self._readers: dict[str, Callable[[Node, bool], object]] = {
            "command": self._read_command,
            "redirected_statement": self._read_redirected,
            "function_definition": self._read_function,
            "for_statement": self._read_for,
            "command_substitution": self._substitution,
            "process_substitution": self._substitution,
            "variable_assignment": self._assign,
            "file_redirect": self._read_bare_redirect,
            "herestring_redirect": self._read_bare_redirect,
            "heredoc_redirect": self._read_heredoc,
            "comment": self._check_comment,
        }
        self.documents_met = 0
        self.commands: list[SimpleCommand] = []
        self.unclear = ""
        self.fork_bomb = False

    def read_line(self) -> None:
        self._make_readable()
        root = _parser().parse(self._source).root_node
        if root.has_error:
            self.unclear = self.unclear or "it is not a command that the grammar knows"
            for found in _BRACE_COMMAND.finditer(self._source.decode("utf-8", "replace")):
                words = [w for word in found[1].split() for w in _expand_braces(word) or ()]
                self.commands.append(SimpleCommand([Word(word) for word in words], []))
        self._visit(root)

    def _make_readable(self) -> None:
        """Only what is too long is cut off, and quotes closed there; the offsets stay."""
        cut = readable = cut_line(self._source)
        if cut != self._source:
            self.unclear = "it is too long"
            closed = (cut + quote for quote in (b"", b"'", b'"'))
            readable = next((line for line in closed if not _parser().parse(line).root_node.has_error), cut)
        self._source = replace_misread(readable)
        if self._source != readable:
            self.unclear = self.unclear or "its escapes or control characters cannot be read"

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────

    def _visit(self, top: Node, *, piped: bool = False) -> None:
        """Collects the commands below a node in the order of the line. Only groups and substitutions recurse."""
        waiting = [(top, piped)]
        while waiting:
            node, fed = waiting.pop()
            if len(self.commands) > MAX_COMMANDS or self._depth > MAX_DEPTH:
                self.unclear = "it holds too many commands"
                return
            if node.type in self._readers:
                self._readers[node.type](node, fed)
            elif node.type == "pipeline":
                waiting += [(child, fed or child != node.children[0]) for child in reversed(node.children)]
            elif node.children:
                waiting += [(child, fed) for child in reversed(node.children)]
            elif node.is_named:
                self._check_plain(self._text(node))

    def _add(self, command: SimpleCommand) -> SimpleCommand:
        self.commands.append(command)
        self._last = command
        return command

    def _visit_deeper(self, nodes: Iterable[Node], *, piped: bool = False) -> list[SimpleCommand]:
        """The commands below these nodes, one level down."""
        start = len(self.commands)
        self._depth += 1
        for node in nodes:
            self._visit(node, piped=piped)
        self._depth -= 1
        return self.commands[start:]

    def _read_command(self, node: Node, piped: bool) -> None:
        command = self._add(SimpleCommand([], [], piped))
        apart = ("variable_assignment", *_REDIRECTS)
        command.words += self._words([child for child in node.children if child.type not in apart])
        if command.name in _RESERVED:
            self.unclear = f"{command.name} is not where the grammar expects it"
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign(child)
            elif child.type in _REDIRECTS:
                self._redirect(child, command)
        self._last = command

    def _read_redirected(self, node: Node, piped: bool) -> None:
        body = node.child_by_field_name("body")
        inner = self._visit_deeper([body] if body else [], piped=piped)
        last = self._last if inner and self._last else self._add(SimpleCommand([], []))
        for child in node.children:
            if child.type in _REDIRECTS:
                self._redirect(child, last)
            elif child != body:
                self._visit(child)
        if body and body.type in _COMPOUND and last.fed:  # the whole group reads it
            for command in inner:
                command.piped = True
        self._last = last

    def _read_function(self, node: Node, _piped: bool) -> None:
        name = node.child_by_field_name("name")
        inner = self._visit_deeper(child for child in node.children if child != name)
        own = [command for command in inner if name and command.name == self._text(name)]
        self.fork_bomb |= len(own) > 1 and any(command.piped for command in own)

    def _read_for(self, node: Node, piped: bool) -> None:
        if variable := node.child_by_field_name("variable"):
            self._variables[self._text(variable)] = Word("", dynamic=True)
        self._visit_deeper(node.children, piped=piped)

    def _read_bare_redirect(self, node: Node, _piped: bool) -> None:
        self._redirect(node, self._add(SimpleCommand([], [])))

    def _read_heredoc(self, node: Node, _piped: bool) -> None:
        """A document that is still in the line: only the grammar knows where it ends."""
        self.unclear = "it holds a here-document that cannot be read"
        command = self._last or self._add(SimpleCommand([], []))
        command.redirects += [Redirect("<<", Word(self._text(c))) for c in node.children if c.type == "heredoc_body"]
        self._visit_deeper(node.children)

    def _assign(self, node: Node, _piped: bool = False) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        pieces = list(self._pieces(value)) if value else []
        sign = next(child for child in node.children if child.type in ("=", "+="))
        joined = name is not None and name.end_byte == sign.start_byte and (value or sign).start_byte <= sign.end_byte
        ends = self._source[node.end_byte : node.end_byte + 1] in b" \t\n;&|()<>`}"
        if name is None or not joined or not ends or not _NAME_START.match(key := self._text(name)):
            self.unclear = "it holds an assignment that cannot be read"
            return
        if name.type != "variable_name":
            self._visit(name)
            return
        word = Word("".join(piece.text for piece in pieces))
        # Branches, subshells and pipelines may or may not set it for what follows; so may a second assignment.
        certain = sign.type == "=" and _runs_always(node) and not any(piece.dynamic for piece in pieces)
        known = self._variables.setdefault(key, word)
        if known != word or not certain:
            self._variables[key] = Word("", dynamic=True)

    def _redirect(self, node: Node, command: SimpleCommand) -> None:
        """Adds the redirection to its command, and the words that follow it: `rm > log -rf x` has them as arguments."""
        sign = next((child for child in node.children if not child.is_named), node)
        document = self._documents.get(sign.start_byte)
        if document is not None:
            self.documents_met += 1
            text = document.text
            if substitutions := document.substitutions:
                self._read_inner(substitutions)
                self.unclear = "its here-document runs commands"
            if not document.quoted:
                text = re.sub(r"\$(\w+|\{\w+\})", lambda x: self._variable(x[1].strip("{}")).text or x[0], text)
            command.redirects.append(Redirect("<<", Word(text)))
        else:
            after = [child for child in node.children if child.start_byte >= sign.end_byte]
            target = self._words(after[:1]) or [Word("")]
            command.redirects.append(Redirect(self._text(sign), target[0]))
            command.words += self._words(after[1:])

    def _check_comment(self, node: Node, _piped: bool) -> None:
        """bash begins a comment only at the beginning of a word."""
        before = self._source[max(0, node.start_byte - 2) : node.start_byte]
        if before[-1:] not in (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")") or before[:-1] == b"\\":
            self.unclear = "a # in the middle of a word"

    def _check_plain(self, text: str) -> None:
        """The grammar takes the substitutions in "${x:-`rm x`}" and ${x:-<(rm x)} for text."""
        if not text.isalnum() and re.search(r"`|[$<>]\(|\$\{", re.sub(r"\\.", "", text)):
            self.unclear = "it holds a substitution that the grammar does not know"

    # ── words ────────────────────────────────────────────────────────────────────────────────────────────────

    def _words(self, nodes: Sequence[Node]) -> list[Word]:
        """The words that these nodes become. Nodes with nothing but a continued line between them are one word."""
        words: list[Word] = []
        pieces: list[_Piece] = []
        for at, node in enumerate(nodes):
            if at and self._source[nodes[at - 1].end_byte : node.start_byte].replace(b"\\\n", b""):
                words += self._joined(pieces)
                pieces = []
            pieces += self._pieces(node)
        return words + self._joined(pieces)

    def _joined(self, pieces: Sequence[_Piece]) -> list[Word]:
        """One word of these pieces; several where an expansion splits it."""
        if len(pieces) == 1 and _PLAIN_WORD.fullmatch(pieces[0].text):
            return [Word(pieces[0].text, pieces[0].dynamic)]
        parts: list[list[str]] = [[]]
        for piece in pieces:
            if piece.expanded and not piece.quoted:
                first, *more = piece.text.split() or [""]
                parts[-1].append(first)
                parts += [[word] for word in more]
                if piece.text.isspace():
                    parts.append([])  # $IFS: a blank that is not written as one
            else:
                parts[-1].append(piece.text.translate(_QUOTED_BRACES) if piece.quoted else piece.text)
        dynamic = any(piece.dynamic for piece in pieces)
        globbed = any(not piece.quoted and not piece.expanded and re.search(r"[*?\[]", piece.text) for piece in pieces)
        keep_empty = dynamic or any(piece.quoted for piece in pieces)
        words: list[Word] = []
        for part in parts:
            expanded = _expand_braces("".join(part))
            if expanded is None:
                self.unclear = "its braces expand to too many words"
            for word in expanded or ():
                unknown = dynamic or bool(re.search(r"\{[^{},]*\.\.", word))
                if word or keep_empty:
                    folded = unicodedata.normalize("NFKC", word.translate(_PLAIN_BRACES))
                    words.append(Word(_INVISIBLE.sub("", folded), unknown, globbed))
        return words

    def _pieces(self, node: Node) -> Iterator[_Piece]:
        match node.type:
            case "string":
                yield from self._double_quoted(node)
            case "translated_string" if self._text(node).startswith('$"'):
                yield from self._pieces(node.children[1])
            case "command_name" | "concatenation":
                for child in node.children:
                    yield from self._pieces(child)
            case "simple_expansion" | "expansion":
                yield self._parameter(node)
            case "command_substitution" | "process_substitution":
                yield self._substitution(node)
            case "arithmetic_expansion" | "array" | "subscript":
                self._visit_deeper(node.children)
                yield _Piece("", dynamic=True)
            case _:
                yield from self._literal(node)

    def _literal(self, node: Node) -> Iterator[_Piece]:
        text = self._text(node)
        if node.type in ("raw_string", "ansi_c_string"):
            yield _Piece(
                text[1:-1] if node.type == "raw_string" else _ANSI_C.sub(_ansi_c_char, text[2:-1]), quoted=True
            )
            return
        self._check_plain(text)
        if text.endswith("$") and self._source[node.end_byte : node.end_byte + 1] == b'"':
            self.unclear = 'it holds a $"…" that cannot be read'
        for escaped, plain in re.findall(r"\\(\n|.)|([^\\]+|\\)", text, re.DOTALL):
            if re.search(r"[\s&;|<>()]", plain):
                self.unclear = "it holds an operator that the grammar takes for text"
            if escaped != "\n":
                yield _Piece(escaped or plain, quoted=bool(escaped))

    def _double_quoted(self, node: Node) -> Iterator[_Piece]:
        at = node.start_byte + 1
        for child in node.named_children:
            if child.type != "string_content":
                yield self._quoted_text(at, child.start_byte)
                for piece in self._pieces(child):
                    yield piece._replace(quoted=True)
                at = child.end_byte
        yield self._quoted_text(at, node.end_byte - 1)

    def _quoted_text(self, start: int, end: int) -> _Piece:
        text = self._source[start:end].decode("utf-8", "replace").replace("\\\n", "")
        self._check_plain(text)
        return _Piece(re.sub(r'\\(["\\$`])', r"\1", text), quoted=True)

    def _parameter(self, node: Node) -> _Piece:
        """`$x`, `${x}`, and `${x:-default}` as its default where `x` is not set."""
        name, *rest = [child for child in node.children if child.type not in ("$", "${", "}")] or [node]
        if not rest and name.type == "variable_name" and self._text(node).strip("${}") == (key := self._text(name)):
            return self._variable(key)
        if node.type == "simple_expansion" and name.start_byte > node.start_byte + 1:
            self.unclear = "it holds a $ that cannot be read"
        self._depth += 1
        default: list[_Piece] = []
        if self._depth > MAX_DEPTH:
            self.unclear = "it is nested too deeply"
        elif rest and rest[0].type in (":-", "-", ":=", "="):
            default = [piece for child in rest[1:] for piece in self._pieces(child)]
        else:
            self._visit_deeper(rest)
        self._depth -= 1
        return _Piece("".join(piece.text for piece in default), dynamic=True, expanded=True)

    def _variable(self, name: str) -> _Piece:
        fixed = {"IFS": " ", "HOME": "~"}.get(name)
        word = Word(fixed) if fixed else self._variables.get(name, Word("", dynamic=True))
        self._expandable_chars -= len(word.text)
        if self._expandable_chars < 0:
            self.unclear = "its variables grow too large"
            word = Word("", dynamic=True)
        return _Piece(word.text, word.dynamic, expanded=True)

    def _substitution(self, node: Node, _piped: bool = False) -> _Piece:
        """A nested command line: its commands count too, and what it prints is known only for a plain echo."""
        text = self._text(node)
        if text.startswith("`") and "\\" in text:  # one level of escapes is for the outer shell
            commands = self._read_inner(re.sub(r"\\([$`\\])", r"\1", text[1:-1]))
        else:
            commands = self._visit_deeper(node.children)
        if len(commands) == 1 and not commands[0].redirects and node.type == "command_substitution":
            words = commands[0].words
            if words and words[0].text in ("echo", "printf") and not any(word.dynamic for word in words):
                shown = " ".join(word.text for word in words[1:] if not word.text.startswith("-"))
                return _Piece(_ANSI_C.sub(_ansi_c_char, shown), expanded=True)
        return _Piece("", dynamic=True, expanded=True)

    def _read_inner(self, line: str) -> list[SimpleCommand]:
        inner = _Reader(line.encode(), {}, self._depth + 1, self._variables)
        inner.read_line()
        self.commands += inner.commands
        self.unclear = self.unclear or inner.unclear
        self.fork_bomb |= inner.fork_bomb
        return inner.commands


def _runs_always(node: Node) -> bool:
    """Whether this assignment is a statement of its own that holds for all that follows it."""
    if node.parent and node.parent.type == "variable_assignments":
        node = node.parent
    after = node.next_sibling
    return node.parent is not None and node.parent.type == "program" and (after is None or after.type != "&")


def _expand_braces(word: str) -> list[str] | None:
    """Brace expansion: `{rm,-rf,/}` is three words. None where there are more than MAX_BRACE_WORDS."""
    done: list[str] = []
    waiting = [word]
    while waiting:
        word = waiting.pop()
        found = next((match for match in _BRACES.finditer(word) if "," in match[1]), None)
        if found is None:
            done.append(word)
        else:
            head, tail = word[: found.start()], word[found.end() :]
            waiting += [head + middle + tail for middle in reversed(found[1].split(","))]
        if len(done) + len(waiting) > MAX_BRACE_WORDS:
            return None
    return done


def _ansi_c_char(match: re.Match[str]) -> str:
    code = match[1]
    try:
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
    except (ValueError, OverflowError):
        return match[0]
    return _CONTROL_CHARS.get(code, code if code in "'\"\\?" else match[0])
