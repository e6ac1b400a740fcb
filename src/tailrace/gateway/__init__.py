"""What all chat platforms share: the gateway that runs them, conversations, deliveries."""
