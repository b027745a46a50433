"""How much noise plans have over what neighbors that were found need for the same promise.

python -m benchmarks.tightness                  all rows, some ten minutes
python -m benchmarks.tightness --only pure      rows whose name contains this

The neighbors are those of certificates: bits that the accountant claims to cover, whose cost is proved from below in
ball arithmetic (docs/proofs/certificate.md). A ratio of 1.05 says that 5 % less noise is refuted, and 1 % less perhaps
not: what is not refuted need not be proved. It is found by planning for a larger ε until these neighbors cost ε. What a
ratio exceeds 1 by is the accountant's looseness and the checker's: its grid for bounds from below is coarse, which for
768 sums makes 1.02 where exact composition has 1.001.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from accounting import Plan, PlanRequest, PrivkdeError
from accounting.planning import plan
from verification.certified.certificate import certify
from verification.certified.checker import Lower, tail_for
from verification.certified.neighbors import neighbors
from verification.twins import mechanism_twin

PROMISE: Mapping[str, Any] = {"users": 30_000, "epsilon": 2.0, "delta": 1e-6, "allow_useless": True}
STEPS = 6
CLOSE = 2e-4
"""How close the neighbors' ε comes to the promised one, relatively."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row: what is planned, and the value before and the goal of the issue that asked for it."""

    name: str
    request: Mapping[str, Any]
    before: str
    goal: str


def _pure(**further: Any) -> dict[str, Any]:
    return {"bitsum": "pure", "delta": 0.0, **further}


CASES = (
    Case("pure, inner product, d = 64", _pure(dim=64, kernel="inner-product"), "7.3", "1.1"),
    Case("pure, inner product, d = 768", _pure(dim=768, kernel="inner-product"), "26.8", "1.1"),
    Case("pure, 256 random signs", _pure(dim=256, kernel="inner-product-signs"), "7.3", "1.1"),
    Case("pure, hashed, I = 64", _pure(dim=64, kernel="laplacian"), "2.0", "1.1"),
    Case("rr, hashed, I = 64", {"dim": 64, "kernel": "laplacian"}, "1.10", "1.01"),
    Case("rr, hashed, I = 768", {"dim": 768, "kernel": "laplacian"}, "1.08", "1.01"),
    Case("rr, inner product, d = 768, planned R", {"dim": 768, "kernel": "inner-product"}, "1.08", "1.03"),
    Case("rr, joint labels, 384 × 4, means", {"dim": 384, "classes": 4, "model": "mean"}, "1.08", "1.03"),
    Case("rr, joint labels, 64 × 10, moments", {"dim": 64, "classes": 10, "model": "discriminant"}, "1.08", "1.03"),
    Case("rr, 256 random signs, d = 256", {"dim": 256, "kernel": "inner-product-signs"}, "1.15", "1.05"),
    *(
        Case(f"rr, Gaussian, {k} sums", {"dim": 16, "kernel": "gaussian", "repetitions": k}, "1.01–1.02", "1.002")
        for k in (25, 29, 31, 49)
    ),
    Case("rr, Gaussian, 768 sums", {"dim": 768, "kernel": "gaussian"}, "1.001", "1.001"),
    Case("3nb, Gaussian, 768 sums", {"dim": 768, "kernel": "gaussian", "bitsum": "3nb"}, "87.8 RMSE", "63 RMSE"),
)
REACHES = (1e-6, 1e-12, 1e-14, 1e-20)
"""δ of 768 sums; below 768·10⁻¹⁵ = 7.7·10⁻¹³ they were unreachable."""


def neighbors_epsilon(planned: Plan) -> float:
    """ε that the neighbors of the plan's certificate cost at least."""
    reach, delta = neighbors(planned), planned.request.delta
    if delta == 0.0:
        return certify(planned).covered_epsilon
    return Lower.of(mechanism_twin(planned), tail_for(delta, reach.instances), reach.covered).epsilon(delta)


def excess_noise(request: PlanRequest) -> tuple[Plan, float]:
    """The plan, and its noise over that of the plan for the largest ε at which the neighbors cost the promised one.

    The second plan has the first one's R and shape, so that noise is compared of one kind.
    """
    first = plan(request)
    fixed: dict[str, Any] = {**first.request.to_json(), "features_epsilon": None}
    if "noise_shape" in first.parameters:
        fixed["noise_shape"] = first.parameters["noise_shape"]
    epsilon, planned = request.epsilon, first
    for _ in range(STEPS):
        cost = neighbors_epsilon(planned)
        if abs(math.log(cost / request.epsilon)) < CLOSE:
            break
        epsilon *= request.epsilon / cost
        planned = plan(PlanRequest(**{**fixed, "epsilon": epsilon}))
    return first, first.bitsum_rmse / planned.bitsum_rmse


def tightness(console: Console, only: str) -> Table:
    """All rows."""
    table = Table(title="Planned noise over what the worst neighbors found need (n = 30,000, ε = 2, δ = 1e-6 or 0)")
    for name in ("case", "accountant", "RMSE", "noise over neighbors'", "before", "goal"):
        table.add_column(name, justify="left" if name == "case" else "right")
    chosen = [case for case in CASES if only in case.name]
    for case in track(chosen, "planning and refuting", console=console):
        first, ratio = excess_noise(PlanRequest(**{**PROMISE, **case.request}))
        table.add_row(case.name, first.accountant, f"{first.bitsum_rmse:.4g}", f"{ratio:.4f}", case.before, case.goal)
    return table


def reaches() -> Table:
    """Whether small δ can be met, for 768 sums that may all flip and for as many of an inner product."""
    table = Table(title="Small δ: RMSE of one sum (n = 30,000, 768 touched, ε = 2)")
    for name in ("accountant", *(f"δ = {delta:g}" for delta in REACHES)):
        table.add_column(name, justify="right")
    for kernel, accountant in (("gaussian", "basic"), ("gaussian", "advanced"), ("gaussian", "pld"),
                               ("inner-product", "geometric")):  # fmt: skip
        cells = []
        for delta in REACHES:
            request = {**PROMISE, "dim": 768, "kernel": kernel, "accountant": accountant, "delta": delta}
            try:
                cells.append(f"{plan(PlanRequest(**request)).bitsum_rmse:.4g}")
            except PrivkdeError:
                cells.append("unreachable")
        table.add_row(accountant, *cells)
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    parsed = parser.parse_args()
    console = Console(width=130)
    console.print(tightness(console, parsed.only))
    if not parsed.only:
        console.print(reaches())


if __name__ == "__main__":
    main()
