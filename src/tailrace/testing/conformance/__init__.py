"""Suites that every implementation of a port must pass: subclass one, give it a fixture, run it under pytest."""
