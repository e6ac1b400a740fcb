"""Chat platforms: one adapter per file, and the gateway that runs them."""
