"""Fakes of Discord, Slack, WhatsApp and Home Assistant on loopback, with their limits and failures.

Our own adapters are tested against them. Telegram's fake and what an adapter's author needs for a fake of another
platform are shipped in `tailrace.testing.platforms`.
"""
