"""Durable raw model calls: background and stored responses, and the log of every raw call."""
