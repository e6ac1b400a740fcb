"""What the process tells of itself: its log and its traces."""
