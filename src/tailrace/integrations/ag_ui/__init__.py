"""AG-UI: its `RunAgentInput` in, its typed events out."""

from __future__ import annotations

from tailrace.plugins import Integration

INTEGRATION = Integration(name="ag_ui", title="AG-UI", routes=".endpoint:routes")
