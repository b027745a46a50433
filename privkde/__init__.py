"""Shuffled differential privacy over kernel densities: planning and command line."""

from importlib.metadata import version

__version__ = version("privkde")
