"""Who the bot is, and what its application lacks: its token, the message content intent, a server.

Asks the REST API alone. What the gateway says of the same is in `gateway.explain`.
"""

from __future__ import annotations

import msgspec

from tailrace.errors import PlatformError
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.integrations.discord.gateway import NO_MESSAGE_CONTENT
from tailrace.integrations.discord.rest import RestBody, RestClient, RestResponse

_MESSAGE_CONTENT = 1 << 18 | 1 << 19  # an application's flags: the intent is enabled, for a large or a small bot
# View Channels, Send Messages, Attach Files, Read Message History, Send Messages in Threads
_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 15 | 1 << 16 | 1 << 38
_NAME = "discord"


def invitation(application_id: str) -> str:
    """The address at which one adds the bot to a server, with what it needs there."""
    query = f"client_id={application_id}&scope=bot+applications.commands&permissions={_PERMISSIONS}"
    return f"https://discord.com/oauth2/authorize?{query}"


async def describe_account(rest: RestClient) -> str:
    """Logs in once. Raises `PlatformError`."""
    try:
        answer = await rest.request("GET", "/users/@me")
        application = await rest.request("GET", "/oauth2/applications/@me")
        servers = await rest.request("GET", "/users/@me/guilds")
    except NO_ANSWER as exc:
        raise PlatformError(no_connection(exc), platform=_NAME) from exc
    if answer.status == 401:
        raise PlatformError("the token was refused", platform=_NAME, permanent=True)
    if answer.status == 404:
        raise PlatformError("there is no REST API of Discord at platforms.discord.base_url (404)", platform=_NAME)
    if not answer.ok or (account := answer.decoded) is None:
        raise PlatformError(f"Discord answered {answer.status}", platform=_NAME)
    described = application.decoded if application.ok else None
    flags = described.flags if described is not None else None
    if flags is not None and not flags & _MESSAGE_CONTENT:
        raise PlatformError(NO_MESSAGE_CONTENT, platform=_NAME, permanent=True)
    login = f"logged in as {account.username}"
    if described is not None and described.id and _in_no_server(servers):
        return f"{login}, which is in no server yet: invite it with {invitation(described.id)}"
    return login


def _in_no_server(answer: RestResponse) -> bool:
    try:
        return answer.ok and not msgspec.json.decode(answer.body, type=list[RestBody])
    except msgspec.DecodeError:
        return False
