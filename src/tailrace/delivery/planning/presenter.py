"""The Markdown of everything in a chat that is not the answer: tools, comments, notices, questions, failures.

Pure: events in, Markdown out, the same for every platform. Never knows when or whether a text is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import json

from tailrace import events
from tailrace.delivery.planning.failure_advice import guest_advice
from tailrace.delivery.port import Button, Card, Unit
from tailrace.delivery.text.balance import balance
from tailrace.delivery.text.split import units
from tailrace.messages import ENDED_BY_PROVIDER, JsonObject, ToolFile
from tailrace.runs.approval_words import forget_command, unanswered_words
from tailrace.runs.signals import NEWER_MESSAGE

Chrome = Literal["lines", "verbose", "none"]

MAX_PREVIEW = 160  # characters of a tool's preview on one line
MAX_OUTPUT = 1000  # characters of a call that is shown in full, the last ones; of its arguments the first half as many
DECISIONS: dict[events.Decision, str] = {
    "once": "Approve once",
    "session": "Approve for session",
    "always": "Always",
    "deny": "Deny",
}
_OUTCOMES: dict[events.Decision, str] = {
    "once": "✅ Approved once",
    "session": "✅ Approved for this session",
    "always": "✅ Approved always",
    "deny": "🚫 Denied",
}
MAX_QUOTED = 4000  # characters of a message that another one replies to
ANSWER_BY_COMMAND = "Answer /approve, /approve session, /approve always or /deny."  # follows an open question
REPLACED = "⏹ Interrupted by a newer message."  # follows a text that a newer message of its chat has cut
STOPPED_ELSEWHERE = "⏹ Stopped from elsewhere."  # follows a text that was stopped by another surface
SUSPENDED = "⏸ Interrupted by a restart; this goes on afterwards."  # follows a text that a shutdown has cut
UNSHOWN = "⚠️ A part of this answer could not be shown here. Ask me to repeat it, perhaps shorter or in plain text."
CUT_OFF = "⚠️ I was restarted while I sent this answer. If it is not above or ends early, ask me to repeat it."
MOVED = "ℹ️ The thread is gone, so the answer is here."  # precedes an answer whose thread is gone (G85)
FILE_LEFT_OUT: Final = "file_left_out"  # the notice about a tool's file that is too large for the log
_BACKTICKS = re.compile("`+")


def restart_notice() -> events.GatewayNotice:
    return events.GatewayNotice("restart", "⏸ Restarting; this goes on afterwards.")


def long_run_notice(silent_s: float, activity: str) -> events.GatewayNotice:
    """`activity` is what the run does, in Markdown."""
    minutes = int(silent_s // 60)
    return events.GatewayNotice("long_run", f"⏳ Still working, {minutes} min: {activity}", {"minutes": minutes})


class Presenter:
    """Each method returns Markdown, or None to show nothing.

    `chrome` is how much is shown of tools: a line each, arguments and output too, or nothing. `mark` is what a person
    types before a command's name. `platform` is the chat's: who stops an answer there sees the reply to that."""

    def __init__(self, chrome: Chrome = "lines", *, mark: str = "/", platform: str = "") -> None:
        self.chrome: Chrome = chrome
        self._mark = mark
        self._people_here = f"{platform}:"

    def tool(self, tool: events.ToolSoFar, output: str = "", most: int = MAX_OUTPUT) -> str:
        """The line of one tool, while it runs and after it has ended. `output`: what it gave so far, or at its end."""
        mark = {None: "⏳", True: "✓", False: "✗"}[tool.ok]
        shown = [f"{mark} **{_plain(tool.tool_name)}**"]
        in_full = self.chrome == "verbose" and tool.args is not None
        if not in_full and (preview := preview_line(tool.preview or "", MAX_PREVIEW)):
            shown.append(code_span(preview))
        if tool.steps:  # of the agent that the call is
            latest = code_span(preview_line(tool.steps[-1], MAX_PREVIEW))
            shown.append(f"▸ {latest}" if tool.ok is None else f"· {len(tool.steps)} steps")
        if tool.ok or (tool.ok is False and tool.duration):  # one that was denied or interrupted has no duration
            shown.append(f"({tool.duration:.1f} s)")
        if self.chrome == "verbose":
            blocks = _arguments(tool.args or {}, most // 2), output[-most:] if most else ""
            return "\n".join([" ".join(shown), *(fenced(block) for block in blocks if block.strip())])
        if tool.ok is False and (why := preview_line(output.rpartition("\n")[2], MAX_PREVIEW)):
            shown.append(code_span(why))
        return " ".join(shown)

    def tool_lines(self, tools: Iterable[events.ToolSoFar], outputs: Mapping[int, str], limit: int, unit: Unit) -> str:
        """A line for each tool; the latest ones where all do not fit into one message."""
        shown, room = tools if self.chrome != "none" else (), limit - 64
        lines = [self._fitting_tool(tool, outputs.get(tool.index, ""), room, unit) for tool in shown]
        if units("\n".join(lines), unit) <= room:
            return "\n".join(lines)
        kept: list[str] = []
        for line in reversed(lines):
            room -= units(line, unit) + 1
            if room < 0:
                break
            kept.append(line)
        return "\n".join(["…", *reversed(kept)])

    def _fitting_tool(self, tool: events.ToolSoFar, output: str, room: int, unit: Unit) -> str:
        """With less of its blocks where the platform counts more units than characters, or a fence is long."""
        most = MAX_OUTPUT
        while units(shown := self.tool(tool, output, most), unit) > room and most:
            most //= 2
        return shown

    def file(self, file: ToolFile) -> str:
        """The line that stands for a file where it cannot be uploaded."""
        kind = re.sub(r"[^\w.+/-]", "", file.media_type) or "a file"
        return f"📎 {code_span(preview_line(file.name, MAX_PREVIEW))} ({kind}, {_size(file)})"

    def activity(self, tool: events.ToolSoFar | None, *, writing: bool) -> str:
        """What a run does that shows nothing new."""
        if tool is not None and self.chrome != "none":
            preview = preview_line(tool.preview or "", MAX_PREVIEW)
            return f"running {code_span(preview) if preview else _plain(tool.tool_name)}"
        if tool is not None:
            return "using a tool"
        return "writing the answer" if writing else "waiting for the model"

    def card(self, tool: events.ToolSoFar) -> Card:
        """The tool as a card of a native stream."""
        title = preview_line(f"{tool.tool_name} {tool.preview or ''}".strip(), MAX_PREVIEW)
        return Card(f"tool-{tool.index}", title, "running" if tool.ok is None else "done" if tool.ok else "failed")

    def notice(self, kind: str, text: str, extra: JsonObject) -> str:
        if kind == FILE_LEFT_OUT:  # whatever its name is
            name = str(extra.get("name", ""))
            return f"📎 {code_span(preview_line(name, MAX_PREVIEW))}{text.removeprefix(name)}"
        return text

    def steered(self, steer: events.SteerSoFar) -> str | None:
        """What became of a message for the answer under way; several that were read at once have one line."""
        if steer.state == "committed":
            return "↪ Your message is taken up."
        is_lost = steer.state == "returned" and steer.reason != "taken_back"
        return "↩ The answer ended before it took your message up. Send it again." if is_lost else None

    def long_tool(self, tool_name: str) -> str:
        return f"💡 {_plain(tool_name) or 'the tool'} is taking a while."

    def approval(self, approval: events.ApprovalSoFar, *, buttons: bool) -> str:
        """The question with the complete command (J111), and the decision."""
        asked = approval.asked
        lines = [f"⚠️ **{_plain(asked.tool_name)}** asks for approval" + (f": {asked.reason}" if asked.reason else "")]
        lines += ["", fenced(asked.command), ""]
        if asked.scope:
            lines += [code_span(asked.scope), ""]
        if approval.decision is None and asked.expires_at:
            stands_s = asked.expires_at - asked.asked_at
            words = f"{stands_s / 60:.0f} min" if stands_s >= 120 else f"{stands_s:.0f} s"
            lines += [f"Answer within {words}.", ""]
        if approval.decision is not None:
            lines.append(self.outcome(approval) or "")
        elif not buttons:
            lines.append(self._with_mark(ANSWER_BY_COMMAND))
        return "\n".join(lines).rstrip()

    def outcome(self, approval: events.ApprovalSoFar) -> str | None:
        """The decision alone; None while the question is open."""
        if approval.decision is None:
            return None
        if unanswered := unanswered_words(approval.asked, approval.by):
            return f"⌛ Not executed: {unanswered}"
        if approval.decision == "always":
            return f"{_OUTCOMES['always']}; {code_span(forget_command(approval.asked))} takes it back"
        why = f": {code_span(preview_line(approval.reason, MAX_PREVIEW))}" if approval.reason else ""
        return _OUTCOMES[approval.decision] + why

    def approval_buttons(self, approval: events.ApprovalSoFar) -> tuple[Button, ...]:
        if approval.decision is not None:
            return ()
        return tuple(Button(label, f"{approval.asked.approval_id}:{name}") for name, label in DECISIONS.items())

    def answer(self, finished: events.RunFinished) -> str:
        """The final text of the answer. One that was cut by a newer message, or from elsewhere, says so, outside of any
        open code block."""
        output = finished.output
        cut = REPLACED if _is_replaced(finished) else STOPPED_ELSEWHERE if self._stopped_elsewhere(finished) else ""
        return f"{balance(output).rstrip()}\n\n{cut}" if cut and output.strip() else output

    def _stopped_elsewhere(self, finished: events.RunFinished) -> bool:
        """Whether the chat cannot know who has stopped the run: the page, a terminal, another program."""
        error = finished.error
        if finished.status != "stopped" or error is None or _is_replaced(finished):
            return False
        return not error.by.startswith(self._people_here)

    def _with_mark(self, text: str) -> str:
        """A text of our own, in which a slash behind a blank begins a command, as commands are typed in this chat."""
        return text.replace(" /", f" {self._mark}")

    def ending(self, finished: events.RunFinished, *, shown: bool, after_tools: bool = False) -> str | None:
        """A note about how the run ended, below its answer. `shown`: there is an answer. `after_tools`: the last that
        it did was to call tools, and their lines alone would look like a failure."""
        match finished.status:
            case "failed":
                return self._failure(finished.error) if finished.error else "⚠️ Something went wrong."
            case "incomplete" if not shown or _ended_by_provider(finished):
                return f"⚠️ {finished.error.message}" if finished.error else "⚠️ The answer was cut off."
            case "completed" if not shown:
                return "The model gave no answer."
            case "stopped" if not shown and self._stopped_elsewhere(finished):
                return STOPPED_ELSEWHERE
            case "stopped" if not shown and after_tools and _is_replaced(finished):
                return REPLACED
            case _:
                return None

    def _failure(self, failure: events.RunFailure) -> str:
        advice = self._with_mark(guest_advice(failure))
        return "\n".join(filter(None, (f"⚠️ {failure.message}", advice)))


def _is_replaced(finished: events.RunFinished) -> bool:
    """Whether a newer message of the same chat has ended the run."""
    return finished.error is not None and finished.error.code == NEWER_MESSAGE


def _ended_by_provider(finished: events.RunFinished) -> bool:
    """The text stops in mid-sentence and does not say why, as one does that was cut or has used up a budget."""
    return finished.error is not None and finished.error.message in ENDED_BY_PROVIDER.values()


def _arguments(args: JsonObject, most: int) -> str:
    values = ((name, value if isinstance(value, str) else json.encode(value).decode()) for name, value in args.items())
    text = "\n".join(f"{name}: {value}" for name, value in values)
    return text if len(text) <= most else text[: most - 1] + "…" if most else ""


def preview_line(text: str, limit: int) -> str:
    """The text without line ends and controls, cut at `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def shortened(text: str) -> str:
    """What a reply quotes: a long text without its middle, and how much of it is left out."""
    if (left_out := len(text) - MAX_QUOTED) <= 0:
        return text
    half = MAX_QUOTED // 2
    return f"{text[:half]}\n[… {left_out} characters are left out …]\n{text[-half:]}"


def quotation(text: str) -> str:
    """The text as a quotation, each line marked: whatever it says, it cannot be taken for what stands below it."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def code_span(text: str) -> str:
    """The text as inline code, whatever backticks it contains (CommonMark 6.1)."""
    marker = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marker}{pad}{text}{pad}{marker}"


def fenced(text: str, info: str = "") -> str:
    """The text as a code block with a fence longer than any in the text (J111)."""
    marker = "`" * max(3, _longest_run(text) + 1)
    return f"{marker}{info}\n{text}\n{marker}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def _size(file: ToolFile) -> str:
    return f"{len(file.data)} bytes" if len(file.data) < 10_000 else f"{len(file.data) // 1000} kB"


def _plain(name: str) -> str:
    """A tool's name without characters that are markup."""
    return re.sub(r"[^\w.:-]", "", name)
