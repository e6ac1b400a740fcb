"""discord.py, imported in one place without the warning that its own imports raise."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # discord.py imports audioop, for voice calls
    import discord
    from discord.gateway import DiscordWebSocket, ReconnectWebSocket
    from discord.http import HTTPClient, Route

__all__ = ["DiscordWebSocket", "HTTPClient", "ReconnectWebSocket", "Route", "discord"]
