"""AG-UI: its `RunAgentInput` in, its typed events out."""
