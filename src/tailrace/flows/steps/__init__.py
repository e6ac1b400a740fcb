"""What a step can be: one module per handler."""
