"""Bytes to values and back: one folder per dialect, registered in `dialects`. Nothing here awaits, opens a socket or reads
a clock."""
