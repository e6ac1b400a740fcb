"""Fakes of Telegram, Discord, Slack, WhatsApp and Home Assistant on loopback, with their limits and failures.

Our own adapters are tested against them. What an adapter's author needs for a fake of another platform is shipped in
`tailrace.testing.platforms`.
"""
