"""The set-up: `init`, `add`, `doctor`, and the config file as it is written and changed."""
