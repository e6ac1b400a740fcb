"""What is in Slack's channels as their members see it: every message in every state that it was shown in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from proof.platforms.history import ShownChat, ShownMessage, ShownState

MAX_MARKDOWN = 12_000
MAX_TEXT = 40_000
MAX_BLOCKS = 50
MAX_VALUE = 2000
BOT_USER, BOT_ID, TEAM = "U0BOT", "B0BOT", "T0TEAM"


class SlackRefusal(Exception):
    """An error in Slack's words. Slack answers with 200 and `"ok": false`, but for rate limits."""

    def __init__(self, code: str, *, retry_after_s: int = 0) -> None:
        super().__init__(code)
        self.code, self.retry_after_s = code, retry_after_s


@dataclass(frozen=True)
class SlackState(ShownState):
    """`cards`: id, title and status."""

    cards: tuple[tuple[str, str, str], ...] = ()
    streaming: bool = False
    markup: bool = True


@dataclass
class SlackMessage(ShownMessage[SlackState]):
    ts: str
    author: str
    thread_ts: str
    states: list[SlackState]
    metadata: dict[str, Any] = field(default_factory=dict)
    opened_at: float = 0.0
    deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        described: dict[str, Any] = {"type": "message", "ts": self.ts, "user": self.author, "text": self.text}
        described |= {"bot_id": BOT_ID} if self.author == BOT_USER else {}
        described |= {"thread_ts": self.thread_ts} if self.thread_ts else {}
        return described | ({"metadata": self.metadata} if self.metadata else {})

    def append(self, chunks: list[dict[str, Any]], at: float, *, ends: bool = False) -> None:
        """Adds to a stream. Raises `SlackRefusal`."""
        state = self.state
        for chunk in chunks:
            match chunk:
                case {"type": "markdown_text", "text": str(text)} if text:
                    state = replace(state, text=state.text + text)
                case {"type": "task_update", "id": str(), "title": str(), "status": str(status)} if status in _CARDS:
                    state = replace(state, cards=_with_card(state.cards, chunk))
                case _:
                    raise SlackRefusal("invalid_chunks")
        if len(state.text) > MAX_MARKDOWN:
            raise SlackRefusal("msg_too_long")
        self.states.append(replace(state, streaming=not ends, at=at))


_CARDS = ("pending", "in_progress", "complete", "error")


def _with_card(cards: tuple[tuple[str, str, str], ...], chunk: dict[str, Any]) -> tuple[tuple[str, str, str], ...]:
    card = (chunk["id"], chunk["title"], chunk["status"])
    if any(known[0] == card[0] for known in cards):
        return tuple(card if known[0] == card[0] else known for known in cards)
    return (*cards, card)


@dataclass
class SlackChannel(ShownChat[SlackMessage]):
    BOT = BOT_USER
    id: str
    archived: bool = False
    joined: bool = True  # the bot is a member
    whispers: list[tuple[str, str]] = field(default_factory=list)  # who gave a command, and what they alone were told
    messages: list[SlackMessage] = field(default_factory=list)
    statuses: list[tuple[str, str]] = field(default_factory=list)  # thread and what it said

    @property
    def private(self) -> bool:
        return self.id.startswith("D")

    def find(self, ts: str) -> SlackMessage:
        for message in self.messages:
            if message.ts == ts and not message.deleted:
                return message
        raise SlackRefusal("message_not_found")

    def check_thread(self, thread_ts: str) -> None:
        """Raises `SlackRefusal` for a thread whose first message is gone."""
        if thread_ts and not any(m.ts == thread_ts and not m.deleted for m in self.messages):
            raise SlackRefusal("thread_not_found")


def state_of(params: dict[str, Any], at: float) -> SlackState:
    """What `chat.postMessage` and `chat.update` ask to be shown. Raises `SlackRefusal`."""
    blocks = params.get("blocks")
    if not isinstance(blocks, list) or not blocks:
        raise SlackRefusal("no_text" if not params.get("text") else "invalid_blocks")
    if len(params.get("text", "")) > MAX_TEXT:
        raise SlackRefusal("msg_too_long")
    if len(blocks) > MAX_BLOCKS:
        raise SlackRefusal("invalid_blocks")
    texts: list[str] = []
    buttons: list[tuple[str, str]] = []
    markup = True
    for block in blocks:
        match block:
            case {"type": "markdown", "text": str(text)} if text:
                texts.append(text)
            case {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}:
                markup = False
                texts += [element["text"] for element in elements]
            case {"type": "actions", "elements": list(elements)} if len(elements) <= 25:
                buttons += [(element["text"]["text"], element["value"]) for element in elements]
            case _:
                raise SlackRefusal("invalid_blocks")
    if sum(map(len, texts)) > MAX_MARKDOWN:
        raise SlackRefusal("msg_blocks_too_long")
    if any(not 1 <= len(value) <= MAX_VALUE for _, value in buttons):
        raise SlackRefusal("invalid_blocks")
    return SlackState("\n".join(texts), tuple(buttons), markup=markup, at=at)
