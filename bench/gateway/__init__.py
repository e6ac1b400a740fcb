"""Tailrace beside bare prototypes, nginx and other gateways: the same load on each, in one run."""
