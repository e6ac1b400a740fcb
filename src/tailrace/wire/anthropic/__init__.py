"""The `anthropic` dialect: the Anthropic Messages API, both ways. `dialect` is the object that stands for it."""
