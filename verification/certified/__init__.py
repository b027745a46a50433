"""The certified layer: a plan's own numbers, recomputed by an independent route with rigorous rounding."""
