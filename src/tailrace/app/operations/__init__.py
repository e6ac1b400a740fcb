"""What the operator of a server sees: its processes, and how the providers have answered lately."""
