"""Fakes of the chat platforms, over real loopback sockets: each keeps what its users would see, in every state that
they saw it in, holds its clients to its limits, and fails as told."""
