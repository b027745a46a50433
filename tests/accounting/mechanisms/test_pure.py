"""Pure: the exact test against two-dimensional enumeration and 50 digits, error, messages, local view, calibration."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import linalg, signal, stats

from accounting.contract import EvidenceKind
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.guarantee import Adjacency, View
from accounting.mechanisms import pure_condition, rebuild
from accounting.mechanisms.pure import Pure
from accounting.mechanisms.pure_condition import Draft, OneDimensionalTest
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import LossGrid, ProfileTable
from tests.memory import peak

TUNED = [(1.0, 2, 0.3), (1.0, 3, 0.5), (2.0, 3, 0.3), (0.5, 2, 0.5), (0.5, 3, 1.0), (3.0, 2, 0.1)]
SIZE = 56


def laplace_variance(epsilon: float) -> float:
    return 2.0 * math.exp(-epsilon) / (1.0 - math.exp(-epsilon)) ** 2


@cache
def tuned(epsilon: float, n_users: int, excess_error: float) -> Pure:
    return Pure.calibrate(epsilon, n_users, excess_error=excess_error)


# The slow twin: the law of (#+1, #−1), user by user, from the description of the protocol. All terms are positive,
# and cutting the tables at `size` leaves the entries inside exact.


def noise_law(protocol: Pure, size: int) -> Array:
    """One user's noise: its own "+1", its own "−1", its pairs."""
    k = np.arange(size)
    single = stats.nbinom.pmf(k, 1.0 / protocol.n_users, -math.expm1(-protocol.noise_epsilon))
    pairs = stats.nbinom.pmf(k, protocol.flood_shape / protocol.n_users, 1.0 - protocol.flood_continue_probability)
    law = np.zeros((size, size))
    for pair in range(size):
        rest = single[: size - pair]
        law[pair:, pair:] += pairs[pair] * np.outer(rest, rest)
    return law


def user_law(protocol: Pure, bit: int, size: int) -> Array:
    noise = noise_law(protocol, size)
    law = protocol.silence_probability * noise
    plus, minus = protocol.base_messages + bit, protocol.base_messages
    law[plus:, minus:] += (1.0 - protocol.silence_probability) * noise[: size - plus, : size - minus]
    return np.asarray(law)


def convolved(first: Array, second: Array) -> Array:
    """The entries of the two-dimensional convolution inside the table, row by row."""
    law = np.zeros_like(first)
    for i, row in enumerate(first):
        shifted = np.triu(linalg.toeplitz(row))  # row j: the row of the table, j places further
        law[i:] += second[: len(first) - i] @ shifted
    return law


def shuffled_law(protocol: Pure, bits: Sequence[int], size: int = SIZE) -> Array:
    law = user_law(protocol, bits[0], size)
    for bit in bits[1:]:
        law = convolved(law, user_law(protocol, bit, size))
    return law


def test_the_convolution_of_tables_is_one() -> None:
    first, second = np.random.default_rng(0).random((2, 7, 7))
    assert convolved(first, second) == pytest.approx(signal.convolve2d(first, second)[:7, :7], rel=1e-14)


def largest_loss(first: Array, second: Array) -> float:
    return float(np.max(np.abs(np.log(first) - np.log(second))))


SMALL: dict[str, Any] = {
    "n_users": 1,
    "epsilon_target": 1.0,
    "noise_epsilon": 0.9,
    "silence_probability": 0.05,
    "base_messages": 6,
    "flood_shape": 8.0,
    "flood_continue_probability": 0.7,
}


def instance(**changes: Any) -> Pure:
    """A small instance with some fields changed; raises if it is not private."""
    return Pure(**{**SMALL, **changes})


def unchecked(**changes: Any) -> Pure:
    """The same without the check, private or not."""
    protocol = object.__new__(Pure)
    for name, value in {**SMALL, **changes}.items():
        object.__setattr__(protocol, name, value)
    return protocol


class TestEnumeration:
    @pytest.mark.parametrize(("epsilon", "n_users", "excess_error"), TUNED)
    def test_loss_is_at_most_epsilon_whatever_the_others_hold(
        self, epsilon: float, n_users: int, excess_error: float
    ) -> None:
        protocol = tuned(epsilon, n_users, excess_error)
        worst = max(
            largest_loss(shuffled_law(protocol, (1, *others)), shuffled_law(protocol, (0, *others)))
            for others in itertools.combinations_with_replacement((0, 1), n_users - 1)
        )
        assert worst <= epsilon + 1e-9
        assert worst > 0.9 * epsilon  # not vacuous

    @pytest.mark.parametrize("n_users", [2, 3])
    def test_theory_example_with_a_gap(self, n_users: int) -> None:
        """ε = 1, ε' = 0.7, by conditions (i)–(iii): private, and the loss is well below ε here."""
        protocol = instance(
            n_users=n_users,
            noise_epsilon=0.7,
            silence_probability=0.25,
            base_messages=4,
            flood_shape=4.0,
            flood_continue_probability=0.8,
        )
        assert protocol.satisfies_conditions(protocol.smallest_threshold())
        for others in itertools.combinations_with_replacement((0, 1), n_users - 1):
            loss = largest_loss(shuffled_law(protocol, (1, *others)), shuffled_law(protocol, (0, *others)))
            assert 0.3 < loss <= 1.0 + 1e-9

    @pytest.mark.parametrize("n_users", [2, 3])
    def test_a_broken_variant_is_refuted_with_others_present(self, n_users: int) -> None:
        """One base message less, and the enumeration exceeds ε: the test above can fail."""
        good = tuned(1.0, n_users, 0.1)
        fields = {**good.parameters(), "base_messages": good.base_messages - 1}
        with pytest.raises(InvalidInputError, match="Theorem 2"):
            instance(**fields)
        others = (0,) * (n_users - 1)
        one, zero = (shuffled_law(unchecked(**fields), (bit, *others)) for bit in (1, 0))
        assert largest_loss(one, zero) > 1.005

    def test_shares_of_users_add_up_to_the_base_noise(self) -> None:
        """n shares NB(1/n, ·) and NB(r/n, ·) convolve to one user's noise at n = 1."""
        three = instance(n_users=3)
        share = noise_law(three, 40)
        total = signal.convolve2d(signal.convolve2d(share, share)[:40, :40], share)[:40, :40]
        np.testing.assert_allclose(total, noise_law(replace(three, n_users=1), 40), rtol=1e-10)


class TestExactTest:
    def test_equivalent_to_enumeration_of_the_base_noise(self) -> None:
        """Accepted exactly if the two-dimensional law keeps the loss at or below ε, both ways, on a family."""
        accepted, refused = 0, 0
        grid = itertools.product((0.6, 1.0), (0.02, 0.2), (0, 1, 2, 4, 7), (1.0, 3.5, 9.0), (0.3, 0.7))
        for noise_epsilon, silence, base, shape, continuing in grid:
            fields = {
                "noise_epsilon": noise_epsilon,
                "silence_probability": silence,
                "base_messages": base,
                "flood_shape": shape,
                "flood_continue_probability": continuing,
            }
            one, zero = (user_law(unchecked(**fields), bit, SIZE) for bit in (1, 0))
            loss = largest_loss(one, zero)
            try:
                protocol = instance(**fields)
            except InvalidInputError:
                assert loss > 1.0 - 1e-6, fields
                refused += loss > 1.01
            else:
                assert loss <= 1.0 + 1e-9, fields
                assert protocol.satisfies_exact_test()
                accepted += 1
        assert accepted >= 10
        assert refused >= 50

    @settings(max_examples=30)
    @given(
        fields=st.fixed_dictionaries(
            {
                "epsilon_target": st.floats(0.05, 8.0),
                "noise_epsilon": st.floats(0.3, 1.0),  # as a share of ε
                "silence_probability": st.floats(-14.0, -1.0).map(math.exp),
                "base_messages": st.integers(0, 60),
                "flood_shape": st.floats(1.0, 3000.0),
                "flood_continue_probability": st.floats(0.01, 0.99),
            }
        )
    )
    @example(
        fields={
            "epsilon_target": 1.0,
            "noise_epsilon": 0.93,
            "silence_probability": 7.7e-6,
            "base_messages": 85,
            "flood_shape": 1057.0,
            "flood_continue_probability": 0.904,
        }
    )
    def test_agrees_with_fifty_digits(self, fields: dict[str, Any]) -> None:
        """Filtered logarithms and the tightest u, against sums at 50 digits, whatever the verdict."""
        fields = {**fields, "noise_epsilon": fields["noise_epsilon"] * fields["epsilon_target"]}
        twin, base = unchecked(**fields), fields["base_messages"]
        test = OneDimensionalTest.of(twin._draft(), ahead=base)
        assume(len(test.log_rise) > 0)
        slack, tightest = test.slack(twin.silence_probability, base)
        precise = twin.precise_slack(tightest)
        assert precise is not None
        if tightest > test.start or test.start == 0:
            assert slack + test.margin == pytest.approx(precise, rel=1e-9, abs=1e-9)
        else:  # the first u of a window that starts late is tested more strictly
            assert slack <= precise
        for u in np.linspace(test.start, test.start + len(test.log_rise) - 1, 5).astype(int):
            other = twin.precise_slack(int(u))
            assert other is not None
            assert other >= slack - 1e-9

    @pytest.mark.parametrize("shape", [1.0, 2.5, 40.0])
    def test_window_agrees_with_the_definition_of_a(self, shape: float) -> None:
        protocol = instance(flood_shape=shape, base_messages=0, silence_probability=0.9)
        test = OneDimensionalTest.of(protocol._draft(), ahead=10)
        square, p = math.exp(-1.8), protocol.flood_continue_probability
        with mpmath.workdps(30):
            flood = [
                mpmath.binomial(k + shape - 1, k) * (1 - mpmath.mpf(p)) ** shape * mpmath.mpf(p) ** k
                for k in range(test.start + 40)
            ]
            a = [mpmath.fsum(square**j * flood[u - j] for j in range(u + 1)) for u in range(test.start + 40)]
        expected = np.array([float(mpmath.log(a[test.start + i] / a[test.start])) for i in range(40)])
        np.testing.assert_allclose(test.log_level[:40] - test.log_level[0], expected, rtol=1e-11, atol=1e-11)

    def test_smallest_base_is_where_the_verdict_changes(self) -> None:
        """Acceptance is an interval in s, and `smallest_base` is its lower end."""
        draft = tuned(1.0, 2, 0.1)._draft()
        test = OneDimensionalTest.of(draft, ahead=80)
        smallest = math.ceil(test.smallest_base(draft.silence))
        verdicts = [test.slack(draft.silence, base)[0] >= 0.0 for base in range(80)]
        assert verdicts.index(True) == smallest
        changes = sum(a != b for a, b in itertools.pairwise(verdicts))
        assert changes == 2  # too few, enough, too many

    def test_red_team_parameters(self) -> None:
        """The published figure s = 85 is the smallest for its r, p_f, ε', q."""
        fields: dict[str, Any] = {
            "n_users": 10_000,
            "noise_epsilon": 0.93,
            "silence_probability": 7.7e-6,
            "flood_shape": 1057.0,
            "flood_continue_probability": 0.904,
        }
        assert instance(base_messages=85, **fields).messages_per_user() == pytest.approx(173, rel=0.005)
        with pytest.raises(InvalidInputError):
            instance(base_messages=84, **fields)

    def test_terms_before_the_window_are_summed_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        draft = tuned(1.0, 10_000, 0.1)._draft()
        whole = OneDimensionalTest.of(draft, ahead=80)
        assert whole.start > 3
        monkeypatch.setattr(pure_condition, "TERMS_AT_ONCE", 3)
        parts = OneDimensionalTest.of(draft, ahead=80)
        np.testing.assert_allclose(parts.log_level, whole.log_level, rtol=1e-12)
        np.testing.assert_allclose(parts.log_rise, whole.log_rise, rtol=1e-12)

    def test_memory_is_that_of_the_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The attack, on a tenth of its window: twice as many terms before it took twice the memory."""
        monkeypatch.setattr(pure_condition, "TERMS_AT_ONCE", 1 << 16)
        epsilon, base = 2.1e-5, 300_000
        silence = 1.0 / (1.0 + math.exp(1.9) * math.expm1(epsilon))
        draft = Draft(epsilon=epsilon, noise_epsilon=1e-9, silence=silence, base=base, shape=5e9, continuing=0.5)
        window = 8 * (draft.threshold() - draft.first_count() + base + math.ceil(8.0 / -math.expm1(-epsilon)))
        assert 5e6 < window < 7e6
        tuned(1.0, 2, 0.1)  # imports
        assert peak(lambda: OneDimensionalTest.of(draft, ahead=base)) < 10 * window

    def test_a_law_is_tested_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The attack: a plan is asked for its law five times by whoever receives it, and each test took seconds."""
        fields = tuned(1.0, 2, 0.1).parameters() | {"n_users": 2, "silence_probability": 0.25}
        tested, exact = [], Pure.satisfies_exact_test

        def satisfies_exact_test(law: Pure) -> bool:
            tested.append(law)
            return exact(law)

        monkeypatch.setattr(Pure, "satisfies_exact_test", satisfies_exact_test)
        first = rebuild("pure", 2, fields)
        assert [first] == tested == [rebuild("pure", 2, fields)]
        for _ in range(2):
            with pytest.raises(InvalidInputError, match="fails for these parameters"):
                rebuild("pure", 2, fields | {"silence_probability": 1e-9})
        assert len(tested) == 2

    def test_undecided_counts_as_refused(self) -> None:
        """A flood so small and a base so large that no double holds a(u+s)/a(u)."""
        with pytest.raises(InvalidInputError, match="too close to call"):
            instance(base_messages=3000, flood_shape=1.0, flood_continue_probability=0.3)


class TestConditions:
    @pytest.mark.parametrize("shape", [1.0, 4.0, 30.0])
    @pytest.mark.parametrize("continuing", [0.5, 0.8])
    @pytest.mark.parametrize("base", [0, 3, 12])
    def test_one_point_decides(self, shape: float, continuing: float, base: int) -> None:
        """The reduction to z*, against (ii) and (iii) at every z."""
        protocol = unchecked(
            noise_epsilon=0.7,
            silence_probability=0.3,
            base_messages=base,
            flood_shape=shape,
            flood_continue_probability=continuing,
        )
        law = stats.nbinom.pmf(np.arange(400), shape, 1.0 - continuing)
        for threshold in range(60):
            falls = bool(np.all(law[threshold + 1 : 301] <= math.exp(0.3) * law[threshold:300]))
            filled = bool(
                np.all(math.expm1(1.0) * 0.3 * law[base : base + threshold + 1] >= 0.7 * law[: threshold + 1])
            )
            assert protocol.satisfies_conditions(threshold) == (falls and filled)
            if falls:
                assert threshold >= protocol.smallest_threshold()

    @pytest.mark.parametrize(("epsilon", "n_users", "rho"), [(1.0, 100, 0.5), (0.1, 30_000, 0.5), (5.0, 10_000, 0.1)])
    def test_published_choice(self, epsilon: float, n_users: int, rho: float) -> None:
        """Meets (i)–(iii), hence the exact test; error within 1 + ρ; far more messages than needed."""
        protocol = Pure.as_published(epsilon, 0.0, n_users, rho=rho)
        assert protocol.silence_probability == pytest.approx(
            0.2 * rho * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2 / n_users
        )
        assert protocol.noise_epsilon == pytest.approx(epsilon - 0.01 * rho * min(epsilon, 1.0))
        assert protocol.satisfies_conditions(protocol.smallest_threshold())
        assert protocol.satisfies_exact_test()
        assert protocol.rmse() <= (1.0 + rho) * math.sqrt(laplace_variance(epsilon))
        fewer = replace(protocol, base_messages=round(0.9 * protocol.base_messages))  # the exact test allows it
        assert not fewer.satisfies_conditions(fewer.smallest_threshold())
        assert protocol.messages_per_user() > 5.0 * tuned(epsilon, n_users, rho).messages_per_user()

    @pytest.mark.parametrize("rho", [True, 1, 1.0, 0.6, 0.0, -0.1, math.nan])
    def test_rho_outside_its_range_is_refused(self, rho: Any) -> None:
        with pytest.raises(InvalidInputError, match="rho"):
            Pure.as_published(1.0, 0.0, 1000, rho=rho)

    def test_published_silence_must_be_a_probability(self) -> None:
        with pytest.raises(InfeasibleError, match="not a probability"):
            Pure.as_published(0.01, 0.0, 100)


class TestErrorAndMessages:
    @pytest.mark.parametrize("present", [2, 3])
    def test_by_enumeration(self, present: int) -> None:
        """Unbiased for every bit pattern; largest variance and mean messages are the closed forms."""
        protocol = instance(
            n_users=2,
            epsilon_target=2.0,
            noise_epsilon=1.8,
            silence_probability=0.3,
            base_messages=2,
            flood_shape=2.0,
            flood_continue_probability=0.4,
        )
        size = 60
        plus, minus = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
        variances = []
        for bits in itertools.combinations_with_replacement((0, 1), present):
            law = shuffled_law(protocol, bits, size)
            assert np.sum(law) == pytest.approx(1.0, abs=1e-9)
            estimate = (plus - minus) / (1.0 - protocol.silence_probability)
            mean = float(np.sum(law * estimate))
            assert mean == pytest.approx(sum(bits), abs=1e-7)
            variances.append(float(np.sum(law * (estimate - mean) ** 2)))
            messages = float(np.sum(law * (plus + minus))) / present
            assert protocol.messages_per_user(sum(bits) / present) == pytest.approx(messages, abs=1e-7)
        assert protocol.variance(present) == pytest.approx(max(variances), abs=1e-6)
        assert max(variances) > 1.2 * min(variances)

    def test_rmse_counts_everybody_by_default(self) -> None:
        protocol = instance(n_users=4)
        assert protocol.rmse() == math.sqrt(protocol.variance(4))
        assert protocol.variance(8) == pytest.approx(2.0 * protocol.variance(4))


class TestProfile:
    def test_pure(self) -> None:
        protocol = tuned(1.0, 2, 0.3)
        assert protocol.delta(1.0) == 0.0
        assert protocol.delta(1.5) == protocol.likely_delta(40.0) == 0.0
        assert protocol.epsilon(0.0) == 1.0
        for epsilon in (0.0, 0.5, 1.0 - 1e-9):
            exact = (math.e - math.exp(epsilon)) / (math.e + 1.0)
            assert exact <= protocol.delta(epsilon) <= exact * (1.0 + 1e-6) + 1e-15
        assert protocol.epsilon(0.2) == pytest.approx(math.log(math.e - 0.2 * (math.e + 1.0)), abs=1e-6)

    def test_pair_dominates_the_enumerated_law(self) -> None:
        protocol = tuned(1.0, 2, 0.3)
        one, zero = shuffled_law(protocol, (1, 1)), shuffled_law(protocol, (0, 1))
        for epsilon in (-2.0, -0.3, 0.0, 0.2, 0.6, 0.9):
            for first, second in ((one, zero), (zero, one)):
                excess = float(np.sum(np.maximum(first - math.exp(epsilon) * second, 0.0)))
                assert 0.0 < excess <= protocol.delta(epsilon)

    def test_composes_like_randomized_response(self) -> None:
        protocol = tuned(1.0, 2, 0.3)
        (pair,) = protocol.pairs()
        grid = LossGrid.for_pair(pair, n_compositions=3, negligible=1e-12)
        loss = DominatingLoss.from_table(ProfileTable.of_pair(pair, grid))
        p, q = math.e / (math.e + 1.0), 1.0 / (math.e + 1.0)
        exact = sum(
            math.comb(3, k) * max(p**k * q ** (3 - k) - math.exp(1.5) * q**k * p ** (3 - k), 0.0) for k in range(4)
        )
        assert Repeated([(loss, 3)]).delta(1.5) == pytest.approx(exact, rel=0.05)
        assert Repeated([(loss, 3)]).delta(1.5) >= exact


class TestLocalView:
    @pytest.mark.parametrize(("epsilon", "n_users", "excess_error"), [*TUNED, (1.0, 5, 1.0), (2.0, 8, 0.5)])
    def test_bounds_the_enumerated_loss_of_one_user(self, epsilon: float, n_users: int, excess_error: float) -> None:
        protocol = tuned(epsilon, n_users, excess_error)
        guarantee = protocol.local_guarantee()
        assert (guarantee.delta, guarantee.adjacency, guarantee.view) == (0.0, Adjacency.BIT, View.LOCAL)
        loss = largest_loss(user_law(protocol, 1, 90), user_law(protocol, 0, 90))
        assert 0.4 * guarantee.epsilon < loss <= guarantee.epsilon

    @pytest.mark.parametrize("base", [0, 2, 5])
    @pytest.mark.parametrize("shape", [1.0, 12.0])
    @pytest.mark.parametrize("n_users", [1, 2, 3, 6])
    def test_bound_needs_no_privacy_in_the_shuffled_view(self, base: int, shape: float, n_users: int) -> None:
        """The derivation uses none of (i)–(iii): it holds for refused parameters as well."""
        protocol = unchecked(n_users=n_users, base_messages=base, flood_shape=shape, noise_epsilon=0.8)
        loss = largest_loss(user_law(protocol, 1, 60), user_law(protocol, 0, 60))
        assert loss <= protocol.local_guarantee().epsilon + 1e-12  # rounding of the twin; met exactly at base 0

    def test_grows_with_the_number_of_users(self) -> None:
        """One share of the noise shrinks: the price of a colluding shuffler is at least ln n + ε'."""
        protocol = tuned(1.0, 10_000, 0.5)
        assert protocol.local_guarantee().epsilon >= math.log(10_000) + protocol.noise_epsilon
        assert math.isfinite(protocol.local_guarantee().epsilon)


class TestCalibration:
    @pytest.mark.parametrize(
        ("n_users", "excess_error", "red_team"), [(10_000, 0.1, 173.0), (10_000, 0.5, 41.0), (100_000, 0.1, 224.0)]
    )
    def test_red_team_figures(self, n_users: int, excess_error: float, red_team: float) -> None:
        protocol = tuned(1.0, n_users, excess_error)
        assert 0.95 * red_team <= protocol.messages_per_user() <= 1.005 * red_team
        assert protocol.rmse() <= (1.0 + excess_error) * math.sqrt(laplace_variance(1.0))
        assert protocol.rmse() >= (1.0 + 0.999 * excess_error) * math.sqrt(laplace_variance(1.0))

    @pytest.mark.parametrize(
        ("epsilon", "n_users", "excess_error"),
        [(1.0, 10_000, 0.1), (1.0, 2, 0.1), (5.0, 30, 0.1), (0.1, 1000, 0.3), (20.0, 10**9, 0.1), (1.0, 10**6, 1.0)],
    )
    def test_nothing_can_be_left_out(self, epsilon: float, n_users: int, excess_error: float) -> None:
        """One base message less fails; a tenth of the flood less fails, or needs base messages that cost more."""
        protocol = tuned(epsilon, n_users, excess_error)
        allowed = (1.0 + excess_error) ** 2 * laplace_variance(epsilon)
        assert protocol.variance(n_users) <= allowed * (1.0 + 1e-12)
        assert protocol.satisfies_exact_test()
        with pytest.raises(InvalidInputError):
            replace(protocol, base_messages=protocol.base_messages - 1)
        with pytest.raises(InvalidInputError):
            replace(protocol, flood_shape=0.9 * protocol.flood_shape)
        for base in range(protocol.base_messages + 1, protocol.base_messages + 30):
            try:
                other = replace(protocol, base_messages=base, flood_shape=0.9 * protocol.flood_shape)
            except InvalidInputError:
                continue
            assert other.messages_per_user() > protocol.messages_per_user()
            break

    @pytest.mark.parametrize(
        ("epsilon", "n_users"),
        [
            (1.0, 10_000),
            (1.0, 3),
            *(pytest.param(*more, marks=pytest.mark.slow) for more in ((0.2, 500), (6.0, 10**6))),
        ],
    )
    def test_a_larger_excess_never_needs_more_messages(self, epsilon: float, n_users: int) -> None:
        """Steps wide enough for the search, which is local and only nearly optimal, to keep the order."""
        messages = [
            tuned(epsilon, n_users, excess).messages_per_user() for excess in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 3.0)
        ]
        assert all(later <= earlier for earlier, later in itertools.pairwise(messages))

    @pytest.mark.slow
    def test_tiny_epsilon(self) -> None:
        """ε₀ = 2/768 at 30 000 users: the case of basic composition over 768 instances."""
        protocol = tuned(2.0 / 768.0, 30_000, 0.5)
        assert protocol.satisfies_exact_test()
        assert protocol.messages_per_user() < 420.0

    @pytest.mark.parametrize(
        ("epsilon", "n_users", "excess_error"),
        [
            (20.0, 2, 0.1),
            pytest.param(50.0, 10**12, 0.1, marks=pytest.mark.slow),
            (20.0, 10**9, 10.0),
            (1.0, 1, 0.1),
            (0.001, 2, 1.0),
            (5.0, 100, 10.0),
        ],
    )
    def test_extremes_are_valid(self, epsilon: float, n_users: int, excess_error: float) -> None:
        protocol = tuned(epsilon, n_users, excess_error)
        assert 0.0 < protocol.silence_probability < 1.0
        assert 0.0 < protocol.messages_per_user() < 1e7
        assert math.isfinite(protocol.local_guarantee().epsilon)
        assert protocol.variance(n_users) <= (1.0 + excess_error) ** 2 * laplace_variance(epsilon) * (1.0 + 1e-12)

    def test_silence_alone_may_do(self) -> None:
        """Where the error allows q ≥ e^{−ε}, neither base messages nor flood are needed."""
        protocol = Pure.calibrate(1.0, 2, excess_error=1.0)
        assert protocol.base_messages == 0
        assert protocol.silence_probability > math.exp(-1.0)
        assert largest_loss(shuffled_law(protocol, (1, 0)), shuffled_law(protocol, (0, 0))) <= 1.0 + 1e-9

    @pytest.mark.parametrize(
        ("epsilon", "n_users", "excess_error"),
        [(1e-300, 100, 0.1), (1e-9, 100, 0.1), (1e-6, 10**9, 0.1), (0.1, 100, 1e-9), (1.0, 10**5, 1e-15)],
    )
    def test_too_many_messages(self, epsilon: float, n_users: int, excess_error: float) -> None:
        with pytest.raises(InfeasibleError, match=r"10,000,000\s+messages.*larger epsilon"):
            Pure.calibrate(epsilon, n_users, excess_error=excess_error)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"epsilon": 0.0},
            {"epsilon": -1.0},
            {"epsilon": math.nan},
            {"epsilon": math.inf},
            {"epsilon": "1"},
            {"epsilon": True},
            {"n_users": 0},
            {"n_users": 2.5},
            {"n_users": True},
            {"excess_error": 0.0},
            {"excess_error": math.nan},
            {"excess_error": True},
        ],
    )
    def test_bad_request(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(InvalidInputError, match=next(iter(arguments))):
            Pure.calibrate(**{"epsilon": 1.0, "n_users": 100, **arguments})


class TestRecord:
    @pytest.mark.parametrize(
        "changes",
        [
            {"n_users": 0},
            {"epsilon_target": 0.0},
            {"epsilon_target": math.nan},
            {"epsilon_target": 51.0},
            {"noise_epsilon": 1.1},
            {"noise_epsilon": 0.0},
            {"silence_probability": 0.0},
            {"silence_probability": 1.0},
            {"silence_probability": True},
            {"base_messages": -1},
            {"base_messages": 2.0},
            {"flood_shape": 0.99},
            {"flood_shape": math.inf},
            {"flood_continue_probability": 0.0},
            {"flood_continue_probability": 1.0},
            {"flood_shape": 1e15, "flood_continue_probability": 0.999},
        ],
    )
    def test_outside_the_domain(self, changes: dict[str, Any]) -> None:
        with pytest.raises(InvalidInputError, match=next(iter(changes))):
            instance(**changes)

    def test_parameters_rebuild_the_instance(self) -> None:
        protocol = instance()
        assert Pure(**protocol.parameters()) == protocol  # type: ignore[arg-type]

    def test_contract(self) -> None:
        contract = instance().contract(1.0, 0.0)
        assert contract.evidence.kind is EvidenceKind.THEOREM
        assert contract.evidence.source == "docs/proofs/pure.md"
        assert any("a(u+s)" in text for text in contract.checked)
        assert [g.delta for g in contract.guarantees] == [0.0, 0.0]
