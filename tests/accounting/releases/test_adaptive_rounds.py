"""A plan whose results appear over time, among other releases, while records react: Lemma 5 by full enumeration.

A round, or another release, is one of several pairs of laws (P, Q), chosen after everything that was seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Pair = tuple[tuple[float, float], ...]
"""Each outcome's probabilities under P and under Q."""


def profile(pair: Pair, gamma: float) -> float:
    return math.fsum(max(p - gamma * q, 0.0) for p, q in pair)


def product(first: Pair, second: Pair) -> Pair:
    return tuple((p * r, q * s) for (p, q), (r, s) in itertools.product(first, second))


def dominating(pairs: Sequence[Pair]) -> Pair:
    """The pair whose profile is the largest of these profiles everywhere (Proposition 3a): its kinks are its ratios."""
    kinks = sorted({0.0} | {p / q for pair in pairs for p, q in pair if q > 0.0})
    for left, right in itertools.pairwise(tuple(kinks)):
        for one, other in itertools.combinations(pairs, 2):
            before, after = (profile(one, at) - profile(other, at) for at in (left, right))
            if before * after < 0.0:
                kinks.append(left + (right - left) * before / (before - after))
    ratios = np.unique(np.round(kinks, 9))  # chords between fewer kinks are no lower
    largest = np.array([max(profile(pair, gamma) for pair in pairs) for gamma in ratios])
    slopes = np.concatenate([[-1.0], np.diff(largest) / np.diff(ratios), [0.0]])
    lower = np.maximum(np.diff(slopes), 0.0)
    return (*zip((ratios * lower).tolist(), lower.tolist(), strict=True), (float(largest[-1]), 0.0))


def answered_over_time(rounds: Sequence[Sequence[Pair]]) -> Pair:
    """What dominates all rounds together if each is chosen after the earlier ones were seen."""
    whole: Pair = ((1.0, 1.0),)
    for choices in reversed(rounds):
        whole = dominating([product(pair, whole) for pair in choices])
    return whole


def fixed_beforehand(rounds: Sequence[Sequence[Pair]]) -> Pair:
    """What dominates all rounds together if they are chosen before any was seen."""
    lists: list[Pair] = [((1.0, 1.0),)]
    for choices in rounds:
        lists = [product(whole, pair) for whole in lists for pair in choices]
    return dominating(lists)


def reached(menus: Sequence[Sequence[Sequence[Pair]]], gamma: float) -> float:
    """The largest Σ(P − γQ)₊ by any strategy that takes the next step of any of these sequences, or stops."""
    value = max(1.0 - gamma, 0.0)
    for i, steps in enumerate(menus):
        if steps:
            left = [*menus[:i], steps[1:], *menus[i + 1 :]]
            value = max(value, *(_after(left, pair, gamma) for pair in steps[0]))
    return value


def _after(left: Sequence[Sequence[Sequence[Pair]]], pair: Pair, gamma: float) -> float:
    return math.fsum(p * reached(left, gamma * q / p) for p, q in pair if p > 0.0)


probabilities = st.floats(0.05, 0.95)
pairs = st.tuples(probabilities, probabilities, st.sampled_from([0.0, 0.05])).map(
    lambda x: (((1 - x[2]) * x[0], x[1]), ((1 - x[2]) * (1.0 - x[0]), 1.0 - x[1]), (x[2], 0.0))
)
menu = st.lists(pairs, min_size=1, max_size=2)


@given(menu, menu, menu, st.floats(0.3, 4.0))
@settings(max_examples=200, deadline=None)
def test_all_rounds_may_be_drawn_before_anything_is_seen(
    first: list[Pair], second: list[Pair], others: list[Pair], gamma: float
) -> None:
    """One other release, before, between or after two rounds, and chosen by what was seen."""
    drawn = answered_over_time([first, second])
    bound = reached([[[drawn]], [others]], gamma)
    assert reached([[first, second], [others]], gamma) <= bound * (1.0 + 1e-9) + 1e-12


def test_a_profile_for_records_that_do_not_react_is_refuted() -> None:
    """The planted fault: the second round's pair is chosen after the first was seen, and only fixed ones are priced."""
    weak: Pair = ((0.6, 0.4), (0.4, 0.6))
    strong: Pair = ((0.1, 0.0), (0.45, 0.5), (0.45, 0.5))
    rounds, gamma = [[weak], [weak, strong]], 1.2
    truth = reached([rounds, [[weak]]], gamma)
    assert truth <= reached([[[answered_over_time(rounds)]], [[weak]]], gamma) * (1.0 + 1e-9)
    assert truth > 1.01 * reached([[[fixed_beforehand(rounds)]], [[weak]]], gamma)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.7, 3.0])
def test_the_dominating_pair_has_the_largest_profile(gamma: float) -> None:
    choices: list[Pair] = [((0.6, 0.4), (0.4, 0.6)), ((0.1, 0.0), (0.45, 0.5), (0.45, 0.5))]
    largest = max(profile(pair, gamma) for pair in choices)
    assert profile(dominating(choices), gamma) == pytest.approx(largest, abs=1e-8)
