"""The published sizes of the reported classes tell the label up to ε_lbl: exactly, and by a distinguisher that wins."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from accounting.mechanisms import LabelResponse
from accounting.numerics.pmf import binomial
from accounting.numerics.profile import Pair, symmetric_delta
from privkde.draws.randomness import private_randomness
from privkde.protocol.label_round import randomize_labels

SETTINGS = ((1_000, 2.0, 8.0), (1_000, 1.0, 5.0), (30_000, 2.0, 8.0))
"""n, ε of the features, ε_lbl."""
RUNS, LEVEL = 4_000, 1e-6


def size_pair(n_users: int, response: LabelResponse) -> Pair:
    """Laws of the size of reported class 1 if the target's label is 1 or 0 and everybody else's is 0."""
    keep, other = response.keep_probability, response.other_probability
    rest = binomial(n_users - 1, other)
    same, more = np.append(rest.values, 0.0), np.insert(rest.values, 0, 0.0)
    return Pair(
        upper=(1.0 - keep) * same + keep * more, lower=(1.0 - other) * same + other * more, missing=rest.missing
    )


def empty_runs(label: int, n_users: int, response: LabelResponse, seed: int) -> int:
    """In how many runs of the library's label round nobody reports class 1."""
    stream = private_randomness(insecure_seed=seed)
    labels = np.zeros(n_users, np.int64)
    labels[0] = label
    return sum(not randomize_labels(labels, response, stream=stream.child(run)).any() for run in range(RUNS))


def distinguisher(n_users: int, epsilon: float, label_epsilon: float) -> list[str]:
    """Guess label 0 if nobody reports class 1; Clopper–Pearson bounds for the δ that this forces."""
    response = LabelResponse(n_classes=2, label_epsilon=label_epsilon)
    zero, one = (empty_runs(label, n_users, response, seed=2 + label) for label in (0, 1))
    low = float(special.betaincinv(zero, RUNS - zero + 1, LEVEL / 2.0))
    high = float(special.betaincinv(one + 1, RUNS - one, 1.0 - LEVEL / 2.0))
    return [
        f"{RUNS:,} runs of the label round each, n={n_users:,}: class 1 stays empty {zero:,} times if the label is 0,"
        f" {one} times if it is 1",
        f"so δ({epsilon:g}) ≥ {low - math.exp(epsilon) * high:.2f} with confidence 1 − {LEVEL:g}, where"
        f" ({epsilon:g}, 1e-06) is claimed",
    ]


def lines() -> list[str]:
    """Exact δ that the sizes alone force, then the distinguisher for the first setting."""
    text = ["two classes, all others have label 0; exact δ(ε) of the published class sizes, label 0 against 1:"]
    for n_users, epsilon, label_epsilon in SETTINGS:
        response = LabelResponse(n_classes=2, label_epsilon=label_epsilon)
        delta = symmetric_delta([size_pair(n_users, response)], epsilon)
        beyond = symmetric_delta([size_pair(n_users, response)], label_epsilon)
        text.append(
            f"n={n_users:6,}, ε_lbl={label_epsilon:g}: δ({epsilon:g}) = {delta:.2g};"
            f" δ({label_epsilon:g}) < {max(1e-12, 2.0 * beyond):.0e}"
        )
    return text + distinguisher(*SETTINGS[0])
