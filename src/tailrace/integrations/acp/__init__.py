"""The agent on stdin and stdout for editors: the Agent Client Protocol."""

from __future__ import annotations

from tailrace.plugins import CliCommand, Integration

INTEGRATION = Integration(
    name="acp",
    extra="acp",
    library="acp",
    commands={
        "acp": CliCommand(
            "the agent inside an editor: Zed, JetBrains, Neovim, Emacs", ".command", reads_config=False, group="serve"
        )
    },
)
