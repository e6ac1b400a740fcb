"""What the user has set: the config file and the environment, read once into one frozen value."""
