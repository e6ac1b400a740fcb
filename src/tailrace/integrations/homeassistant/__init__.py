"""Home Assistant, as a chat platform."""
