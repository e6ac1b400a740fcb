"""Runs as tools for MCP hosts, on stdin and stdout."""
