"""Logs as streams: server-sent events of a run or a session, and the Durable Streams protocol."""
