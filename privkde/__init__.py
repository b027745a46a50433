"""Shuffled differential privacy over kernel densities: planning, protocol, estimators and command line."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privkde.estimators import PrivateKDE, PrivateKDEClassifier

__version__ = version("privkde")
__all__ = ["PrivateKDE", "PrivateKDEClassifier"]


def __getattr__(name: str) -> Any:
    """Load the estimators, and scikit-learn with them, when they are first asked for: planning needs neither."""
    if name in __all__:
        return getattr(import_module("privkde.estimators"), name)
    raise AttributeError(f"module 'privkde' has no attribute {name!r}")
