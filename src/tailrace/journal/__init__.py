"""The run log: one fenced, append-only log per run, written before it is shown."""
