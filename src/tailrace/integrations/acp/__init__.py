"""The agent on stdin and stdout for editors: the Agent Client Protocol."""
