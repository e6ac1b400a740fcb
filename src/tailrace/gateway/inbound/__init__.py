"""An incoming message: what it is, what it refers to, who wrote it, and its files."""
