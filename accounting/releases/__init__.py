"""Several releases about the same people: what each one costs, and what they cost together."""
