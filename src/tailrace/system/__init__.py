"""The machine below: processes, files that only their owner reads, and what is installed."""
