"""Bytes to values and back, one module per dialect. Nothing here awaits, opens a socket or reads a clock."""
