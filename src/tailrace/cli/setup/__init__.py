"""The set-up: what is found on this machine, and the config file as it is written and changed."""
