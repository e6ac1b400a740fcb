"""The fast path of the decoders: events that differ from the one before in a single text."""
