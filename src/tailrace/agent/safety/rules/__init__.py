"""What single programs can do: rules for names and arguments, and what they need to read them."""
