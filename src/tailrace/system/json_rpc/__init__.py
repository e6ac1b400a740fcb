"""JSON-RPC on stdin and stdout, one message a line."""
