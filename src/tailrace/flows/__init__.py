"""Durable sequences of steps, on the journal."""
