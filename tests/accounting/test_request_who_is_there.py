"""Users who stay away or collude: how many honest ones are counted on, and what brute force finds with them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting import InfeasibleError, InvalidInputError, PlanRequest, solve
from accounting.request import ALL_THERE
from tests.plans import plan_for

BASE: dict[str, Any] = {"dim": 2, "repetitions": 3, "epsilon": 2.0, "delta": 1e-5, "allow_useless": True}
TINY: dict[str, Any] = {"dim": 1, "repetitions": 1, "epsilon": 2.0, "delta": 0.02, "accountant": "pld"}
SHARES = st.decimals(min_value=0, max_value="0.49", places=3).map(float)


def of(users: int, **values: Any) -> PlanRequest:
    return PlanRequest(users=users, **BASE, **values)


@given(users=st.integers(200, 10**7), dropout=SHARES, colluders=SHARES)
@example(users=14, dropout=0.4, colluders=0.4)
@example(users=100, dropout=0.07, colluders=0.29)
def test_shares_leave_the_rest_and_one_more_user_never_lowers_it(users: int, dropout: float, colluders: float) -> None:
    """The most dropouts and colluders that shares allow are tolerated, and at most one more."""
    request, larger = (of(n, dropout=dropout, colluders=colluders) for n in (users, users + 1))
    most = [math.floor(Fraction(str(share)) * users) for share in (dropout, colluders)]
    assert request.n_colluders == most[1]
    assert 0 <= users - sum(most) - request.counted_users <= 1
    assert request.least_packets == request.counted_users + most[1] <= users - most[0]
    assert larger.counted_users >= request.counted_users


@given(users=st.integers(2_000, 10**6), dropout=st.integers(1, 900), colluders=st.integers(1, 900))
def test_numbers_are_taken_as_they_are(users: int, dropout: int, colluders: int) -> None:
    request = of(users, dropout=dropout, colluders=colluders)
    assert request.counted_users == users - dropout - colluders
    assert request.least_packets == users - dropout


def test_nobody_away_and_nobody_colluding_changes_nothing() -> None:
    plain = of(500)
    assert of(500, dropout=0, colluders=0) == plain
    assert of(500, **ALL_THERE) == plain
    assert (plain.counted_users, plain.n_colluders, plain.least_packets) == (500, 0, 500)
    assert not {"dropout", "colluders"} & plain.to_json().keys()
    least = of(500, min_users=300)
    assert (least.counted_users, least.n_colluders, least.least_packets) == (300, 0, 300)


def test_more_people_never_cost_more_noise_at_fixed_shares() -> None:
    plans = [plan_for(users=n, **BASE, dropout=0.3, colluders=0.05) for n in (100, 101, 102, 150, 400)]
    for fewer, more in itertools.pairwise(plans):
        assert more.parameters["flip_probability"] <= fewer.parameters["flip_probability"] * (1 + 1e-9)
    assert plans[0].parameters["flip_probability"] > 2.0 * plans[-1].parameters["flip_probability"]
    same = plan_for(users=100, **BASE, min_users=plans[0].request.counted_users)
    assert same.parameters == plans[0].parameters


def test_classes_with_a_response_of_their_own_are_counted_each() -> None:
    separate = {"classes": 4, "label_epsilon": 1.0}
    request = of(1_000, **separate, dropout=0.2, colluders=10)
    assert (request.users_per_protocol, request.counted_users, request.least_packets) == (250, 190, 200)
    joint = of(1_000, classes=4, labels="joint", dropout=0.2, colluders=10)
    assert (joint.counted_users, joint.least_packets) == (790, 800)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"min_users": 90, "dropout": 0.1}, InvalidInputError, "both say how many honest users there are"),
        ({"min_users": 90, "colluders": 3}, InvalidInputError, "give min_users, or the other two"),
        ({"dropout": 0.6, "colluders": 0.4}, InvalidInputError, "leave nobody to count on"),
        ({"dropout": 60, "colluders": 39}, InfeasibleError, "leave 1 to count on, and two are needed"),
        ({"dropout": 98, "colluders": 0.5}, InfeasibleError, "leave 0 to count on"),
        ({"dropout": 1.5}, InvalidInputError, "dropout=1.5 is neither a share below 1 nor a whole number"),
        ({"colluders": -0.1}, InvalidInputError, "colluders=-0.1"),
    ],
)
def test_what_leaves_nobody_or_says_it_twice_is_refused(values: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        of(100, **values)


def test_shares_hold_while_the_number_of_users_is_solved_for() -> None:
    wanted = {**{name: value for name, value in BASE.items() if name != "allow_useless"}, "accountant": "pld"}
    solved = solve("users", **wanted, target_error=1.0, dropout=0.5, colluders=0.2)
    request = solved.request
    assert (request.dropout, request.colluders) == (0.5, 0.2)
    assert request.counted_users == request.users - math.floor(Fraction(7, 10) * request.users)
    everybody = solve("users", **wanted, target_error=1.0)
    assert request.users > everybody.request.users


def test_the_contract_says_who_may_collude_and_for_whom_is_waited() -> None:
    plan = plan_for(users=100, **BASE, dropout=0.3, colluders=0.05)
    assert "at most 5 of those who take part tell what they sent or do not follow the protocol" in plan.contract.assumed
    assert any(text.startswith("nothing is released before 70 packets have come") for text in plan.contract.checked)
    assert any(text.startswith("at least 65 users other than colluders") for text in plan.contract.parts[-1].assumed)
    assert "Up to 5 of those who take part may collude, so 70 packets are waited for." in plan.explain()
    plan.verify()


def seen_delta(flip: float, n_honest: int, n_colluders: int, epsilon: float) -> float:
    """The largest δ of the count of ones and of each colluder's report, over the bits of all others, by enumeration."""
    users = n_honest + n_colluders
    largest = 0.0
    for others in itertools.product((0, 1), repeat=users - 1):
        laws: list[dict[tuple[int, ...], float]] = []
        for bit in (1, 0):
            law: dict[tuple[int, ...], float] = {}
            for reports in itertools.product((0, 1), repeat=users):
                told = zip(reports, (bit, *others), strict=True)
                chance = math.prod(1.0 - flip if report == held else flip for report, held in told)
                view = (sum(reports), *reports[n_honest:])
                law[view] = law.get(view, 0.0) + chance
            laws.append(law)
        for upper, lower in (laws, laws[::-1]):
            beyond = sum(max(chance - math.exp(epsilon) * lower[view], 0.0) for view, chance in upper.items())
            largest = max(largest, beyond)
    return largest


def test_with_known_colluders_brute_force_stays_within_the_promise() -> None:
    """Six are invited, one stays away, two tell the adversary their reports: three are counted on."""
    plan = plan_for(users=6, **TINY, dropout=1, colluders=2, allow_useless=True)
    flip = float(plan.parameters["flip_probability"])
    assert (plan.request.counted_users, plan.request.least_packets) == (3, 5)
    exact = seen_delta(flip, 3, 2, 2.0)
    assert 0.9 * 0.02 < exact <= 0.02
    assert seen_delta(flip, 2, 3, 2.0) > 0.02, "one colluder more is refuted"
