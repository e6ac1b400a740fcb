"""Protocols of front ends over the log of runs: AG-UI and the AI SDK's UI message stream."""
