"""What an agent may do and show: dangerous commands, approvals, secrets."""
