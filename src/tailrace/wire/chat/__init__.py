"""The `chat` dialect: OpenAI Chat Completions and the many servers that speak it, both ways.

`dialect` is the object that stands for all of it. `decode` turns stream bytes into deltas and the provider's own body,
`completion` turns that body into a `Completion`, `provider_request` encodes a `ModelRequest`, `client_request` parses a
client's request, and `encode` encodes an answer for a client of our server, `encode_body` one that is not streamed.
"""
