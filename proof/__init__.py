"""The proof: simulation, soak and model checking of Tailrace. Not part of the wheel."""
