"""JSON schemas, and model answers that are held to them."""
