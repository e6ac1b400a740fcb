"""What the user types, and what becomes of each key."""
