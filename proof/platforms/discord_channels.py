"""What is in Discord's channels as their members see it: every message in every state that it was shown in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proof.platforms.budgets import Budget
from proof.platforms.history import ShownChat, ShownMessage, ShownState

MAX_CHARS = 2000
MAX_NONCE = 25
BOT_ID = 42
GUILD_ID = 9000
TEXT_CHANNEL, DM_CHANNEL, PUBLIC_THREAD, FORUM = 0, 1, 11, 15  # types of channels


class DiscordRefusal(Exception):
    """An error as Discord words it."""

    def __init__(self, status: int, code: int, message: str, errors: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"message": message, "code": code} | ({"errors": errors} if errors else {})


@dataclass
class DiscordMessage(ShownMessage[ShownState]):
    id: int
    author: int
    states: list[ShownState]
    nonce: str = ""
    deleted: bool = False
    fields: dict[str, Any] = field(default_factory=dict)  # more of the message object


@dataclass
class DiscordChannel(ShownChat[DiscordMessage]):
    """A channel of the server, a thread (`parent` is its channel) or a direct conversation (`user` is the other)."""

    BOT = BOT_ID
    id: int
    name: str = ""
    parent: int = 0
    user: int = 0
    archived: bool = False  # what is there cannot be changed; a new message opens it again
    locked: bool = False  # it is opened by moderators alone, and this bot is none
    forum: bool = False  # has posts, which are threads, and no messages
    overwrites: list[dict[str, Any]] = field(default_factory=list)  # of permissions
    messages: list[DiscordMessage] = field(default_factory=list)
    typing: list[float] = field(default_factory=list)

    @property
    def type(self) -> int:
        return DM_CHANNEL if self.user else PUBLIC_THREAD if self.parent else FORUM if self.forum else TEXT_CHANNEL

    def as_json(self) -> dict[str, Any]:
        described: dict[str, Any] = {"id": str(self.id), "type": self.type}
        if self.user:
            return described | {"recipients": [user_json(self.user)]}
        described |= {"name": self.name or "general", "guild_id": str(GUILD_ID), "position": 0}
        if self.parent:
            described |= {
                "parent_id": str(self.parent),
                "owner_id": str(BOT_ID),
                "message_count": len([message for message in self.messages if not message.deleted]),
                "member_count": 1,
                "rate_limit_per_user": 0,
                "thread_metadata": {
                    "archived": self.archived,
                    "auto_archive_duration": 60,
                    "archive_timestamp": "2026-01-01T00:00:00+00:00",
                },
            }
        else:
            described |= {"permission_overwrites": self.overwrites, "nsfw": False, "parent_id": None, "topic": None}
        return described

    def find(self, message_id: int) -> DiscordMessage:
        for message in self.messages:
            if message.id == message_id and not message.deleted:
                return message
        raise DiscordRefusal(404, 10008, "Unknown Message")

    def message_json(self, message: DiscordMessage) -> dict[str, Any]:
        described: dict[str, Any] = {
            "id": str(message.id),
            "channel_id": str(self.id),
            "author": user_json(message.author),
            "content": message.text,
            "timestamp": "2026-01-01T00:00:00+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            "components": [],
        }
        return described | ({"nonce": message.nonce} if message.nonce else {}) | message.fields

    def before(self, message_id: int, limit: int) -> list[dict[str, Any]]:
        """What was written before that message, the newest first."""
        shown = [message for message in self.messages if message.id < message_id and not message.deleted]
        return [self.message_json(message) for message in reversed(shown[-limit:])]


class Buckets:
    """Discord's rate limits: a window begins with its first request, and all of the budget is back when it ends."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._windows: dict[str, tuple[float, int]] = {}  # when it ends, how many it has had

    def reserve(self, bucket: str, now: float) -> tuple[float, dict[str, str]]:
        """How long to wait (0: taken), and the headers that say so."""
        ends, used = self._windows.get(bucket, (0.0, 0))
        if now >= ends:
            ends, used = now + self._budget.seconds, 0
        allowed = used < self._budget.count
        used += allowed
        self._windows[bucket] = ends, used
        headers = {
            "X-RateLimit-Limit": str(self._budget.count),
            "X-RateLimit-Remaining": str(self._budget.count - used),
            "X-RateLimit-Reset-After": f"{ends - now:.3f}",
            "X-RateLimit-Bucket": bucket.partition(":")[0],
        }
        return 0.0 if allowed else ends - now, headers


def user_json(user_id: int) -> dict[str, Any]:
    name = "tailrace" if user_id == BOT_ID else f"user{user_id}"
    described = {"id": str(user_id), "username": name, "discriminator": "0", "avatar": None, "global_name": None}
    return described | ({"bot": True} if user_id == BOT_ID else {})


def state_of(body: dict[str, Any], at: float) -> ShownState:
    """What the bot asked to be shown. Raises `DiscordRefusal` as Discord's validation does."""
    text = str(body.get("content", ""))
    if len(text) > MAX_CHARS:
        too_long = {"code": "BASE_TYPE_MAX_LENGTH", "message": f"Must be {MAX_CHARS} or fewer in length."}
        raise DiscordRefusal(400, 50035, "Invalid Form Body", {"content": {"_errors": [too_long]}})
    if not text.strip():
        raise DiscordRefusal(400, 50006, "Cannot send an empty message")
    rows = body.get("components") or []
    buttons = tuple((key["label"], key["custom_id"]) for row in rows for key in row["components"])
    if len(rows) > 5 or any(not 1 <= len(value) <= 100 for _, value in buttons):
        raise DiscordRefusal(400, 50035, "Invalid Form Body", {"components": {"_errors": [{"code": "INVALID"}]}})
    if len(str(body.get("nonce", ""))) > MAX_NONCE:
        raise DiscordRefusal(
            400, 50035, "Invalid Form Body", {"nonce": {"_errors": [{"code": "NONCE_TYPE_STRING_TOO_LONG"}]}}
        )
    return ShownState(text, buttons, at)
