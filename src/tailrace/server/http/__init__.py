"""What every request passes, whatever its route: identity, limits, errors, streams, the socket."""
