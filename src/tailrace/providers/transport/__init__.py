"""HTTP clients for model endpoints, behind two Protocols: one connection pool per process."""
