"""Reads a shell command line with the bash grammar, far enough to know which programs it would start.

Pure, runs nothing. Resolves what hides a command from a reader: quotes, escapes, variables, brace expansion, `$'…'`,
command substitution, groups. A word that only the run decides is marked `dynamic`. What the grammar cannot read, and
every place where the grammar is known to read a line otherwise than bash does, is reported in `unclear` (M153); the
commands that can be read in such a line are reported, too. The cost is linear in the length of the line: the length,
the operators and the expansions are bounded before the work (L140).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tailrace.agent.safety.arithmetic import arithmetic_reason
from tailrace.agent.safety.heredoc import HereDocument, cut_line, lift_heredocs, replace_misread
from tailrace.agent.safety.words import (
    UNKNOWN,
    Piece,
    Redirect,
    ShellLine,
    SimpleCommand,
    Word,
    decode_ansi_c,
    expand_braces,
    split_words,
)

if TYPE_CHECKING:
    from tree_sitter import Language, Node

# Syntax of bash that another shell takes for something else: $'…', [[ > ]], ((…)), <(…), <<<, &>, {a,b}, a=(…).
NOT_IN_EVERY_SHELL = re.compile(
    r"\$['\"\[]|\[\[|\(\(|[<>]\(|<<<|&>|>&\s*[^\d\s-]|\|&|\{\S*(,|\.\.)|=\(|\bfunction\b|\bselect\b"
)
MAX_COMMANDS = 500  # a line that holds more is not read to its end
MAX_EXPANDED_CHARS = 100_000  # of all variables of a line
MAX_DEPTH = 40
_RESERVED = frozenset(
    {"!", "{", "}", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in"}
    | {"select", "then", "until", "while"}
)
# The grammar has no such command.
_BRACE_COMMAND = re.compile(r"(?:^|[;&|\n(])[ \t]*(\{[^\s{}]*,[^\s{}]*\}[^;&|\n()]*)")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_NAME_START = re.compile(r"[A-Za-z_]")
_COMPOUND = frozenset(
    {"subshell", "compound_statement", "while_statement", "for_statement", "c_style_for_statement", "if_statement"}
    | {"case_statement", "function_definition"}
)
_REDIRECTS = ("file_redirect", "herestring_redirect")
_SET_SOME = frozenset(
    {"read", "printf", "mapfile", "readarray", "getopts", "declare", "typeset", "local", "export", "readonly", "unset"}
    | {"let", "wait"}
)
_SET_ANY = frozenset({"eval", "source", ".", "shopt", "set"})
_LISTED_NAME = re.compile(r"(?:\./)?[\w*?\[](?:[\w/*?\[\]@+-]|\.(?!\.))*")  # no option, no blank, no way out
# `((PATH = 1))` sets a variable, and so does each place where bash evaluates a number.
_ARITHMETIC = re.compile(r"\(\(|\$\[|\[\[|-(?:eq|ne|lt|le|gt|ge)\b|\w\[")
_SETS_IN_ARITHMETIC = re.compile(r"[A-Z_][A-Z0-9_]*\s*(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?![=~]))|(?:\+\+|--)\s*[A-Z_]")


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
def _grammar() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _root_of(source: bytes) -> Node:
    """The line as the grammar reads it. To bash a character beyond ASCII is a letter, and as one it is parsed: the
    grammar's own scanner crashes on some of them. A parser is new each time: lines are judged in threads."""
    from tree_sitter import Parser

    return Parser(_grammar()).parse(_NOT_ASCII.sub(b"x", source)).root_node


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
            "pipeline": self._read_pipeline,
            "redirected_statement": self._read_redirected,
            "function_definition": self._read_function,
            "for_statement": self._read_for,
            "c_style_for_statement": self._read_counting_for,
            "command_substitution": self._substitution,
            "process_substitution": self._substitution,
            "variable_assignment": self._assign,
            "declaration_command": self._read_declaration,
            "unset_command": self._read_declaration,
            "file_redirect": self._read_bare_redirect,
            "herestring_redirect": self._read_bare_redirect,
            "heredoc_redirect": self._read_heredoc,
            "comment": self._check_comment,
        }
        self._separators_changed = False
        self.documents_met = 0
        self.commands: list[SimpleCommand] = []
        self.unclear = ""
        self.fork_bomb = False

    def read_line(self) -> None:
        self._make_readable()
        root = _root_of(self._source)
        if root.has_error:
            self.unclear = self.unclear or "it is not a command that the grammar knows"
            for found in _BRACE_COMMAND.finditer(self._source.decode("utf-8", "replace")):
                words = [w for word in found[1].split() for w in expand_braces(word) or ()]
                self.commands.append(SimpleCommand([Word(word) for word in words], []))
        text = self._source.decode("utf-8", "replace")
        if _ARITHMETIC.search(text) and _SETS_IN_ARITHMETIC.search(text):
            self.unclear = self.unclear or "it may set a variable of the environment in arithmetic"
        self._visit(root)
        self.unclear = self.unclear or arithmetic_reason(root, self._source, self.commands)

    def _make_readable(self) -> None:
        """Cuts off what is too long and closes the quotes there; the offsets stay."""
        cut = readable = cut_line(self._source)
        if cut != self._source:
            self.unclear = "it is too long"
            closed = (cut + quote for quote in (b"", b"'", b'"'))
            readable = next((line for line in closed if not _root_of(line).has_error), cut)
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
                self._assign(child, command=command)
            elif child.type in _REDIRECTS:
                self._redirect(child, command)
        self._forget_variables(command)
        self._last = command

    def _read_declaration(self, node: Node, piped: bool) -> None:
        """`export X=1`: the grammar has it as a statement of its own."""
        command = self._add(SimpleCommand([Word(self._text(node.children[0]))], [], piped))
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._assign(child, command=command)
            else:
                command.words += self._words([child])
        self._forget_variables(command)

    def _forget_variables(self, command: SimpleCommand) -> None:
        """The variables that a builtin may set are unknown afterwards."""
        if command.name in _SET_SOME:
            names = {word.text.partition("=")[0].partition("[")[0] for word in command.words[1:]}
            if any(word.dynamic for word in command.words[1:]):
                names |= set(self._variables)
            self._variables.update((name, UNKNOWN) for name in names if name)
        elif command.name in _SET_ANY:
            self._variables.update((name, UNKNOWN) for name in self._variables)

    def _read_pipeline(self, node: Node, piped: bool) -> None:
        """Notes what feeds each command; unknown behind a part that is more than one command."""
        upstream: tuple[SimpleCommand, ...] | None = () if not piped else None
        for part in node.named_children:
            inner = self._visit_deeper([part], piped=piped)
            piped = True
            if upstream is not None and len(inner) == 1:
                inner[0].upstream = upstream
                upstream = (*upstream, inner[0])
            elif upstream == () and inner and inner[-1].upstream == tuple(inner[:-1]):
                upstream = tuple(inner)  # `a | b 2>&1 | c`: the grammar nests the first two
            else:
                upstream = None

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
        self.unclear = self.unclear or "it defines a function, which may stand for a program"
        name = node.child_by_field_name("name")
        inner = self._visit_deeper(child for child in node.children if child != name)
        own = [command for command in inner if name and command.name == self._text(name)]
        body = self._text(node)
        beside = any(command.piped for command in own) or bool(
            re.search(r"&(?!&)", body.replace(">&", "").replace("&>", ""))
        )
        self.fork_bomb |= len(own) > 1 and beside

    def _read_for(self, node: Node, piped: bool) -> None:
        if variable := node.child_by_field_name("variable"):
            values = self._words(node.children_by_field_name("value"))
            # One of the values stands for all: the one that leads farthest.
            far = [word for word in values if word.dynamic or not _LISTED_NAME.fullmatch(word.text)]
            value = (far or [word for word in values if word.globbed] or values or [UNKNOWN])[0]
            self._variables[name := self._text(variable)] = Word(value.text, True, value.globbed, not far)
            self._add(SimpleCommand([], [], assignments=[(name, Word(""))]))
        body = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        self._visit_deeper(body, piped=piped)

    def _read_counting_for(self, node: Node, piped: bool) -> None:
        """`for ((i = 0; i < 3; i++))`: its head is arithmetic, whose substitutions count."""
        body = node.child_by_field_name("body")
        waiting = [child for child in node.children if child != body]
        while waiting:
            part = waiting.pop()
            if part.type in ("command_substitution", "expansion", "simple_expansion"):
                list(self._pieces(part))
            elif part.type == "variable_name":
                self._variables[self._text(part)] = UNKNOWN
            waiting += part.children if part.type != "command_substitution" else []
        self._visit_deeper([body] if body else [], piped=piped)

    def _read_bare_redirect(self, node: Node, _piped: bool) -> None:
        self._redirect(node, self._add(SimpleCommand([], [])))

    def _read_heredoc(self, node: Node, _piped: bool) -> None:
        """A document that is still in the line: only the grammar knows where it ends."""
        self.unclear = "it holds a here-document that cannot be read"
        command = self._last or self._add(SimpleCommand([], []))
        command.redirects += [Redirect("<<", Word(self._text(c))) for c in node.children if c.type == "heredoc_body"]
        self._visit_deeper(node.children)

    def _assign(self, node: Node, _piped: bool = False, *, command: SimpleCommand | None = None) -> None:
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
        unknown = any(piece.dynamic for piece in pieces)
        (command or self._add(SimpleCommand([], []))).assignments.append((key, Word(word.text, unknown)))
        self._separators_changed |= key == "IFS"
        # Branches, subshells and pipelines may or may not set it for what follows; so may a second assignment.
        if command is not None and command.name not in _SET_SOME:  # for this command alone
            self._variables[key] = UNKNOWN
            return
        certain = sign.type == "=" and _runs_always(node) and not unknown
        known = self._variables.setdefault(key, word)
        if known != word or not certain:
            self._variables[key] = Word(word.text if known == word else "", dynamic=True)

    def _redirect(self, node: Node, command: SimpleCommand) -> None:
        """Adds the redirection to its command, and the words that follow it: `rm > log -rf x` has them as arguments."""
        sign = next((child for child in node.children if not child.is_named), node)
        if command.words[1:] and command.words[-1].text.isdigit() and self._source[node.start_byte - 1 :][:1].isdigit():
            command.words.pop()  # `bash 0< x`: the number belongs to the redirection
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
        pieces: list[Piece] = []
        for at, node in enumerate(nodes):
            if at and self._source[nodes[at - 1].end_byte : node.start_byte].replace(b"\\\n", b""):
                words += self._split(pieces)
                pieces = []
            pieces += self._pieces(node)
        return words + self._split(pieces)

    def _split(self, pieces: Sequence[Piece]) -> list[Word]:
        words = split_words(pieces)
        if words is None:
            self.unclear = "its braces expand to too many words"
        return words or []

    def _pieces(self, node: Node) -> Iterator[Piece]:
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
                yield Piece("", dynamic=True)
            case _:
                yield from self._literal(node)

    def _literal(self, node: Node) -> Iterator[Piece]:
        text = self._text(node)
        if node.type == "ansi_c_string" and "\\'" in text:
            self.unclear = "it holds a quote in $'…', which ends the text for some shells"
        if node.type in ("raw_string", "ansi_c_string"):
            yield Piece(text[1:-1] if node.type == "raw_string" else decode_ansi_c(text[2:-1]), quoted=True)
            return
        self._check_plain(text)
        if text.endswith("$") and self._source[node.end_byte : node.end_byte + 1] == b'"':
            self.unclear = 'it holds a $"…" that cannot be read'
        for escaped, plain in re.findall(r"\\(\n|.)|([^\\]+|\\)", text, re.DOTALL):
            if re.search(r"[\s&;|<>()]", plain):
                self.unclear = "it holds an operator that the grammar takes for text"
            if escaped != "\n":
                yield Piece(escaped or plain, quoted=bool(escaped))

    def _double_quoted(self, node: Node) -> Iterator[Piece]:
        at = node.start_byte + 1
        for child in node.named_children:
            if child.type != "string_content":
                yield self._quoted_text(at, child.start_byte)
                for piece in self._pieces(child):
                    yield piece._replace(quoted=True)
                at = child.end_byte
        yield self._quoted_text(at, node.end_byte - 1)

    def _quoted_text(self, start: int, end: int) -> Piece:
        text = self._source[start:end].decode("utf-8", "replace").replace("\\\n", "")
        self._check_plain(text)
        return Piece(re.sub(r'\\(["\\$`])', r"\1", text), quoted=True)

    def _parameter(self, node: Node) -> Piece:
        """`$x`, `${x}`, and `${x:-default}` as its default where `x` is not set."""
        name, *rest = [child for child in node.children if child.type not in ("$", "${", "}")] or [node]
        if not rest and name.type == "variable_name" and self._text(node).strip("${}") == (key := self._text(name)):
            return self._variable(key)
        if name.type == "subscript":
            self._visit_deeper(name.children)
        if self._text(node).endswith("@P}"):
            self.unclear = "it expands a value as a prompt, which runs the substitutions in it"
        if node.type == "simple_expansion" and name.start_byte > node.start_byte + 1:
            self.unclear = "it holds a $ that cannot be read"
        self._depth += 1
        default: list[Piece] = []
        if self._depth > MAX_DEPTH:
            self.unclear = "it is nested too deeply"
        elif rest and rest[0].type in (":-", "-", ":=", "="):
            default = [piece for child in rest[1:] for piece in self._pieces(child)]
        else:
            self._visit_deeper(rest)
            if name.type == "variable_name" and rest and rest[0].type in ("%", "%%", "/", "//", "^^", ",,", "@"):
                default = [self._variable(self._text(name))]  # a part of the value, or nearly it
        self._depth -= 1
        return Piece("".join(piece.text for piece in default), dynamic=True, expanded=True)

    def _variable(self, name: str) -> Piece:
        fixed = {"IFS": " ", "HOME": "~/", "PWD": "."}.get(name)
        word = self._variables.get(name, Word(fixed) if fixed else UNKNOWN)
        if self._separators_changed:
            word = word._replace(dynamic=True, listed=False)
        self._expandable_chars -= len(word.text)
        if self._expandable_chars < 0:
            self.unclear = "its variables grow too large"
            word = Word("", dynamic=True)
        return Piece(word.text, word.dynamic, expanded=True, listed=word.listed)

    def _substitution(self, node: Node, _piped: bool = False) -> Piece:
        """A nested command line: its commands count too, and what it prints is known only for a plain echo."""
        text = self._text(node)
        if text.startswith("`") and "\\" in text:  # one level of escapes is for the outer shell
            if _ARITHMETIC.search(text) or "${" in text:
                self.unclear = self.unclear or "it holds arithmetic in escaped backticks"
            commands = self._read_inner(re.sub(r"\\([$`\\])", r"\1", text[1:-1]))
        else:
            commands = self._visit_deeper(node.children)
        if len(commands) == 1 and not commands[0].redirects and node.type == "command_substitution":
            words = commands[0].words
            if words and words[0].text in ("echo", "printf") and not any(word.dynamic for word in words):
                shown = " ".join(word.text for word in words[1:] if not word.text.startswith("-"))
                if words[0].text == "printf" and ("%" in shown or len(words) > 2):
                    return Piece("", dynamic=True, expanded=True)
                return Piece(decode_ansi_c(shown), expanded=True)
            if [word.text for word in words] == ["pwd"]:
                return Piece(".", expanded=True)
        if node.type == "process_substitution":
            return Piece("/dev/fd/63")
        return Piece("", dynamic=True, expanded=True)

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
