"""Pure helpers over values and texts: no I/O, no clock, no knowledge of runs."""
