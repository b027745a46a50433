"""Evidence: what confirms a claim, which query is worst, and the points that the document lists."""

from __future__ import annotations

import dataclasses

import pytest

from tests.verification.stand_ins import ATTACK, BOUNDS, ERRORS
from verification.evidence import AttackBounds


@pytest.mark.parametrize(("upper", "proved"), [(None, False), (0.5, True), (1.0, True), (1.0000001, False)])
def test_only_an_upper_bound_that_is_not_above_the_claim_proves_it(upper: float | None, proved: bool) -> None:
    assert BOUNDS.claimed == 1.0
    assert dataclasses.replace(BOUNDS, upper=upper).proved is proved


def test_points_below_come_before_points_above_even_if_delta_rises() -> None:
    single = dataclasses.replace(BOUNDS, below=((0.0, 0.0),), above=((4.0, 0.0),))
    assert single.curve == ((0.0, 0.0), (4.0, 0.0)), "of pure plans"
    assert BOUNDS.curve == (*BOUNDS.below, *BOUNDS.above)


def test_an_attack_reaches_a_share_of_its_promise() -> None:
    half = dataclasses.replace(ATTACK, epsilon=0.5 * ATTACK.promise.epsilon)
    assert half.reached == 0.5
    document = AttackBounds(attacks=(ATTACK, half), closest=half, curve=()).to_json()
    assert [attack["epsilon"] for attack in document["attacks"]] == [ATTACK.epsilon, half.epsilon]
    assert document["closest"]["promise"] == ATTACK.promise.to_json()


def test_the_worst_query_has_the_largest_measured_error() -> None:
    assert ERRORS.worst == ERRORS.queries[0]
    assert dataclasses.replace(ERRORS, bound=None).curve == ERRORS.curve[1:]
