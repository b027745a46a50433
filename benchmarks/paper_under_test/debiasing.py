"""Algorithm 2 with RR publishes 2·count − n: its expectation is (1 − 2p) times the sum that is wanted."""

from __future__ import annotations

import numpy as np

from accounting.composition import Paper, Target, Touched
from accounting.mechanisms import RandomizedResponse
from privkde.bitsum import Tally, executed
from privkde.draws.randomness import private_randomness

EPSILON, DELTA, INSTANCES = 8.0, 1e-6, 768
CLASSES = {"A": (3_000, 0.5), "B": (30_000, 0.2)}
"""Users of each class, and the mean of their features f(x)/R, which a query compares."""


def lines() -> list[str]:
    """Expectation and one run of both analyzers for two classes of different size."""
    stream = private_randomness(insecure_seed=1)
    found = [f"RR as published (Lemma 4.8, Theorem 3.2) at ε={EPSILON:g}, δ={DELTA:g}, I={INSTANCES}"]
    target = Target(rung=Paper(), touched=Touched(groups=INSTANCES, per_group=1), epsilon=EPSILON, delta=DELTA)
    raw, mended = {}, {}
    for name, (n_users, mean) in CLASSES.items():
        law = target.design(RandomizedResponse, n_users)
        bitsum, shrink = executed(law), 1.0 - 2.0 * law.flip_probability
        ones = np.zeros(INSTANCES)
        for _ in range(n_users):
            ones += bitsum.respond(np.full(INSTANCES, mean, np.float32), stream)
        raw[name] = float(np.mean(2.0 * ones / n_users - 1.0))
        estimate = bitsum.estimate(Tally(ones.astype(np.int64), (n_users - ones).astype(np.int64)), n_users)
        mended[name] = float(np.mean(2.0 * estimate / n_users - 1.0))
        found.append(
            f"class {name}, {n_users:6,} users: p = {law.flip_probability:.4f}; mean of the features {mean:.3f};"
            f" expected of 2·count − n: {shrink * mean:.4f}; drawn: {raw[name]:.3f}; corrected: {mended[name]:.2f}"
        )
    highest = [max(values, key=lambda name: values[name]) for values in (raw, mended)]
    truth = max(CLASSES, key=lambda name: CLASSES[name][1])
    found.append(f"class of highest density: {truth}; by 2·count − n: {highest[0]}; corrected: {highest[1]}")
    return found
