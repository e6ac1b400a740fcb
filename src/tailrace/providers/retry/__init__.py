"""What follows an attempt that failed: which route is next, after what wait, and how the text goes on. Pure."""
