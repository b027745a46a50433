"""Texts in a file as vectors, to study collections of texts.

    python -m benchmarks.embed TEXTS -o DATA     needs the extra `text`; `--help` lists its options

In a deployment every client embeds its own text (`privkde.embedding`). Here one machine does it for all: a simulation.
"""
