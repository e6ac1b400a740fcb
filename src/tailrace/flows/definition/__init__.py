"""Sequences as they are written: read, checked, kept."""
