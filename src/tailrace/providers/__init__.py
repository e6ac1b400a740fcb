"""One model call, whatever it takes: the endpoints that can be called, and how a call gets through."""
