"""Socket Mode's envelopes as updates. Pure: no I/O."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec

from tailrace.app.slash_commands import command_in, is_unknown_command, with_command_mark
from tailrace.delivery.port import Attachment, ButtonPressed, MessageReceived, Place, Quoted, Sender, Update

# `/tailrace stop` is /stop, for workspaces where the short names are taken.
OWN_COMMAND = "/tailrace"
_SPOKEN = (None, "file_share", "thread_broadcast", "me_message")  # subtypes of messages that people write
_PART_CHARS = 3_900  # clients cut a longer message at about 4,000
# None looks beyond the next "<", which Slack escapes: a text of nothing but beginnings is read once.
_LINK = re.compile(r"<(?:mailto:|tel:|(?=https?:))([^<|>]+)(?:\|([^<>]*))?>")
_NAMED = re.compile(r"<([#@])([^<|>]+)\|([^<>]*)>")
_TO_OTHERS = re.compile(r"\s*<(?:@|!subteam\^|!here\b|!channel\b|!everyone\b)")
_SPECIAL = re.compile(r"<!([^<|>]+)(?:\|([^<>]*))?>")  # <!here>, <!subteam^S1|@devs>, <!date^1700000000^{date}|14 Nov>


class BotAccount(msgspec.Struct, frozen=True):
    """The bot in its workspace: its ids, and the name that people type after "@"."""

    user_id: str
    bot_id: str = ""
    team_id: str = ""
    name: str = ""

    def is_named_in(self, text: str) -> bool:
        return f"<@{self.user_id}>" in text

    def began_thread_of(self, event: dict[str, Any]) -> bool:
        return event.get("parent_user_id") == self.user_id

    def unnamed(self, text: str) -> str:
        """The text without the mentions of the bot: at the beginning with the punctuation behind them, elsewhere with
        the space before them. A run of blanks is looked at from its beginning alone: a stranger may send a long one."""
        mention = re.escape(f"<@{self.user_id}>")
        return re.sub(rf"(?<![ \t])[ \t]*{mention}", "", re.sub(rf"\A\s*(?:{mention}[\s,:;]*)+", "", text)).strip()


def parse_envelope(kind: str, payload: dict[str, Any], me: BotAccount) -> Update | None:
    """The envelope as an update; None for one that is not a message, a button or a command of a person."""
    match kind, payload:
        case "events_api", {"event": {"type": "message" | "app_mention", "channel": str(), "ts": str()} as event}:
            return _message(event, str(payload.get("team_id") or ""), me)
        case "interactive", {"type": "block_actions", "actions": [dict() as pressed, *_]}:
            return _button(payload, pressed)
        case "slash_commands", {"command": str(command), "channel_id": str(), "user_id": str()}:
            return _command(command, payload)
        case _:
            return None


def _message(event: dict[str, Any], team: str, me: BotAccount) -> MessageReceived | None:
    user = event.get("user")
    if event.get("subtype") not in _SPOKEN or event.get("bot_id") or not user or user == me.user_id:
        return None
    written = str(event.get("text") or "")
    forwarded = [one for one in event.get("attachments") or () if one.get("is_share") or one.get("is_msg_unfurl")]
    files = event.get("files") or ()
    if not (written or files or forwarded):
        return None
    channel, ts = event["channel"], event["ts"]
    named = me.is_named_in(written)
    replied = me.began_thread_of(event)
    private = event.get("channel_type") == "im" or channel.startswith("D")
    to_others = not (private or named) and _TO_OTHERS.match(written) is not None
    return MessageReceived(
        update_id=f"{channel}:{ts}",  # a mention comes twice, as a message and as a mention, with ids of their own
        place=_place(
            channel, str(event.get("thread_ts") or ts), str(user), str(event.get("team") or team), private=private
        ),
        sender=Sender(str(user)),
        text=readable(me.unnamed(written) if named else written),
        attachments=tuple(map(file_of, files)),
        quoted=tuple(map(_forwarded, forwarded)),
        addressed=private or named or (replied and not to_others),
        at_limit=len(written) >= _PART_CHARS,
        message_id=ts,
        to_others=to_others,
    )


def _button(payload: dict[str, Any], pressed: dict[str, Any]) -> ButtonPressed | None:
    channel = (payload.get("channel") or {}).get("id")
    user = (payload.get("user") or {}).get("id")
    message = payload.get("message") or {}
    if not channel or not user or not isinstance(pressed.get("value"), str):
        return None
    ts = str(message.get("ts") or "")
    return ButtonPressed(
        update_id=f"{channel}:{ts}:{user}:{pressed.get('action_ts')}",
        place=_place(channel, str(message.get("thread_ts") or ts), user, (payload.get("team") or {}).get("id")),
        sender=Sender(user, str((payload.get("user") or {}).get("name") or "")),
        value=pressed["value"],
        message_id=ts,
    )


def _command(command: str, payload: dict[str, Any]) -> MessageReceived:
    """Slack says neither in which thread a command was given nor gives it an id; `trigger_id` serves as one."""
    place = _place(payload["channel_id"], "", payload["user_id"], payload.get("team_id"))
    text = readable(str(payload.get("text") or ""))  # escaped where the app's settings say so
    asked = with_command_mark(text) if command == OWN_COMMAND else f"{command} {text}".strip()
    user = payload["user_id"]
    return MessageReceived(
        update_id=f"command:{payload.get('trigger_id')}",
        place=place,
        sender=Sender(user, str(payload.get("user_name") or "")),
        text=asked if asked.strip("/") else "/help",
        addressed=True,
    )


def is_bare_question(message: MessageReceived) -> bool:
    """Whether it is a question that Slack does not show: text after a slash command that names no command."""
    return not (message.place.thread or command_in(message.text) or is_unknown_command(message.text))


def _place(channel: str, thread: str, user: str, team: str | None, *, private: bool = False) -> Place:
    extra = {"user": user, "team": team or ""}
    return Place("slack", channel, thread, "private" if private or channel.startswith("D") else "group", extra)


def file_of(file: dict[str, Any]) -> Attachment:
    """A file of another workspace comes without an address (`file_access: check_file_info`): it is named."""
    size = file.get("size")
    return Attachment(
        ref=str(file.get("url_private_download") or file.get("url_private") or ""),
        name=str(file.get("name") or "a file without an address"),
        media_type=str(file.get("mimetype") or ""),
        size_bytes=size if isinstance(size, int) else None,
    )


def _forwarded(message: dict[str, Any]) -> Quoted:
    """A message that the person shares in theirs."""
    text = readable(str(message.get("text") or message.get("fallback") or ""))
    author = readable(str(message.get("author_name") or ""))
    return Quoted(author, text, tuple(map(file_of, message.get("files") or ())), kind="forward")


def readable(text: str) -> str:
    """Slack's own escapes undone: links as their address, behind words of their own where they have some, people and
    channels as their name where it is told."""
    text = _NAMED.sub(lambda m: f"{m[1]}{m[3] or m[2]}", _LINK.sub(_link, text))
    return html.unescape(_SPECIAL.sub(lambda m: m[2] or f"@{m[1]}", text))


def _link(link: re.Match[str]) -> str:
    """Slack itself gives an address that was typed its beginning or its end as words."""
    address, words = link[1], link[2] or ""
    return address if words.rstrip("…/") in address else f"{words} ({address})"
