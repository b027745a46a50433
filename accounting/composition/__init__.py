"""The composition ladder: one module per rung."""

from accounting.composition.advanced import Advanced
from accounting.composition.base import Rung, Touched
from accounting.composition.basic import Basic
from accounting.composition.geometric import Geometric
from accounting.composition.paper import Paper
from accounting.composition.pld import PrivacyLossComposition

LADDER: dict[str, Rung] = {
    rung.name: rung for rung in (Paper(), Basic(), Advanced(), PrivacyLossComposition(), Geometric())
}
"""Every rung by name."""

__all__ = ["LADDER", "Advanced", "Basic", "Geometric", "Paper", "PrivacyLossComposition", "Rung", "Touched"]
