"""Runs as tools for MCP hosts: on stdin and stdout, and at `/mcp` of the server."""

from __future__ import annotations

from tailrace.plugins import CliCommand, Integration

INTEGRATION = Integration(
    name="mcp_server",
    extra="mcp",
    library="mcp",
    routes=".endpoint:routes",
    commands={
        "mcp": CliCommand(
            "runs as tools for MCP hosts, on stdin and stdout", ".command", starts_programs=True, group="serve"
        )
    },
)
