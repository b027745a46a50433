"""What the checker is told to look at: grids, cells, orders and cuts. Any choice is valid; a bad one proves less.

Ordinary arithmetic finds a good witness once. With it, a proof is the evaluation of theorems in ball arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from accounting.errors import require_integer, require_real

MOST_BITS, MOST_POINTS, MOST_ORDERS = 8192, 1_500, 64
FARTHEST = 10_000.0
"""Losses may reach so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A grid of losses: `points` steps of length `step`."""

    step: float
    points: int

    def __post_init__(self) -> None:
        require_real("step", self.step, low=0.0, high=1e6)
        require_integer("points", self.points, low=1, high=MOST_POINTS)
        require_real("step·points", self.step * self.points, low=0.0, high=FARTHEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """Theorem 1: orders at which moments are bounded, and the mass that shifts may lose, b₂t² + b₁t."""

    orders: tuple[float, ...]
    square: float
    linear: float

    def __post_init__(self) -> None:
        require_integer("number of orders", len(self.orders), low=1, high=MOST_ORDERS)
        for order in self.orders:
            require_real("order", order, low=1.0, high=1e6)
        require_real("square", self.square, low=0.0, high=1.0, low_open=False)
        require_real("linear", self.linear, low=0.0, high=1.0, low_open=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contouring:
    """Theorem 3: the real part of orders, the mass that shifts may lose, about the deviation of the composed loss."""

    order: float
    square: float
    linear: float
    deviation: float

    def __post_init__(self) -> None:
        require_real("order", self.order, low=1.0, high=1e6)
        require_real("square", self.square, low=0.0, high=1.0, low_open=False)
        require_real("linear", self.linear, low=0.0, high=1.0, low_open=False)
        require_real("deviation", self.deviation, low=0.0, high=1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """Where the theorems are evaluated."""

    bits: int
    """Precision of the ball arithmetic."""
    tail: float
    """Where the windows of laws end."""
    grid: Grid | None = None
    cell: int = 0
    """Width of the finest cells of the others' data."""
    cutting: Cutting | None = None
    """Theorem 1, for squared shifts."""
    contour: Contouring | None = None
    """Theorem 3, which takes its place where it proves more."""
    moved_grid: Grid | None = None
    """For bits that all move by the same shift."""
    coin_grid: Grid | None = None
    coin_cutting: Cutting | None = None
    """Theorem 2, for the instances in which others toss coins."""

    def __post_init__(self) -> None:
        require_integer("bits", self.bits, low=64, high=MOST_BITS)
        require_real("tail", self.tail, low=0.0, high=1.0)
        require_integer("cell", self.cell, low=0, high=10**12)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, without what is not used."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        document: dict[str, Any] = json.loads(json.dumps(fields))
        return document

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Witness:
        """Inverse of `to_json`."""
        fields = dict(data)
        for name in ("grid", "coin_grid", "moved_grid"):
            if name in fields:
                fields[name] = Grid(**fields[name])
        for name in ("cutting", "coin_cutting"):
            if name in fields:
                cutting = dict(fields[name])
                fields[name] = Cutting(orders=tuple(cutting.pop("orders")), **cutting)
        if "contour" in fields:
            fields["contour"] = Contouring(**fields["contour"])
        return Witness(**fields)
