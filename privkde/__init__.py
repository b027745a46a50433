"""Shuffled differential privacy over kernel densities: planning, protocol, estimators and command line."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privkde.engines import engine
    from privkde.learning.estimators import PrivateKDE, PrivateKDEClassifier
    from privkde.learning.private_classifier import PrivateClassifier
    from privkde.ledger import Ledger
    from privkde.protocol.announcement import Announcement
    from privkde.protocol.model import DensityModel
    from privkde.protocol.parties import Analyzer, Randomizer, Shuffler
    from privkde.protocol.rounds import Collection, Terms
    from privkde.session import Session

__version__ = version("privkde")
__all__ = [
    "Analyzer",
    "Announcement",
    "Collection",
    "DensityModel",
    "Ledger",
    "PrivateClassifier",
    "PrivateKDE",
    "PrivateKDEClassifier",
    "Randomizer",
    "Session",
    "Shuffler",
    "Terms",
    "engine",
]

_MODULES = {
    "Analyzer": "protocol.parties",
    "Announcement": "protocol.announcement",
    "Collection": "protocol.rounds",
    "DensityModel": "protocol.model",
    "Ledger": "ledger",
    "PrivateClassifier": "learning.private_classifier",
    "PrivateKDE": "learning.estimators",
    "PrivateKDEClassifier": "learning.estimators",
    "Randomizer": "protocol.parties",
    "Session": "session",
    "Shuffler": "protocol.parties",
    "Terms": "protocol.rounds",
    "engine": "engines",
}


def __getattr__(name: str) -> Any:
    """Load a public name, and the libraries that it needs, when it is first used: planning needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'privkde' has no attribute {name!r}")
    return getattr(import_module(f"privkde.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
