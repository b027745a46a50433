"""3NB's flood NB(r', p') is everybody's together: each user draws NB(r'/n, p'). What happens otherwise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from accounting.mechanisms import ThreeNegativeBinomial
from verification.exact.brute_force import plane_table, precise_negative_binomial, table

EPSILON, DELTA, USERS = 0.5, 1e-6, 1000
SIZE = 400


def lines() -> list[str]:
    """Messages if every user draws the whole flood; δ if everybody's flood together is a share of it."""
    law = ThreeNegativeBinomial.as_published(EPSILON, DELTA, USERS)
    flood, r = law.flood_continue_probability, law.flood_shape
    mean = flood / (1.0 - flood)
    noise = 2.0 / USERS * law.continue_probability / (1.0 - law.continue_probability)
    once, each = (0.5 + noise + 2.0 * shape * mean for shape in (r / USERS, r))
    spread = math.sqrt(2.0 * law.continue_probability) / (1.0 - law.continue_probability)
    thin = Fraction(r) / USERS
    zero = plane_table(
        table(precise_negative_binomial(1, law.continue_probability), SIZE),
        table(precise_negative_binomial(thin, flood), SIZE),
        SIZE,
    )
    one, growth = np.vstack([np.zeros((1, SIZE)), zero[:-1]]), math.exp(EPSILON)
    least = max(float(np.sum(np.maximum(p - growth * q, 0.0))) for p, q in ((one, zero), (zero, one)))
    return [
        f"3NB at ε₀={EPSILON:g}, δ₀={DELTA:g}, n={USERS}: r = 1/n, p = {law.continue_probability:.4f},"
        f" r' = {r:.2f}, p' = {flood:.5f} (largest constant in p' that the exact law allows)",
        f"each user draws NB(r'/n, p'): {once:10,.1f} messages per user and instance, exact δ(ε₀) ="
        f" {law.delta(EPSILON):.2g}",
        f"each user draws NB(r', p'):   {each:10,.1f} messages per user and instance; the error stays {spread:.2f},"
        " because the flood cancels",
        f"everybody together NB(r'/n, p'), as with a second 1/n: exact δ(ε₀) is at least {least:.2f}",
    ]
