"""The routes of OpenAI's and Anthropic's APIs: a client's request in, the agent's or a raw model's answer out."""
