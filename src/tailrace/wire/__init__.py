"""Bytes to values and back: one folder per dialect, registered in `dialects`. Never awaits, never reads a clock."""
