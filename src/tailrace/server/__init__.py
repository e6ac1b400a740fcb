"""The HTTP server: the pipeline that every request passes, and the routes."""
