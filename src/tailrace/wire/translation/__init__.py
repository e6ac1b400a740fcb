"""What several dialects have a word for, or one has none for: searches, citations, stop strings."""
