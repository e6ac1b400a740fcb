"""The agent: turns of a model and its tools, recorded as they happen."""
