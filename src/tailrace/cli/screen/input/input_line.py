"""What the user types: the buffer, its keys, completion, and long pastes that are folded to one mark.

While an approval waits, keys belong to its menu; the message that was being typed is put aside and comes back. A list
of commands opens with "/", one of files with "@": the arrows pick from it. Knows no run and draws nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from tailrace.cli.screen.input.approval_menu import ApprovalMenu
from tailrace.cli.screen.input.choice_list import Choice, ChoiceList
from tailrace.events import Decision

FOLDED_LINES: Final = 6  # a paste of so many lines is folded
FOLDED_CHARS: Final = 1000


class TypedLine(NamedTuple):
    """What was entered. `typed` is the same with long pastes folded."""

    text: str
    typed: str


class Completion(NamedTuple):
    """What Tab completes: the commands, and by `words` a word that begins with "@"."""

    commands: Iterable[Choice]
    words: Callable[[str], list[str]]


class InputListener(Protocol):
    """Receives the user's input."""

    def entered(self, line: TypedLine) -> None:
        """The user pressed Enter."""

    def interrupted(self) -> None:
        """Ctrl-C."""

    def escaped(self) -> None:
        """Esc, where it closes nothing."""

    def leave(self) -> None:
        """Ctrl-D."""

    def approval_answered(self, decision: Decision, reason: str) -> None:
        """The open approval; `reason` of a denial, in the user's words."""

    def expand_tool(self) -> None:
        """Ctrl-O."""


class FoldedTexts:
    """Long texts, by the marks that stand for them in the line."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def mark_for(self, text: str) -> str:
        lines = text.rstrip("\n").count("\n") + 1
        what = f"{lines} lines pasted" if lines > 1 else f"{len(text)} characters pasted"
        mark, number = f"[{what}]", 2
        while self._texts.setdefault(mark, text) != text:
            mark, number = f"[{what}, {number}]", number + 1
        return mark

    def unfolded(self, text: str) -> str:
        """In one pass: a text may hold the mark of another one, as what was copied from this screen does."""
        if not self._texts:
            return text
        return re.sub("|".join(map(re.escape, self._texts)), lambda found: self._texts[found[0]], text)


class InputLine:
    """The line below the transcript."""

    def __init__(
        self, listener: InputListener, menu: ApprovalMenu, *, history: History, completion: Completion
    ) -> None:
        self._listener = listener
        self._menu = menu
        self._commands = sorted(completion.commands)
        self._words = completion.words
        self.list = ChoiceList()
        self._recalls = False  # the line is an earlier one: the arrows look for others
        self._draft: str | None = None  # the message that an approval has put aside
        self.typed_ahead = False  # lines came before the screen was there: the terminal has made Ctrl-J of their Enter
        self._texts = FoldedTexts()
        self.buffer = Buffer(history=history, multiline=True)
        self.buffer.on_text_changed += lambda _: self._changed()
        self.buffer.on_cursor_position_changed += lambda _: self.list.offer(self.list.choices if self._at_end() else ())

    def follow_menu(self) -> None:
        """An approval takes the line; the message comes back afterwards, and nothing else does. Called before each key
        and each draw, so that no key falls between what is asked and what is shown."""
        if self._menu.asked is not None and self._draft is None:
            self._draft = self.buffer.text
            self.buffer.reset()
        elif self._menu.asked is None and self._draft is not None:
            draft, self._draft = self._draft, None
            self.buffer.reset(Document(draft))

    def prompt(self) -> tuple[str, str]:
        """The style and the text before the line."""
        if self._menu.gives_reason:
            return "fg:ansiyellow bold", "why? "
        return ("fg:ansiyellow", "") if self._menu.asked is not None else ("fg:ansicyan bold", "❯ ")

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────

    def bindings(self) -> KeyBindings:
        menu = self._menu
        chooses = Condition(lambda: menu.asked is not None and not menu.gives_reason)
        explains = Condition(lambda: menu.gives_reason)
        armed = chooses & Condition(lambda: menu.is_armed)
        late = Condition(lambda: menu.asked is None and menu.has_rest)
        empty = Condition(lambda: not self.buffer.text)
        lists = Condition(lambda: menu.asked is None and bool(self.list.choices))
        picks = lists & Condition(lambda: not self._recalls)
        is_asked = Condition(lambda: menu.asked is None and self.list.is_question)
        keys = KeyBindings()
        keys.add("enter")(self._enter)
        keys.add("escape", "enter", filter=~chooses & ~explains)(_new_line)
        keys.add("c-j", filter=~chooses)(_new_line)
        keys.add("c-j", filter=~chooses & Condition(lambda: self.typed_ahead))(self._enter)
        keys.add("tab")(self._complete)
        keys.add("up")(lambda event: self._recall(event.current_buffer.auto_up))
        keys.add("down")(lambda event: self._recall(event.current_buffer.auto_down))
        keys.add("up", filter=picks)(lambda _: self.list.move(-1))
        keys.add("down", filter=picks)(lambda _: self.list.move(1))
        for key in ("c-c", "<sigint>"):
            keys.add(key)(lambda _: self._listener.interrupted())
        keys.add("c-d", filter=empty)(lambda _: self._listener.leave())
        keys.add("c-z")(_nothing)  # a stopped process would hold its run until its lease is over
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        keys.add("c-o")(lambda _: self._listener.expand_tool())
        keys.add(Keys.BracketedPaste)(self._paste)
        for key in (Keys.Any, "enter"):
            keys.add(key, filter=late)(self._type_late)
            keys.add(key, filter=chooses)(self._choose)
        keys.add("enter", filter=explains)(self._explain)
        keys.add("escape", filter=explains)(self._back)
        keys.add("escape", filter=~chooses & ~explains | armed)(lambda _: self._listener.escaped())
        keys.add("escape", filter=lists)(lambda _: self.list.offer(()))  # until another key is typed
        for key in (Keys.Any, Keys.BracketedPaste, "tab"):
            keys.add(key, filter=is_asked)(_nothing)
        keys.add("enter", filter=is_asked)(lambda _: self.list.settle(self.list.marked.value))
        for key in ("escape", "c-c", "c-d"):
            keys.add(key, filter=is_asked)(lambda _: self.list.settle(None))
        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        if self.list.choices and self.list.was_moved:
            picked = self.list.marked
            self._put(picked.value + " " * (picked.takes_more and not picked.value.endswith("/")))
            if picked.takes_more:
                return
        text = event.current_buffer.text
        if text.endswith("\\"):  # a continued line
            event.current_buffer.delete_before_cursor()
            _new_line(event)
            return
        whole = self._texts.unfolded(text)
        if whole.strip():
            with contextlib.suppress(OSError):  # the disk is full; the message itself is sent
                event.current_buffer.history.append_string(whole)
        event.current_buffer.reset()
        self._listener.entered(TypedLine(whole, text))

    def _choose(self, event: KeyPressEvent) -> None:
        match self._menu.press(event.data):
            case "answer" if self._menu.decision is not None:
                self._listener.approval_answered(self._menu.decision, "")
            case "draft" if event.data.isprintable():
                self._draft = (self._draft or "") + event.data
            case _:
                pass

    def _changed(self) -> None:
        self._recalls = False
        self.list.offer(self._offered() if self._menu.asked is None and self._at_end() else ())
        if self._menu.asked is None:
            self._menu.key_was_pressed()

    def _recall(self, look: Callable[[], None]) -> None:
        look()
        self._recalls = True

    def _type_late(self, event: KeyPressEvent) -> None:
        if self._menu.swallows(event.data):
            return
        if event.data != "\r":
            event.current_buffer.insert_text(event.data)
        else:
            self._enter(event)

    def _explain(self, event: KeyPressEvent) -> None:
        reason = event.current_buffer.text.strip()
        event.current_buffer.reset()
        self._menu.gives_reason, self._menu.decision = False, "deny"
        self._listener.approval_answered("deny", reason)

    def _back(self, event: KeyPressEvent) -> None:
        event.current_buffer.reset()
        self._menu.back()

    # ── pastes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _paste(self, event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        if self._menu.asked is None or self._menu.gives_reason:
            event.current_buffer.insert_text(self._folded(text))
        else:
            self._draft = (self._draft or "") + self._folded(text)

    def _folded(self, text: str) -> str:
        is_short = text.rstrip("\n").count("\n") + 1 < FOLDED_LINES and len(text) < FOLDED_CHARS
        return text if is_short else self._texts.mark_for(text)

    # ── completion ───────────────────────────────────────────────────────────────────────────────────────────

    def _offered(self) -> list[Choice]:
        """What the text may become: a command, or the same with the name of a file; nothing where it is one already."""
        typed = self.buffer.text
        word = typed[max(typed.rfind(" "), typed.rfind("\n")) + 1 :]
        if word.startswith("@"):
            names, before = self._words(word), typed.removesuffix(word)
            found = [Choice(before + name, name, takes_more=True) for name in names]
        else:
            found = [each for each in self._commands if typed and each.value.startswith(typed)]
        return found if [each.value for each in found] != [typed] else []

    def _complete(self, _event: KeyPressEvent) -> None:
        found = [self.list.marked.value] if self.list.was_moved else [each.value for each in self.list.choices]
        if found:
            whole = os.path.commonprefix(found)  # noqa: RUF071 - by character
            self._put(whole + " " * (len(found) == 1 and not whole.endswith("/")))

    def _at_end(self) -> bool:
        return self.buffer.document.is_cursor_at_the_end  # inside the line nothing is completed

    def _put(self, text: str) -> None:
        """In the place of the whole line, with the cursor at its end."""
        self.buffer.delete_before_cursor(self.buffer.cursor_position)
        self.buffer.insert_text(text)


def _nothing(event: KeyPressEvent) -> None:
    """The key is taken, so that it does not become text."""


def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)
