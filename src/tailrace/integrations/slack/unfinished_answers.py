"""Answers that stay unfinished because the bot was put out of the channel, or the channel was archived: who asked is
told in a direct message, since nothing can be written where they wait."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from slack_sdk.errors import SlackApiError

from tailrace.delivery import port
from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.integrations.slack.blocks import message_body, metadata
from tailrace.integrations.slack.replies import code_of
from tailrace.integrations.slack.slash_commands import remember

log = logging.getLogger("tailrace.gateway")


class UnfinishedAnswers:
    """`call` makes a request of the Web API."""

    def __init__(self, call: Callable[..., Awaitable[dict[str, object]]]) -> None:
        self._call = call
        self._told: dict[str, str] = {}  # by thread: who was told

    async def tell(self, place: port.Place, code: str, bot: str) -> None:
        """Once for each thread. `code`: Slack's word for why nothing can be written in it. Slack takes a person's id
        for the direct conversation with them."""
        user = place.extra.get("user", "")
        if place.kind == "private" or not user or place.key in self._told:
            return
        remember(self._told, place.key, user)
        told = port.Send(f"unfinished.{place.key}", why_unfinished(code, place, bot))
        try:
            await self._call("chat.postMessage", channel=user, **message_body(told), **metadata(told.key))
        except (SlackApiError, *NO_ANSWER) as exc:
            reason = code_of(exc) if isinstance(exc, SlackApiError) else ""
            log.warning("slack: %s could not be told so (%s)", user, reason or type(exc).__name__)


def why_unfinished(code: str, place: port.Place, bot: str) -> str:
    """What became of the answer there, and what to do."""
    beginning = f"I could not finish my answer in <#{place.chat}>:"
    match code:
        case "is_archived":
            return f"{beginning} the channel is archived. Ask me here."
        case "not_in_channel" | "channel_not_found":
            advice = f"Ask me here, or type `/invite @{bot}` there and ask again."
            return f"{beginning} I am no longer in that channel. {advice}"
        case _:
            return f"{beginning} I cannot write there ({code}). Ask me here."
