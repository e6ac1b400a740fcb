"""From a run's log to a message in a chat: what to show there, when, and how it is written."""
