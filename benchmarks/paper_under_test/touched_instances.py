"""How many instances one user touches, and what that costs: exact laws, one-hot features, all others' data."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from privkde.kernels import KernelChoice
from verification.exact.rational_twins import ExactPair, Law, response_pairs, symmetric_hockey_stick

USERS, FLIP = 4, Fraction(1, 8)
GAMMAS = (Fraction(5, 4), Fraction(2), Fraction(5))
RECORDS = 100


def changed_instances() -> tuple[int, int, int]:
    """The most instances, over pairs of records, whose law differs; repetitions; all instances."""
    family = KernelChoice(name="laplacian", dim=3, repetitions=16, bias=0.05).build("00" * 16)
    grid = np.random.default_rng(1).uniform(-0.5, 0.5, (RECORDS, 3)).astype(np.float32)
    features = family.scaled_features(grid)
    most = max(int(np.sum(a != b)) for a, b in itertools.combinations(features, 2))
    return most, family.facts.n_repetitions, family.facts.n_instances


def _mixed(pair: ExactPair) -> Law:
    """The target's bit is a fair coin: what a zero coordinate becomes."""
    return tuple((a + b) / 2 for a, b in zip(pair.upper, pair.lower, strict=True))


def _both(first: Law, second: Law) -> Law:
    return tuple(a * b for a, b in itertools.product(first, second))


def moved(pairs: list[ExactPair], gamma: Fraction, *, coin: bool) -> Fraction:
    """The largest H_γ when the one of a one-hot vector moves from one instance to another.

    Zeros are sent as fair coins (Algorithm 1), or as bits 0 (which Algorithm 1 does not do).
    """
    largest = Fraction(0)
    for here, there in itertools.product(pairs, repeat=2):
        zeros = (_mixed(here), _mixed(there)) if coin else (here.lower, there.lower)
        replaced = ExactPair(upper=_both(here.upper, zeros[1]), lower=_both(zeros[0], there.upper))
        largest = max(largest, symmetric_hockey_stick([replaced], gamma))
    return largest


def lines() -> list[str]:
    """Counted on the library's hashed kernel, then exactly for shuffled randomized response."""
    most, repetitions, instances = changed_instances()
    pairs = response_pairs(USERS, FLIP)
    text = [
        f"laplacian kernel, I={repetitions}, Q={instances // repetitions}, S=1: replacing one of {RECORDS} records"
        f" changes the law of up to {most} of {instances} instances; I·S = {repetitions}, I·min(2S, Q) ="
        f" {2 * repetitions}",
        f"RR, n={USERS}, p={FLIP}, one repetition, S=1: exact δ at e^ε",
        "e^ε    one instance flips   one-hot moves, zeros are coins   one-hot moves, zeros are bits 0",
    ]
    for gamma in GAMMAS:
        flips = symmetric_hockey_stick(pairs, gamma)
        coins, bits = (moved(pairs, gamma, coin=coin) for coin in (True, False))
        text.append(f"{float(gamma):<5g}  {float(flips):<19.4f}  {float(coins):<31.4f}  {float(bits):.4f}")
    return text
