"""Telegram, as a chat platform."""
