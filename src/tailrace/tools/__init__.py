"""What the agent can do: one tool per file, each behind the `Tool` port."""
