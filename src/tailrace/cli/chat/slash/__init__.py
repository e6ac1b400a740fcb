"""The commands of a conversation that begin with a slash."""
