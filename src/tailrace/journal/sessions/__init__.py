"""Sessions in the journal: their totals, the search in questions and answers, and waiting for their next run."""
