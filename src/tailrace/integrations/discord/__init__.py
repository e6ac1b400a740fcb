"""Discord, as a chat platform."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # discord.py imports audioop, for voice calls
    import discord as discord
