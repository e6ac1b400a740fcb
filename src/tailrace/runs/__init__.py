"""Runs of every kind: started, executed with the lease held, stopped, failed, given back, taken over."""
