"""WhatsApp, as a chat platform."""
