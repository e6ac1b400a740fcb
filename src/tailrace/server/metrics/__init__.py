"""What is counted while the server runs."""
