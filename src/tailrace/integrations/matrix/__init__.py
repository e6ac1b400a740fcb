"""Matrix, as a chat platform."""
