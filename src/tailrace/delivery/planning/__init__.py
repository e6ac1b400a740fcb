"""What a chat is shown of a run, and when. Pure."""
