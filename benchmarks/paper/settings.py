"""What is run: presets, kernels, protocols, budgets and seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounting.errors import InvalidInputError, require_choice, require_integer, require_real
from accounting.request import LARGEST_DELTA, LARGEST_EPSILON

KERNELS = ("gaussian", "inner-product")
BITSUMS = ("rr", "3nb", "pure")
BASELINES = ("central", "local", "none")
"""Noise added by a trusted analyzer, randomized response without a shuffler, exact sums of features."""

EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.2, 4.5, 7.0, 10.0)
LABEL_EPSILONS = (None, 10.0, 7.0, 5.0, 3.0, 1.0)
"""ε of the label's randomized response; None: labels as they are."""
MAIN_LABEL_EPSILON = 5.0
"""The one that figures, decoding and communication are shown for."""
DECODED_EPSILON = 3.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How noise is calibrated for a promise."""

    accountant: str
    bound: float | None
    """R of the inner product's rounding; None: planned."""


PRESETS = {
    "paper": Preset(accountant="paper", bound=1.0),
    "tight": Preset(accountant="auto", bound=None),
}
"""`paper`: published calibration and composition, coordinates rounded as they are; `tight`: what `auto` plans,
with one R for all protocols and classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that decides the numbers, besides the data."""

    presets: tuple[str, ...] = tuple(PRESETS)
    epsilons: tuple[float, ...] = EPSILONS
    label_epsilons: tuple[float | None, ...] = LABEL_EPSILONS
    delta: float = 1e-6
    seeds: int = 10
    queries: int = 1000
    """Test vectors at which the error of a density is measured."""
    repetitions: int | None = None
    """I of the Gaussian features; None: as many as dimensions, as in the paper."""

    def __post_init__(self) -> None:
        for preset in self.presets:
            require_choice("preset", preset, PRESETS)
        for epsilon in self.epsilons:
            require_real("epsilon", epsilon, low=0.0, high=LARGEST_EPSILON)
        for label_epsilon in self.label_epsilons:
            if label_epsilon is not None:
                require_real("label_epsilon", label_epsilon, low=0.0, high=LARGEST_EPSILON)
        require_real("delta", self.delta, low=0.0, high=LARGEST_DELTA)
        require_integer("seeds", self.seeds, low=1, high=1000)
        require_integer("queries", self.queries, low=1, high=10**6)
        if self.repetitions is not None:
            require_integer("repetitions", self.repetitions, low=1, high=10**6)
        for name in ("presets", "epsilons", "label_epsilons"):
            values = getattr(self, name)
            if not values or len({f"{value:g}" if isinstance(value, float) else value for value in values}) < len(
                values
            ):
                raise InvalidInputError(f"{name}={values!r} must name at least one, and none twice.")

    @property
    def main_label_epsilon(self) -> float | None:
        """The label's ε that is shown where only one is: 5 if it is among the settings, else the first."""
        return MAIN_LABEL_EPSILON if MAIN_LABEL_EPSILON in self.label_epsilons else self.label_epsilons[0]

    @property
    def decoded_epsilon(self) -> float:
        """The ε at which classes are decoded: the one nearest to the paper's 3.2."""
        return min(self.epsilons, key=lambda epsilon: abs(epsilon - DECODED_EPSILON))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "presets": list(self.presets),
            "epsilons": list(self.epsilons),
            "label_epsilons": list(self.label_epsilons),
            "delta": self.delta,
            "seeds": self.seeds,
            "queries": self.queries,
            "repetitions": self.repetitions,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Settings:
        """Inverse of `to_json`."""
        lists = ("presets", "epsilons", "label_epsilons")
        return Settings(**{**data, **{name: tuple(data[name]) for name in lists}})


def label_name(label_epsilon: float | None) -> str:
    """The label's ε in words: a number, or ∞ where labels are used as they are."""
    return "∞" if label_epsilon is None else f"{label_epsilon:g}"
