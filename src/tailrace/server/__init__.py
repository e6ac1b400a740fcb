"""The HTTP server: the frame that every request passes, and the routes on it."""
