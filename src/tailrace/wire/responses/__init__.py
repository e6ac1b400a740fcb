"""The `responses` dialect: OpenAI's Responses API, both ways. `dialect` is the object that stands for it."""
