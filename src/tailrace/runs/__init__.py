"""Runs, whoever executes them: claimed, held, recovered after a crash."""
