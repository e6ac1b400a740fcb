"""Sessions in the journal: their totals, the search in what was said, and who waits for their next run."""
