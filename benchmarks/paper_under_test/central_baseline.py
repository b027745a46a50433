"""The central baseline of the published code: σ for a sensitivity of √I, where replacing one user moves 2√I."""

from __future__ import annotations

import math

import numpy as np

from accounting.kernels import kernel_named
from accounting.mechanisms import GaussianMechanism

FEATURES, DELTA = 768, 1e-6
EPSILONS = (0.5, 2.0, 8.0)


def classical_deviation(epsilon: float, sensitivity: float) -> float:
    """Δ·√(2 ln(1.25/δ))/ε: Theorem A.1 of Dwork and Roth, proved there for ε < 1."""
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / DELTA)) / epsilon


def realized_distance() -> float:
    """‖f(x) − f(x')‖/√I for I = d = 768 drawn features cos(√2 ω·x + β), and records that turn every one around.

    I directions in I dimensions: some x has √2 ω_i·x + β_i = 0 for all i, and some x' has π.
    """
    rng = np.random.default_rng(1)
    directions = math.sqrt(2.0) * rng.normal(size=(FEATURES, FEATURES))
    phases = rng.uniform(0.0, 2.0 * math.pi, FEATURES)
    first, second = (np.linalg.solve(directions, target - phases) for target in (0.0, math.pi))
    moved = np.cos(directions @ first + phases) - np.cos(directions @ second + phases)
    return float(np.linalg.norm(moved)) / math.sqrt(FEATURES)


def lines() -> list[str]:
    """What the published noise keeps under replace-one, and what this library's baseline adds."""
    facts = kernel_named("gaussian").facts(dim=FEATURES)
    ours = facts.replaced_norm / facts.bound * math.sqrt(facts.n_repetitions)  # of cosines, without the factor √2
    text = [
        f"Gaussian kernel, I = d = {FEATURES}: two records whose sums of cosines differ by"
        f" {realized_distance():.3f}·√I; the published code counts on 1·√I",
    ]
    for epsilon in EPSILONS:
        published = GaussianMechanism(
            sensitivity=ours, standard_deviation=classical_deviation(epsilon, math.sqrt(FEATURES))
        )
        needed = GaussianMechanism.calibrate(epsilon, DELTA, ours)
        text.append(
            f"ε={epsilon:g}, δ={DELTA:g}: published σ = {published.standard_deviation:.1f} keeps"
            f" δ({epsilon:g}) = {published.delta(epsilon):.1e}, or ε = {published.epsilon(DELTA):.2f} at that δ;"
            f" privkde adds σ = {needed.standard_deviation:.1f}"
        )
    norm = kernel_named("inner-product").facts(dim=FEATURES).replaced_norm
    text.append(
        f"inner product: replacing a unit vector moves the sum by at most {norm:g}, the published code counts on"
        f" √d = {math.sqrt(FEATURES):.1f}: more noise than needed"
    )
    return text
