"""The composition ladder: formulas against mpmath, composed laws against enumeration, published calibrations."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import fft

from accounting.composition import LADDER, Advanced, Basic, Paper, PrivacyLossComposition, Rung, Target, Touched
from accounting.composition.advanced import advanced_epsilon, instance_epsilon_for
from accounting.composition.pld import LARGEST_BLOCK, block_sizes
from accounting.composition.rung import log_ratio
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.mechanisms import (
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
    randomized_response,
)
from accounting.mechanisms.randomized_response import lemma_4_8, lemma_4_8_epsilon
from accounting.numerics.profile import LossGrid, Pair
from tests.slow_twins import compose, repeated_response_delta
from tests.strategies import deltas, epsilons, flip_probabilities, searched, user_counts
from verification.exact.rational_twins import ExactPair, response_pairs

PLD = PrivacyLossComposition()
SOUND_RUNGS: tuple[Rung, ...] = (Basic(), Advanced(), PLD)


def touched(total: int) -> Touched:
    return Touched(groups=total, per_group=1)


def rr(n_users: int, flip_probability: float | Fraction) -> RandomizedResponse:
    return RandomizedResponse(n_users=n_users, flip_probability=float(flip_probability))


def claimed_delta(rung: Rung, law: BitsumProtocol, times: int, epsilon: float, near_delta: float) -> float:
    """δ(ε) that a rung proves: its excess is relative to some δ that the caller has in mind."""
    return near_delta * math.exp(rung.excess(law, touched(times), epsilon, near_delta, certified=True))


def gamma(epsilon: float) -> Fraction:
    return Fraction(math.exp(epsilon))


# --- Lemma 4.8 ------------------------------------------------------------------------------------


def seam(delta: float, n_users: int) -> float:
    return math.sqrt(192.0 * math.log(4.0 / delta) / n_users)


@given(deltas(), user_counts(10**9, 2))
def test_both_branches_meet_at_a_third_of_the_users(delta: float, n_users: int) -> None:
    """λ = n/3, so p = λ/2n = 1/6, from the left and from the right."""
    at = seam(delta, n_users)
    for epsilon in (at * (1 - 1e-12), at, at * (1 + 1e-12)):
        assert lemma_4_8(epsilon, delta, n_users) == pytest.approx(1 / 6, rel=1e-10)


@given(deltas(), user_counts(10**9, 2), st.floats(-3, 3).map(lambda x: 10.0**x), st.floats(1e-9, 1e-3))
def test_the_lemma_is_continuous_and_decreasing(delta: float, n_users: int, scale: float, step: float) -> None:
    """Neighboring ε have neighboring p: |d ln(p)/d ln(ε)| ≤ 2 on the one branch and on the other."""
    at = scale * seam(delta, n_users)
    here, there = lemma_4_8(at, delta, n_users), lemma_4_8(at * (1 + step), delta, n_users)
    assert 0.0 < there <= here < 0.5
    assert here - there <= 2.5 * step * here + 1e-15


@given(deltas(), user_counts(10**9, 2), st.floats(-2, 2).map(lambda x: 10.0**x))
@example(1e-6, 30_000, 1.0)
def test_the_inverse_of_the_lemma_inverts_it(delta: float, n_users: int, scale: float) -> None:
    epsilon = scale * seam(delta, n_users)
    p = lemma_4_8(epsilon, delta, n_users)
    assert lemma_4_8_epsilon(p, delta, n_users) == pytest.approx(epsilon, rel=1e-12 + 1e-15 / (0.5 - p))


@given(deltas(), user_counts(10**9, 2), flip_probabilities(0.001, 0.499))
def test_the_lemma_inverts_its_inverse(delta: float, n_users: int, p: float) -> None:
    epsilon = lemma_4_8_epsilon(p, delta, n_users)
    assert lemma_4_8(epsilon, delta, n_users) == pytest.approx(p, rel=1e-11)
    assert (p <= 1 / 6) == (epsilon >= seam(delta, n_users) * (1 - 1e-12)) or p == pytest.approx(1 / 6)


# --- advanced composition -------------------------------------------------------------------------


def precise_advanced(epsilon: float, times: int, slack: float) -> Any:
    """ε₀(e^{ε₀} − 1)k + ε₀ sqrt(2k ln(1/δ')) at 40 digits."""
    with mpmath.workdps(40):
        e, d = mpmath.mpf(epsilon), mpmath.mpf(slack)
        return e * mpmath.expm1(e) * times + e * mpmath.sqrt(2 * times * mpmath.log(1 / d))


@given(st.floats(1e-6, 50.0), st.integers(1, 10**6), deltas(-300.0, -0.1))
def test_the_advanced_formula(epsilon: float, times: int, slack: float) -> None:
    exact = precise_advanced(epsilon, times, slack)
    assert float(abs(advanced_epsilon(epsilon, times, slack) / exact - 1)) < 1e-14


def test_an_absurd_instance_is_infinite_rather_than_an_overflow() -> None:
    assert advanced_epsilon(1000.0, 5, 1e-6) == math.inf


@given(st.floats(1e-3, 100.0), st.integers(1, 10**6), deltas())
def test_the_instance_epsilon_is_safe_and_tight(epsilon: float, times: int, slack: float) -> None:
    found = instance_epsilon_for(epsilon, times, slack)
    assert found > 0.0
    assert precise_advanced(found, times, slack) <= epsilon * (1 + 1e-15)
    assert precise_advanced(found * (1 + 1e-13), times, slack) > epsilon * (1 - 1e-15)


def test_the_rungs_split_delta_as_they_say() -> None:
    law, k, epsilon, delta = rr(300, 0.3), 20, 1.5, 1e-5
    for found, (epsilon_0, delta_0) in (
        (Basic().instance_point(law, touched(k), epsilon, delta), (epsilon / k, delta / k)),
        (
            Advanced().instance_point(law, touched(k), epsilon, delta),
            (instance_epsilon_for(epsilon, k, delta / 2), delta / 2 / k),
        ),
    ):
        assert found == pytest.approx((epsilon_0, delta_0), rel=1e-15)
    for rung in (Basic(), Advanced()):
        epsilon_0, delta_0 = rung.instance_point(law, touched(k), epsilon, delta)
        expected = math.log(law.delta(epsilon_0) / delta_0)
        assert rung.excess(law, touched(k), epsilon, delta, certified=True) == pytest.approx(expected, rel=1e-12)
    implied = PLD.instance_point(law, touched(k), epsilon, delta)
    assert implied == (law.epsilon(delta / 2 / k), delta / 2 / k)


@pytest.mark.parametrize("rung", [Basic(), Advanced()])
def test_certified_counts_everybody_elses_data(rung: Rung) -> None:
    """A case where the ends are not the worst: searching sees less than certifying."""
    law, one = rr(37, 0.332), touched(1)
    assert rung.excess(law, one, 0.62, 1e-7, certified=False) < rung.excess(law, one, 0.62, 1e-7, certified=True)


@given(st.floats(1e-300, 1.0), st.floats(1e-300, 1.0))
def test_log_ratio(value: float, allowed: float) -> None:
    assert (log_ratio(value, allowed) <= 0.0) == (value <= allowed) or value == pytest.approx(allowed)
    assert log_ratio(0.0, allowed) <= 0.0
    assert log_ratio(value, 0.0) >= 0.0


# --- every rung bounds the truth ------------------------------------------------------------------


@cache
def exact_supremum(n_users: int, flip_probability: Fraction, times: int, epsilon: float) -> float:
    """The largest δ(ε) over all n^k sequences of m (m ↦ n − 1 − m reverses, so both directions too), in fractions."""
    return max(float(pair.hockey_stick(gamma(epsilon))) for pair in all_sequences(n_users, flip_probability, times))


@cache
def all_sequences(n_users: int, flip_probability: Fraction, times: int) -> list[ExactPair]:
    kinds = response_pairs(n_users, flip_probability)
    return [
        compose([kinds[m] for m in ms]) for ms in itertools.combinations_with_replacement(range(n_users), times)
    ]  # the order of instances does not matter


TINY = [
    (2, Fraction(1, 4), 5),
    (3, Fraction(1, 8), 3),
    (3, Fraction(7, 16), 4),
    (4, Fraction(3, 8), 3),
    pytest.param(3, Fraction(7, 16), 5, marks=pytest.mark.slow),
    pytest.param(4, Fraction(3, 8), 4, marks=pytest.mark.slow),
    pytest.param(5, Fraction(1, 4), 3, marks=pytest.mark.slow),
    pytest.param(6, Fraction(1, 4), 3, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("n_users", "p", "times"), TINY)
def test_the_composed_law_bounds_every_dataset_and_tightly(n_users: int, p: Fraction, times: int) -> None:
    """At most 10 % above: the accountant lets the others' data depend on earlier outputs, enumeration does not."""
    ratios = []
    for epsilon in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0):
        exact = exact_supremum(n_users, p, times, epsilon)
        claimed = claimed_delta(PLD, rr(n_users, p), times, epsilon, max(exact, 1e-12))
        assert exact <= claimed
        if exact > 1e-9:
            ratios.append(claimed / exact)
    assert len(ratios) >= 3
    assert max(ratios) < 1.10
    assert min(ratios) < 1.02


@pytest.mark.parametrize(
    ("rung", "n_users", "p", "times"),
    [(Basic(), *TINY[1]), *((rung, *one) for rung in (Basic(), Advanced()) for one in (TINY[0], *TINY[2:4]))],
)
def test_the_looser_rungs_bound_every_dataset(rung: Rung, n_users: int, p: Fraction, times: int) -> None:
    compared = 0
    for delta in (1e-1, 1e-2, 1e-4):
        epsilon = rung.achieved_epsilon(rr(n_users, p), touched(times), delta)
        assert epsilon is not None
        exact = exact_supremum(n_users, p, times, epsilon)
        assert exact <= delta
        compared += exact_supremum(n_users, p, times, epsilon / 4) > delta
    assert compared >= 1, "the claim was idle"


@pytest.mark.parametrize(
    ("n_users", "p", "epsilon"),
    [(8, Fraction(1, 8), 2.0), pytest.param(12, Fraction(5, 16), 1.3, marks=pytest.mark.slow)],
)
def test_equal_data_of_the_others_is_not_the_worst_of_two_instances(n_users: int, p: Fraction, epsilon: float) -> None:
    """Enumeration refutes the ends m ∈ {0, n − 1} even if directions are chosen adaptively; certifying covers it."""
    law, exact = rr(n_users, p), exact_supremum(n_users, p, 2, epsilon)
    ends = exact * math.exp(PLD.excess(law, touched(2), epsilon, exact, certified=False))
    assert ends < 0.9 * exact
    assert exact <= claimed_delta(PLD, law, 2, epsilon, exact) < 1.10 * exact


@pytest.mark.parametrize(
    ("times", "epsilons"),
    [(25, (1.5,)), *(pytest.param(times, (0.5, 1.5, 3.0), marks=pytest.mark.slow) for times in (25, 26))],
)
def test_two_blocks_bound_every_dataset(times: int, epsilons: tuple[float, ...]) -> None:
    """25 instances are blocks of 13 and of 12; sequences with some ones among the others, in fractions."""
    p = Fraction(7, 16)
    zero, one = response_pairs(2, p)
    assert [size for size, _ in block_sizes(times)] == ([13, 12] if times == 25 else [13])
    sequences = [compose([zero] * j + [one] * (times - j)) for j in (0, 6, 13, times)]
    ratios = []
    for epsilon in epsilons:
        exact = max(float(pair.hockey_stick(gamma(epsilon))) for pair in sequences)
        claimed = claimed_delta(PLD, rr(2, p), times, epsilon, exact)
        assert exact <= claimed
        ratios.append(claimed / exact)
        if times == 25:
            assert claimed < 0.999 * claimed_delta(PLD, rr(2, p), 26, epsilon, exact)
    assert max(ratios) < 1.15


@pytest.mark.parametrize("times", [2, 24, 25, 49, 100, 768])
def test_one_user_alone_composes_to_the_binomial(times: int) -> None:
    """n = 1: nobody to take a supremum over, so the composed law is exact but for the grid."""
    p = Fraction(15, 32)
    worst = 1.0
    for share in (0.1, 0.3, 0.5):
        epsilon = share * times**0.5
        exact = float(repeated_response_delta(p, times, epsilon))
        if exact > 1e-14:
            claimed = claimed_delta(PLD, rr(1, p), times, epsilon, exact)
            assert exact <= claimed
            worst = max(worst, claimed / exact)
    assert 1.0 < worst < 1.02


# --- the ladder -----------------------------------------------------------------------------------


protocols = st.one_of(
    st.builds(rr, user_counts(2000, 20), flip_probabilities(0.02, 0.45)),
    st.builds(PoissonNoise.with_rmse, st.floats(4.0, 60.0), user_counts(2000, 20)),
    st.builds(partial(NegativeBinomialNoise.with_rmse, continue_probability=0.5), st.floats(4.0, 60.0), user_counts(9)),
    st.builds(
        partial(ThreeNegativeBinomial.with_rmse, noise_shape=1, flood_shape=16.0, flood_ratio=16.0),
        st.floats(4.0, 60.0),
        user_counts(9),
    ),
)


@searched(given(protocols, st.integers(1, 120), deltas(-9.0, -3.0)), examples=15, study=60)
def test_the_exact_composition_is_the_tightest(law: BitsumProtocol, times: int, delta: float) -> None:
    found = {rung.name: rung.achieved_epsilon(law, touched(times), delta) for rung in SOUND_RUNGS}
    assert all(epsilon is not None for epsilon in found.values())
    basic, advanced, pld = (found[name] or 0.0 for name in ("basic", "advanced", "pld"))
    assume(math.isfinite(pld))
    assert pld <= basic * (1 + 1e-3)
    assert pld <= advanced * (1 + 1e-3)


def test_the_exact_composition_is_far_tighter() -> None:
    for law in (rr(500, 0.3), PoissonNoise(n_users=100, total_mean=300.0)):
        basic, advanced, pld = (rung.achieved_epsilon(law, touched(60), 1e-6) or 0.0 for rung in SOUND_RUNGS)
        assert 0.0 < pld < 0.4 * min(basic, advanced)


def test_one_instance_is_the_instance() -> None:
    law = rr(50, 0.2)
    assert (
        PLD.achieved_epsilon(law, touched(1), 1e-6)
        == law.epsilon(1e-6)
        == Basic().achieved_epsilon(law, touched(1), 1e-6)
    )
    assert PLD.excess(law, touched(1), 1.0, 1e-6, certified=True) == pytest.approx(math.log(law.delta(1.0) / 1e-6))


@searched(given(protocols, st.integers(2, 200), deltas(-12.0, -3.0)), examples=5, study=10)
def test_the_achieved_epsilon_is_where_the_excess_vanishes(law: BitsumProtocol, times: int, delta: float) -> None:
    for rung in SOUND_RUNGS:
        epsilon = rung.achieved_epsilon(law, touched(times), delta)
        if epsilon is None or not 0.0 < epsilon < 100.0:
            continue
        assert rung.excess(law, touched(times), epsilon * (1 + 2e-3), delta, certified=True) <= 0.0
        assert rung.excess(law, touched(times), epsilon * (1 - 2e-3), delta, certified=True) > 0.0


def test_more_instances_cost_more() -> None:
    for rung in SOUND_RUNGS:
        found = [rung.achieved_epsilon(rr(500, 0.3), touched(k), 1e-6) for k in (1, 2, 5, 24, 25, 60)]
        assert all(a is not None and b is not None and a < b for a, b in itertools.pairwise(found))


def test_grouping_only_matters_to_the_published_rung() -> None:
    law = rr(2000, 0.3)
    one, other = Touched(groups=12, per_group=2), Touched(groups=24, per_group=1)
    assert (one.total, other.total) == (24, 24)
    for rung in SOUND_RUNGS:
        assert rung.achieved_epsilon(law, one, 1e-6) == rung.achieved_epsilon(law, other, 1e-6)
    loose, tight = Paper().achieved_epsilon(law, one, 1e-6), Paper().achieved_epsilon(law, other, 1e-6)
    assert loose is not None
    assert tight is not None
    assert loose > tight


def test_the_ladder_names_every_rung_and_its_evidence() -> None:
    assert list(LADDER) == ["paper", "basic", "advanced", "pld", "geometric", "shifts"]
    sources = [rung.evidence.source for rung in LADDER.values()]
    assert len(set(sources)) == 6


@pytest.mark.parametrize(("groups", "per_group"), [(0, 1), (1, 0), (True, 1), (2.0, 1), (10**8, 1)])
def test_touched_instances_are_counted_in_whole_numbers(groups: object, per_group: object) -> None:
    with pytest.raises(InvalidInputError):
        Touched(groups=groups, per_group=per_group)  # type: ignore[arg-type]


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_hold_all_instances_and_no_more() -> None:
    for times in range(1, 20_000):
        sizes = block_sizes(times)
        assert sum(size * count for size, count in sizes) == times
        assert sum(count for _, count in sizes) == -(-times // LARGEST_BLOCK)
        assert 1 <= sizes[-1][0] <= sizes[0][0] <= LARGEST_BLOCK


# --- both directions ------------------------------------------------------------------------------


def optimistic_deltas(pair: Pair, times: int, epsilons: Sequence[float], step: float = 2e-4) -> list[float]:
    """Lower bounds on δ(ε) of `times` copies: losses rounded down to a grid, then convolved.

    E[(1 − e^{ε−L})₊] increases in every loss; the transform's rounding (< 1e-12) is subtracted.
    """
    losses, masses = pair.losses(), pair.upper
    seen = masses > 0.0
    cells = np.floor(np.minimum(losses[seen], 40.0) / step).astype(np.int64)
    lowest = int(np.min(cells))
    law = np.bincount(cells - lowest, weights=masses[seen])
    length = (len(law) - 1) * times + 1
    size = fft.next_fast_len(length, real=True)
    composed = fft.irfft(fft.rfft(law, size) ** times, size)[:length]
    sums = (lowest * times + np.arange(length)) * step
    found = []
    for epsilon in epsilons:
        first = int(np.searchsorted(sums, epsilon, side="right"))
        found.append(float(np.sum(composed[first:] * -np.expm1(epsilon - sums[first:]))) - 1e-12)
    return found


def optimistic_delta(pair: Pair, times: int, epsilon: float) -> float:
    """The bound at one ε."""
    (found,) = optimistic_deltas(pair, times, [epsilon])
    return found


def test_the_optimistic_bound_is_one() -> None:
    p = Fraction(3, 8)
    exact = float(repeated_response_delta(p, 16, 2.0))
    assert 0.97 * exact < optimistic_delta(rr(1, p).pair(0), 16, 2.0) < exact


def test_one_direction_at_one_end_is_unsafe() -> None:
    """redteam.md: n = 30 000, 16 instances, (2, 1e-6).

    All others at 0 and (A_1‖A_0) only: p = 0.00244. The reversed direction needs 0.00288, the joined table
    0.00290; the accountant, which takes the supremum after every instance, finds 0.00289 or less.
    """
    n, k, epsilon, delta = 30_000, 16, 2.0, 1e-6

    def least_p(reverse: bool) -> float:
        """By an optimistic bound, so p cannot be smaller than this if that direction is to be safe."""
        low, high = 1e-3, 1e-2
        while high / low > 1.002:
            p = math.sqrt(low * high)
            pair = rr(n, p).pair(0)
            safe = optimistic_delta(pair.reversed() if reverse else pair, k, epsilon) <= delta
            low, high = (low, p) if safe else (p, high)
        return low

    ours = Target(rung=PLD, touched=touched(k), epsilon=epsilon, delta=delta).calibrate(
        partial(RandomizedResponse.with_rmse, n_users=n), certified=True
    )
    assert isinstance(ours, RandomizedResponse)
    forward, backward = least_p(reverse=False), least_p(reverse=True)
    assert forward == pytest.approx(0.00244, abs=1e-5)
    assert backward == pytest.approx(0.00288, abs=1e-5)
    assert forward < 0.86 * ours.flip_probability
    assert backward <= ours.flip_probability <= 1.006 * backward
    at_forward = rr(n, forward).pair(0).reversed()
    assert optimistic_delta(at_forward, k, epsilon) > 5 * delta
    assert optimistic_delta(rr(n, 0.99 * ours.flip_probability).pair(0).reversed(), k, epsilon) > delta


@pytest.mark.parametrize(
    "law",
    [
        rr(500, 0.1),
        PoissonNoise(n_users=100, total_mean=60.0),
        NegativeBinomialNoise(n_users=100, shape=40.0, continue_probability=0.5),
        ThreeNegativeBinomial.with_rmse(8.0, 100, noise_shape=1, flood_shape=16.0, flood_ratio=8.0),
        ThreeNegativeBinomial.with_rmse(8.0, 100, noise_shape=3, flood_shape=16.0, flood_ratio=4.0),
    ],
    ids=lambda law: f"{law.name}-{law.parameters().get('noise_shape', '')}",
)
def test_claims_lie_just_above_an_optimistic_bound(law: BitsumProtocol) -> None:
    """For every protocol: pessimistic and optimistic bounds of 16 instances leave a few percent between them."""
    (pair,) = law.pairs()
    some = (0.3, 1.0, 2.0)
    bounds = (optimistic_deltas(one, 16, some, step=4e-4) for one in (pair, pair.reversed()))
    for epsilon, *both in zip(some, *bounds, strict=True):
        below = max(both)
        above = claimed_delta(PLD, law, 16, epsilon, below)
        assert below > 1e-9
        assert below <= above <= 1.06 * below


# --- published calibrations -----------------------------------------------------------------------


def published(times: int, epsilon: float, delta: float) -> Target:
    return Target(rung=Paper(), touched=touched(times), epsilon=epsilon, delta=delta)


PAPERS, PAPERS_USERS = published(768, 2.0, 1e-6), 30_000


def test_the_published_calibration_of_rr_is_far_from_what_is_needed() -> None:
    """theory.md: p = 0.489 and RMSE 3921, where the exact law of one instance allows 376."""
    found = PAPERS.design(RandomizedResponse, PAPERS_USERS)
    assert found.flip_probability == pytest.approx(0.489, abs=5e-4)
    assert found.rmse() == pytest.approx(3921, rel=2e-3)
    epsilon_0, delta_0 = Paper().instance_point(found, touched(768), 2.0, 1e-6)
    assert found.flip_probability == lemma_4_8(epsilon_0, delta_0, 30_000)
    assert found.delta(epsilon_0) <= delta_0
    assert Paper().excess(found, touched(768), 2.0, 1e-6, certified=True) < -10.0
    assert Paper().achieved_epsilon(found, touched(768), 1e-6) == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.25])
def test_a_doctored_lemma_is_refused(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomized_response, "lemma_4_8", lambda *arguments: factor * lemma_4_8(*arguments))
    with pytest.raises(InfeasibleError, match="does not keep its promise"):
        PAPERS.design(RandomizedResponse, PAPERS_USERS)


def test_searches_take_the_supremum_over_others_only_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes hundreds of times as long, and comparisons search for the number of users that a rung would need."""
    proved = []

    def counted(law: RandomizedResponse, epsilon: float) -> float:
        proved.append(epsilon)
        return law.likely_delta(epsilon)

    monkeypatch.setattr(RandomizedResponse, "delta", counted)
    found = PAPERS.design(RandomizedResponse, PAPERS_USERS, certified=False)
    assert not proved
    assert PAPERS.design(RandomizedResponse, PAPERS_USERS) == found
    assert proved
    monkeypatch.setattr(randomized_response, "lemma_4_8", lambda *arguments: 0.25 * lemma_4_8(*arguments))
    with pytest.raises(InfeasibleError, match="does not keep its promise"):
        PAPERS.design(RandomizedResponse, PAPERS_USERS, certified=False)


def test_a_doctored_inverse_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    law = PAPERS.design(RandomizedResponse, PAPERS_USERS)
    monkeypatch.setattr(
        randomized_response, "lemma_4_8_epsilon", lambda *arguments: 0.01 * lemma_4_8_epsilon(*arguments)
    )
    assert Paper().achieved_epsilon(law, touched(768), 1e-6) is None


@searched(
    given(user_counts(5_000, 100), st.integers(1, 300), epsilons(3.0, 0.3), deltas(-9.0, -3.0)), examples=3, study=30
)
def test_the_published_calibration_of_rr_keeps_its_promise(
    n_users: int, times: int, epsilon: float, delta: float
) -> None:
    law = published(times, epsilon, delta).design(RandomizedResponse, n_users)
    assert Paper().excess(law, touched(times), epsilon, delta, certified=True) <= 0.0
    achieved = Advanced().achieved_epsilon(law, touched(times), delta)
    assert achieved is not None
    assert achieved <= epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (0.5, 1e-8), (2.0, 1e-4)])
def test_the_published_three_negative_binomial_uses_the_least_flood(epsilon: float, delta: float) -> None:
    found = ThreeNegativeBinomial.as_published(epsilon, delta, 1000)
    assert found.noise_shape == 1
    assert found.continue_probability == pytest.approx(math.exp(-0.99 * epsilon), rel=1e-14)
    assert found.flood_shape == pytest.approx(3 * (1 + math.log(2 * math.exp(0.99 * epsilon) / delta)), rel=1e-13)
    assert 0.9 * delta < found.delta(epsilon) <= delta
    less = ThreeNegativeBinomial(
        n_users=1000,
        noise_shape=1,
        continue_probability=found.continue_probability,
        flood_shape=found.flood_shape,
        flood_continue_probability=found.flood_continue_probability**1.001,
    )
    assert less.delta(epsilon) > delta


def test_the_published_rung_builds_three_negative_binomials_and_pure() -> None:
    three = published(4, 2.0, 1e-5).design(ThreeNegativeBinomial, 1000)
    assert Paper().excess(three, touched(4), 2.0, 1e-5, certified=True) <= 0.0
    assert Paper().achieved_epsilon(three, touched(4), 1e-5) == pytest.approx(2.0, rel=1e-9)
    pure = published(2, 3.0, 0.0).design(Pure, 100)
    assert pure.epsilon_target == 1.5
    assert Paper().achieved_epsilon(pure, touched(2), 0.0) == 3.0
    assert Paper().instance_point(pure, touched(2), 3.0, 0.0) == (1.5, 0.0)
    assert Paper().excess(pure, touched(2), 3.0, 0.0, certified=True) <= 0.0
    assert Paper().excess(pure, touched(2), 2.9, 0.0, certified=True) > 0.0, "ε of the instances adds up to more"


@pytest.mark.parametrize("law", [PoissonNoise, NegativeBinomialNoise])
def test_protocols_without_a_publication_are_refused(law: type[BitsumProtocol]) -> None:
    with pytest.raises(InvalidInputError, match="no published calibration"):
        PAPERS.design(law, PAPERS_USERS)


@pytest.mark.parametrize(
    "law",
    [
        PoissonNoise(n_users=10, total_mean=50.0),
        ThreeNegativeBinomial.with_rmse(10.0, 10, noise_shape=2, flood_shape=16.0, flood_ratio=8.0),
    ],
)
def test_the_publication_says_nothing_about_other_laws(law: BitsumProtocol) -> None:
    assert Paper().achieved_epsilon(law, touched(3), 1e-6) is None


def test_pure_composes_by_adding_up() -> None:
    pure = Pure.as_published(1.5, 0.0, 100)
    add: Callable[[int], float | None] = lambda k: Basic().achieved_epsilon(pure, touched(k), 0.0)  # noqa: E731
    assert add(1) == 1.5
    assert add(10) == 15.0
    assert Basic().excess(pure, touched(10), 15.0, 0.0, certified=True) <= 0.0
    assert Basic().excess(pure, touched(10), 14.9, 0.0, certified=True) > 0.0


def test_a_grid_that_is_too_coarse_only_costs_accuracy() -> None:
    """The grid that `composed_loss` chooses is a choice of cost: doubling its step raises δ, a little."""
    law, times, epsilon = rr(50, 0.25), 12, 2.0
    fine = claimed_delta(PLD, law, times, epsilon, 1e-4)
    with pytest.MonkeyPatch.context() as patch:
        true_choice = LossGrid.for_pair

        def doubled(pair: Pair, *, n_compositions: int, negligible: float) -> LossGrid:
            grid = true_choice(pair, n_compositions=n_compositions, negligible=negligible)
            return LossGrid(step=4 * grid.step, n_steps=-(-grid.n_steps // 4))

        patch.setattr(LossGrid, "for_pair", staticmethod(doubled))
        coarse = claimed_delta(PLD, law, times, epsilon, 1e-4)
    assert fine < coarse < 1.05 * fine
