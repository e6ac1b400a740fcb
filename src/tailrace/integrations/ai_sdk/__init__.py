"""The AI SDK's UI message stream, which `useChat` reads."""
