"""Statistical checks of the execution: samplers, counts, order, randomness."""
