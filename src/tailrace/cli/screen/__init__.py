"""What a terminal shows, and how it is drawn."""
