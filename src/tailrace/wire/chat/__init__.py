"""The `chat` dialect: OpenAI Chat Completions, both ways. `dialect` is the object that stands for it."""
