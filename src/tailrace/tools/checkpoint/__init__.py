"""The working directory before the first change of a turn, and the way back."""
