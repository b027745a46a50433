"""Slow twins by brute force: tables of laws from their definitions, each mass rounded once.

Like `rational_twins` this shares no code and no formula with `accounting`: no recursions, no windows chosen
by tail bounds, no closed forms. Masses come from mpmath at 40 digits, each rounded once to a double, and enter
sums of positive terms only. Tables are cut where the caller says; what is cut off is reported, so every number
is bracketed: a hockey stick lies between what a table yields and that plus the mass which the table lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Mass = Callable[[int], Any]
"""A probability mass function of mpmath numbers."""

DIGITS = 40
LEFT_OUT = 1e-17
"""Mass that a whole table may lack."""


def precise_poisson(mean: float) -> Mass:
    """Poisson(mean): e^{−λ} λ^j/j!."""
    rate = mpmath.mpf(mean)
    return lambda j: mpmath.exp(-rate) * rate**j / mpmath.factorial(j)


def precise_negative_binomial(shape: float | Fraction, continue_probability: float | Fraction) -> Mass:
    """NB(r, p), p the probability to continue: C(j+r−1, j) (1−p)^r p^j, any r > 0."""
    with mpmath.workdps(2 * DIGITS):
        r, p = mpmath.mpmathify(shape), mpmath.mpmathify(continue_probability)
    return lambda j: mpmath.gammaprod([j + r], [r, j + 1]) * (1 - p) ** r * p**j


def table(mass: Mass, length: int) -> Table:
    """The masses at 0, …, length − 1.

    >>> table(precise_negative_binomial(1, Fraction(1, 2)), 3).tolist()
    [0.5, 0.25, 0.125]
    """
    with mpmath.workdps(DIGITS):
        return np.array([float(mass(j)) for j in range(length)])


def sufficient_length(mass: Mass) -> int:
    """Length of a table that lacks at most `LEFT_OUT`."""
    with mpmath.workdps(DIGITS):
        length, total = 0, mpmath.mpf(0)
        while 1 - total > LEFT_OUT:
            total += mass(length)
            length += 1
    return length + 1


def plane_table(noise: Table, flood: Table, size: int) -> Table:
    """The law of (U, V) = (G1 + F, G2 + F) on {0, …, size − 1}²: Σ_z P_F(z) g(u−z) g(v−z), term by term.

    >>> law = plane_table(np.array([0.5, 0.5]), np.array([0.25, 0.75]), 3)
    >>> law[1].tolist(), float(law.sum())
    ([0.0625, 0.25, 0.1875], 1.0)
    """
    square = np.outer(noise, noise)[:size, :size]
    law = np.zeros((size, size))
    for z, mass in enumerate(flood[:size]):
        rows, columns = min(size - z, square.shape[0]), min(size - z, square.shape[1])
        law[z : z + rows, z : z + columns] += mass * square[:rows, :columns]
    return law
