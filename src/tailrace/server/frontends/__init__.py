"""What the protocols of front ends share, which are integrations."""
