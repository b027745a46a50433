"""How far a published density is from the true one, and what other ways to collect it would cost."""
