"""Answers to interactions. Discord says "the application did not respond" where none comes within three seconds.

Each is acknowledged when it arrives, and answered once it was handled. Never knows what the answer says.
"""

from __future__ import annotations

import logging

from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.rest import RestClient

log = logging.getLogger("tailrace.integrations.discord")

SUPPRESS_EMBEDS, EPHEMERAL, SUPPRESS_NOTIFICATIONS = 1 << 2, 1 << 6, 1 << 12  # message flags
NO_MENTIONS: dict[str, list[str]] = {"parse": []}  # a text sends no notification, whatever names it has
_ANSWER_LATER, _UPDATE_LATER = 5, 6  # types of answers to an interaction
_ACKNOWLEDGED = 40060  # the error code of a second answer


async def acknowledge(rest: RestClient, interaction: discord.Interaction, flags: int) -> None:
    """`flags` are those of the message that will answer a command."""
    path = f"/interactions/{interaction.id}/{interaction.token}/callback"
    is_command = interaction.type == discord.InteractionType.application_command
    later = {"type": _ANSWER_LATER, "data": {"flags": flags}} if is_command else {"type": _UPDATE_LATER}
    await _request(rest, "POST", path, later)


async def answer(rest: RestClient, interaction: discord.Interaction, content: str, flags: int) -> None:
    """Answers a command, or the person who pressed a button."""
    told = {"content": content, "flags": flags, "allowed_mentions": NO_MENTIONS}
    webhook = f"/webhooks/{interaction.application_id}/{interaction.token}"
    if interaction.type == discord.InteractionType.application_command:
        await _request(rest, "PATCH", f"{webhook}/messages/@original", told)
    else:
        await _request(rest, "POST", webhook, told)


async def _request(rest: RestClient, method: str, path: str, body: object) -> None:
    try:
        response = await rest.request(method, path, body)
    except NO_ANSWER as exc:
        log.info("an interaction could not be confirmed: %s", exc)
        return
    error = response.decoded if not response.ok else None
    if not response.ok and (error is None or error.code != _ACKNOWLEDGED):  # sent a second time after a lost connection
        log.info("an interaction could not be confirmed: HTTP %d", response.status)
