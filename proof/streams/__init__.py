"""A test of streaming that any product can run: a provider that misbehaves on request, viewers, a killer, and a judge.

Nothing here imports Tailrace, and nothing here but the products needs more than Python's standard library:

- `provider` speaks Chat Completions and does to each answer what its plan says; it numbers every word;
- `trial` asks the product, watches its answers and does to the product what the fault says;
- everyone writes what happened into one `history`;
- `judge` reads the history alone and names what went wrong;
- `products` has one adapter for each product, `programs` what a library needs to be a server.
"""
