"""The proof: simulation, soak and model checking of Tailrace, and a chat in memory for tests and the bench. Not part of
the wheel."""
