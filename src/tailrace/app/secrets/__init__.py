"""What is secret: which values the config names, and how they stay away from commands and texts."""
