"""The whole runtime in a world made from a seed: everything around it misbehaves, and the same seed is the same run."""
