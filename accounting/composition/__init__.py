"""The composition ladder: one module per rung, and the target that a rung sets for a law's design."""

from accounting.composition.added_losses import AddedLosses
from accounting.composition.advanced import Advanced
from accounting.composition.basic import Basic
from accounting.composition.geometric import Geometric
from accounting.composition.paper import Paper
from accounting.composition.pld import PrivacyLossComposition
from accounting.composition.rung import Rung, Touched
from accounting.composition.target import Target
from accounting.registry import Registry

LADDER: Registry[Rung] = Registry()
"""Every rung by name."""
LADDER.register(Paper(), Basic(), Advanced(), PrivacyLossComposition(), Geometric(), AddedLosses())

__all__ = [
    "LADDER",
    "AddedLosses",
    "Advanced",
    "Basic",
    "Geometric",
    "Paper",
    "PrivacyLossComposition",
    "Rung",
    "Target",
    "Touched",
]
