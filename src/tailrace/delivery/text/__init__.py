"""Markdown in each platform's markup, balanced and split to its limits."""
