"""How time and memory grow with users, dimension, repetitions and classes: `python -m benchmarks.growth`."""
