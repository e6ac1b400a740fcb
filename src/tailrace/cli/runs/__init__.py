"""What the terminal shows of runs: the list, one run's timeline, one run's log, the live overview."""
