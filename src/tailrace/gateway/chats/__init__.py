"""The parts of a platform's chats: their conversations, what runs in them, commands, and people who are new."""
