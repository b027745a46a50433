"""The adaptive filter: no strategy exceeds the promise, and it costs little more than a fixed list."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Adjacency, Guarantee, InvalidInputError, View
from accounting.releases.adaptive import AdaptiveFilter, Price
from accounting.releases.composing import basic_epsilon, spent
from accounting.releases.profile_points import Profile
from accounting.releases.release import Part, Release
from tests.accounting.releases.known_releases import SMALL, plain
from tests.plans import plan_for
from tests.strategies import searched
from verification.exact.adaptive_strategies import Admits, Counts, Entry, largest_delta

STEP = 0.1


def worst_of(entry: Entry) -> Release:
    return plain(round(entry.steps * STEP, 9), entry.delta)


def releases_of(menu: tuple[Entry, ...], first: int, counts: Counts) -> list[Release]:
    """So many of each entry, one of the `first` kind first."""
    others = [worst_of(entry) for entry, count in zip(menu, counts, strict=True) for _ in range(count)]
    others.remove(worst_of(menu[first]))
    return [worst_of(menu[first]), *others]


def filter_rule(rule: AdaptiveFilter, menu: tuple[Entry, ...]) -> Admits:
    return cache(lambda first, counts: rule.spent(releases_of(menu, first, counts)) <= rule.epsilon)


def fixed_rule(epsilon: float, delta: float, menu: tuple[Entry, ...]) -> Admits:
    """Lists that would keep the promise if they were fixed beforehand, exactly."""

    @cache
    def admits(first: int, counts: Counts) -> bool:
        laws, infinite = {0: 1.0}, 0.0
        for entry, count in zip(menu, counts, strict=True):
            for _ in range(count):
                infinite += entry.delta * sum(laws.values())
                after: dict[int, float] = {}
                for loss, mass in laws.items():
                    for steps, share in entry.outcomes(STEP):
                        after[loss + steps] = after.get(loss + steps, 0.0) + mass * share
                laws = after
        return infinite + sum(p * max(0.0, -math.expm1(epsilon - x * STEP)) for x, p in laws.items()) <= delta

    return admits


@searched(
    given(
        st.lists(st.tuples(st.integers(1, 8), st.sampled_from([0.0, 1e-4, 2e-3])), min_size=1, max_size=2, unique=True),
        st.floats(0.5, 2.0),
        st.sampled_from([1e-1, 1e-2, 1e-3]),
    ),
    examples=15,
    study=25,
)
def test_no_adaptive_strategy_exceeds_the_promise(kinds: list[tuple[int, float]], epsilon: float, delta: float) -> None:
    menu = tuple(Entry(steps=steps, delta=each) for steps, each in kinds)
    rule = AdaptiveFilter.for_budget(epsilon, delta)
    assert largest_delta(menu, STEP, filter_rule(rule, menu), epsilon) <= delta


@pytest.mark.parametrize(
    ("menu", "epsilon", "delta", "times"),
    [
        ((Entry(steps=2), Entry(steps=5)), 1.5, 1e-2, 1.4),
        ((Entry(steps=1), Entry(steps=8), Entry(steps=4), Entry(steps=2, delta=9e-4)), 2.0, 1e-3, 2.7),
    ],
)
def test_lists_that_hold_when_fixed_do_not_hold_when_chosen(
    menu: tuple[Entry, ...], epsilon: float, delta: float, times: float
) -> None:
    """The old default: the exact composition of whatever was released. A strategy reaches 2.7 times the promised δ."""
    assert largest_delta(menu, STEP, fixed_rule(epsilon, delta, menu), epsilon) > times * delta
    rule = AdaptiveFilter.for_budget(epsilon, delta)
    assert 0.0 < largest_delta(menu, STEP, filter_rule(rule, menu), epsilon) <= delta


def test_cuts_that_are_not_added_up_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    menu = (Entry(steps=2, delta=1e-3),)
    monkeypatch.setattr(AdaptiveFilter, "cut_allowance", property(lambda _: math.inf))
    rule = AdaptiveFilter.for_budget(1.5, 1e-2)
    assert largest_delta(menu, STEP, filter_rule(rule, menu), 1.5) > 1e-2


def test_the_search_finds_what_a_fixed_list_reaches() -> None:
    """With one entry there is nothing to choose but when to stop, which does not help: k worst pairs are reached."""
    menu, epsilon = (Entry(steps=3, delta=1e-3),), 0.5
    reached = largest_delta(menu, STEP, lambda _, counts: counts[0] <= 4, epsilon)
    ups = np.arange(5)
    up = 0.999 / (1.0 + math.exp(-0.3))
    laws = np.array([math.comb(4, k) * up**k * (0.999 - up) ** (4 - k) for k in ups])
    tail = np.maximum(0.0, -np.expm1(epsilon - 0.3 * (2 * ups - 4)))
    assert reached == pytest.approx(float(laws @ tail) + 1.0 - 0.999**4, rel=1e-12)


WEEK: dict[str, Any] = {
    **SMALL, "users": 20_000, "dim": 16, "kernel": "inner-product", "repetitions": None, "accountant": "geometric",
    "classes": 4, "labels": "joint", "epsilon": 0.4, "delta": 1e-10,
}  # fmt: skip


@pytest.fixture(scope="module")
def weekly() -> Release:
    return Release.of_plan("week", plan_for(**WEEK))


def test_a_year_costs_little_more_than_when_it_is_fixed(weekly: Release) -> None:
    """At most 1.15 times; by profiles alone it would cost over 1.05 times as much."""
    fixed = spent([weekly] * 52, 1e-8)
    rule = AdaptiveFilter.for_budget(1.05 * fixed.epsilon, 1e-8)
    assert fixed.renyi < fixed.pld / 1.05
    assert fixed.epsilon <= rule.spent([weekly] * 52) <= 1.15 * fixed.epsilon


def test_no_cliff_in_delta() -> None:
    """A regression: stored profiles ended at 2 % of δ, so that the fiftieth such release cost everything."""
    request: dict[str, Any] = {**WEEK, "epsilon": 0.35, "delta": 1e-8}
    week = Release.of_plan("week", plan_for(**request))
    rule = AdaptiveFilter.for_budget(20.0, 1e-8)
    for count in (49, 50, 51, 99):
        assert spent([week] * count, 1e-8).epsilon < 0.35 * count
        assert rule.spent([week] * count) < 0.35 * count


def test_a_release_of_the_budgets_own_size_fits_and_sums_count_from_then_on() -> None:
    rule = AdaptiveFilter.for_budget(4.0, 1e-6)
    assert rule.spent([plain(4.0, 1e-6)]) == 4.0
    assert rule.spent([plain(3.9, 1e-6), plain(0.1)]) == 4.0
    assert rule.spent([plain(3.9, 1e-6), plain(0.2)]) > 4.0
    assert rule.delta_spent([plain(3.9, 1e-6)]) == 1e-6


def test_pure_releases_add_up_exactly() -> None:
    rule = AdaptiveFilter.for_budget(1.0, 0.0)
    assert rule.spent([plain(0.1)] * 10) == 1.0
    assert rule.spent([plain(0.1, 1e-9)]) == math.inf


def test_spending_grows(weekly: Release) -> None:
    rule = AdaptiveFilter.for_budget(4.0, 1e-6)
    path = [weekly] * 6 + [plain(0.2, 1e-9), plain(0.4)]
    readings = [(rule.spent(path[:k]), rule.delta_spent(path[:k])) for k in range(len(path) + 1)]
    assert readings[0] == (0.0, 0.0)
    for before, after in itertools.pairwise(readings):
        assert all(x <= y for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("longest", [6, pytest.param(9, marks=pytest.mark.slow)])
def test_what_is_spent_holds_whenever_one_stops_to_read_it(longest: int) -> None:
    """Σ (P − e^reading Q)₊ ≤ δ for the best rule to choose and to stop, by going back from the end."""
    rule, menu = AdaptiveFilter.for_budget(1.5, 1e-2), (Entry(steps=2), Entry(steps=5, delta=1e-3))

    @cache
    def beyond(first: int | None, counts: Counts, loss: int) -> float:
        reading = 0.0 if first is None else rule.spent(releases_of(menu, first, counts))
        value = max(0.0, -math.expm1(reading - loss * STEP))
        for i, entry in enumerate(menu):
            after, start = (counts[0] + (i == 0), counts[1] + (i == 1)), i if first is None else first
            if sum(after) <= longest and math.isfinite(rule.spent(releases_of(menu, start, after))):
                outcomes = entry.outcomes(STEP)
                value = max(value, entry.delta + sum(p * beyond(start, after, loss + steps) for steps, p in outcomes))
        return value

    assert 0.0 < beyond(None, (0, 0), 0) <= 1e-2


def test_a_first_release_that_brings_in_sums_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first release may bring in sums. A rule that lets each list keep either of the two is refuted."""
    rule, menu = AdaptiveFilter.for_budget(1.5, 1e-2), (Entry(steps=1, delta=1e-2), Entry(steps=2))
    assert rule.by_sums([worst_of(menu[0])])
    assert not rule.by_sums([worst_of(menu[1])])
    assert 0.99e-2 < largest_delta(menu, STEP, filter_rule(rule, menu), 1.5) <= 1e-2

    @cache
    def either(first: int, counts: Counts) -> bool:
        releases = releases_of(menu, first, counts)
        return min(rule.spent(releases), basic_epsilon(releases, rule.delta)) <= rule.epsilon

    monkeypatch.setattr(AdaptiveFilter, "by_sums", lambda *_: False)
    assert largest_delta(menu, STEP, either, 1.5) > 1.1e-2


def test_mass_that_underflows_is_not_forgotten() -> None:
    """P's mass of 1e-290 at a ratio of e^150 has a Q-mass below the smallest number; it must be cut or count."""
    profile = Profile(points=((0.0, 1.5e-290), (150.0, 1e-290), (200.0, 0.0)))
    promise = Guarantee(epsilon=200.0, delta=0.0, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)
    rare = Release(name="rare", guarantee=promise, parts=(Part(profile=profile),))
    for delta in (1e-299, 1e-280, 1e-250):
        rule = AdaptiveFilter.for_budget(100.0, delta)
        assert (rule.spent([rare]) <= 100.0) <= (profile.delta(100.0) <= delta)


def test_prices_that_were_paid_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that prices differently changes what the next release costs, not what the last one did."""
    rule, releases = AdaptiveFilter.for_budget(4.0, 1e-6), [plain(0.2, 1e-9), plain(0.3)]
    paid = [rule.price(release) for release in releases]
    before = rule.spent(releases), rule.delta_spent(releases)
    monkeypatch.setattr(AdaptiveFilter, "price", lambda *_: Price(cut=0.0, rho=1.0, largest_loss=math.inf))
    assert (rule.spent(releases, paid), rule.delta_spent(releases, paid)) == before
    assert rule.spent(releases) != before[0]
    assert rule.spent([*releases, plain(0.1)], paid) > before[0]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 5e-324), (0.01, 1e-6), (1e-6, 1e-300)])
def test_budgets_without_room_for_a_tail_take_what_adds_up(epsilon: float, delta: float) -> None:
    rule = AdaptiveFilter.for_budget(epsilon, delta)
    assert rule.spent([plain(epsilon / 4.0)] * 4) <= epsilon
    assert rule.spent([plain(epsilon / 4.0)] * 5) > epsilon
    assert rule.spent([plain(epsilon / 4.0, delta / 16.0)] * 4) <= epsilon


def test_an_order_is_checked() -> None:
    with pytest.raises(InvalidInputError, match="order"):
        AdaptiveFilter(epsilon=1.0, delta=1e-6, order=1.0)


@given(st.floats(0.01, 3.0), st.sampled_from([0.0, 1e-9]), st.floats(0.5, 8.0))
@settings(max_examples=20, deadline=None)
def test_no_moment_is_dearer_than_the_largest_loss(epsilon: float, delta: float, budget: float) -> None:
    """P̂ ≤ e^λ Q, so ρ ≤ (α−1)λ; a profile of few points alone gives more."""
    rule = AdaptiveFilter.for_budget(budget, 1e-6)
    profile = Profile(points=((0.0, 1.0), (epsilon, delta)))
    promise = Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)
    price = rule.price(Release(name="coarse", guarantee=promise, parts=(Part(profile=profile),)))
    assert price.rho <= (rule.order - 1.0) * price.largest_loss * (1.0 + 1e-8)
