"""Instances of sequences: what is due in each, done and recorded."""
