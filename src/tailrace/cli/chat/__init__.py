"""A conversation from the command line: one question, lines, or a screen."""
