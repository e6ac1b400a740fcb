"""The proof: simulation, soak and model checking of Tailrace, a test of streaming that any product can run, and a chat
in memory for tests and the bench. Not part of the wheel."""
