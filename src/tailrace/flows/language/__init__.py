"""Expressions and templates, and what their names stand for."""
