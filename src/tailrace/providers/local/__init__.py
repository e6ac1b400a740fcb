"""The embedded model: its weights, its server process, and the provider that asks it."""
