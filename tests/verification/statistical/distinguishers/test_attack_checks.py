"""Attacks: bounds that hold, laws that agree with enumeration, honest systems that pass, and faults that do not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from accounting import InvalidInputError
from accounting.mechanisms import LabelResponse, RandomizedResponse
from privkde.bitsum import Tally, single_noise, three_negative_binomial
from privkde.bitsum import execution as base
from privkde.bitsum.execution import Bitsum
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.draws.sampling import bernoulli
from privkde.kernels.inner_product import IdentityFamily
from privkde.protocol import label_round as labels
from privkde.protocol.announcement import Announcement
from privkde.protocol.parties import Randomizer
from tests.plans import plan_for
from tests.slow_twins import PlaneLaw, response_pair
from verification.evidence import AttackBounds
from verification.exact.brute_force import precise_negative_binomial, table
from verification.statistical.densities.robust_means import mean_test
from verification.statistical.distinguishers import arena, classifier_attacks
from verification.statistical.distinguishers import attack_checks as distinguishers
from verification.statistical.distinguishers.collected_views import attacked, views, worst_neighbors
from verification.statistical.distinguishers.epsilon_bounds import (
    POWER,
    certain_separation,
    choosing_size,
    chosen_event,
    clopper_pearson,
    detectable_factor,
    detectable_separation,
    epsilon_lower_bound,
)
from verification.statistical.distinguishers.faithful import REPETITIONS, sent_views, small_plan
from verification.statistical.distinguishers.published_classes import ClassArena, ClassLikelihoodRatio
from verification.statistical.distinguishers.view_laws import LikelihoodRatio, line_ratio, plane_ratio
from verification.verdicts import CHECK_ALPHA, FULL, QUICK, Finding, Subject

LEVEL = 1e-9
"""Of each statistical test here that is not a finding, which has its own `CHECK_ALPHA`; a dozen of them at most."""


def subject(**changes: Any) -> Subject:
    request: dict[str, Any] = {
        "users": 2000, "dim": 8, "kernel": "gaussian", "repetitions": 8, "bitsum": "rr", "epsilon": 1.0,
        "delta": 1e-6, "accountant": "pld", "allow_useless": True, **changes,
    }  # fmt: skip
    return Subject(plan=plan_for(**request))


def found(name: str, of: Subject, seed: int = 1) -> Finding:
    check = next(one for one in distinguishers.CHECKS if one.name == f"distinguisher-{name}")
    assert check.applies(of)
    return check.run(of, QUICK, check.seed(seed))


@cache
def passed(name: str, seed: int, **changes: Any) -> Finding:
    """What a check finds of the honest system, once for each subject."""
    return found(name, subject(**changes), seed)


@contextmanager
def quieter_noise(factor: float) -> Iterator[None]:
    """All noise with a standard deviation `factor` times too small: a smaller flip, or smaller shares."""
    honest = base.share

    def respond(self: Bitsum, scaled: NDArray[np.float32], stream: ByteStream) -> NDArray[np.uint8]:
        if self.flip == 0.0:
            return bernoulli(scaled, stream)
        error = RandomizedResponse(n_users=200, flip_probability=self.flip).rmse()
        flip = RandomizedResponse.with_rmse(error / factor, 200).flip_probability
        return bernoulli(scaled, stream, flip=flip)

    def share(total: float | Fraction, n_users: int, counted_users: int) -> Fraction:
        return honest(total, n_users, counted_users) / Fraction(factor**2)

    with (
        patch.object(Bitsum, "respond", respond),
        patch.object(single_noise, "share", share),
        patch.object(three_negative_binomial, "share", share),
    ):
        yield


class TestBounds:
    @pytest.mark.parametrize(("count", "total"), [(0, 30), (3, 30), (29, 30), (30, 30)])
    def test_clopper_pearson_inverts_the_binomial_tails(self, count: int, total: int) -> None:
        low, high = clopper_pearson(count, total, 0.01)
        assert 0.0 <= low < high <= 1.0
        if count > 0:
            assert 0.01 * (1.0 - 1e-5) <= stats.binom.sf(count - 1, total, low) <= 0.01  # rounded outward
        if count < total:
            assert 0.01 * (1.0 - 1e-5) <= stats.binom.cdf(count, total, high) <= 0.01

    @pytest.mark.parametrize("upward", [True, False])
    def test_finds_most_of_a_known_epsilon_and_not_more(self, upward: bool) -> None:
        rng, keep = np.random.default_rng(1), 1.0 / (1.0 + math.exp(-2.0))
        first, second = ((rng.random(60_000) < one).astype(np.float64) for one in (keep, 1.0 - keep))
        sign = 1.0 if upward else -1.0
        bound = epsilon_lower_bound(sign * first, sign * second, delta=0.0, alpha=LEVEL)
        if upward:
            assert 1.8 < bound.epsilon <= 2.0
        else:  # scores that mean the opposite show nothing, and claim nothing
            assert bound.epsilon < 0.1

    def test_delta_is_subtracted(self) -> None:
        rng = np.random.default_rng(2)
        leak = (rng.random(200_000) < 0.01).astype(
            np.float64
        )  # shows itself with probability 0.01, never under the neighbor
        nothing = np.zeros(200_000)
        assert epsilon_lower_bound(leak, nothing, delta=0.0, alpha=LEVEL).epsilon > 3.0
        assert epsilon_lower_bound(leak, nothing, delta=0.011, alpha=LEVEL).epsilon == 0.0

    def test_holds_as_often_as_promised(self) -> None:
        rng, alpha, runs, wrong = np.random.default_rng(3), 0.2, 400, 0
        for _ in range(runs):
            first, second = ((rng.random(300) < one).astype(np.float64) for one in (0.5, 0.25))
            true = math.log(0.75 / 0.5)  # the larger of both events' ln-ratios is that of a one: ln 2
            bound = epsilon_lower_bound(first, second, delta=0.0, alpha=alpha)
            wrong += bound.epsilon > (math.log(2.0) if bound.upward else true)
        assert wrong <= stats.binom.isf(LEVEL, runs, alpha)

    def test_refuses_unlike_samples(self) -> None:
        with pytest.raises(InvalidInputError, match="equally many"):
            epsilon_lower_bound(np.zeros(100), np.zeros(99), delta=0.0, alpha=0.1)

    def test_half_the_detectable_factor_is_not_detected(self) -> None:
        rng, size = np.random.default_rng(4), 40_000
        honest, shifted = rng.normal(size=size), 0.2 + rng.normal(size=size)
        factor = detectable_factor(shifted, honest, epsilon=1.0, delta=1e-6, alpha=LEVEL)
        assert factor is not None
        for further, seen in ((1.3, True), (0.5, False)):
            moved = 0.2 * factor * further + rng.normal(size=size)
            bound = epsilon_lower_bound(moved, rng.normal(size=size), delta=1e-6, alpha=LEVEL)
            assert (bound.epsilon > 1.0) is seen

    def test_scores_that_tell_nothing_detect_nothing(self) -> None:
        rng = np.random.default_rng(5)
        first, second = rng.normal(size=300), rng.normal(size=300)
        assert detectable_factor(first, second, epsilon=1.0, delta=1e-6, alpha=LEVEL) is None
        assert detectable_factor(np.zeros(300), np.zeros(300), epsilon=1.0, delta=1e-6, alpha=LEVEL) is None

    @pytest.mark.parametrize(
        ("count", "separation", "epsilon", "delta"),
        [(2_000, 0.5, 0.25, 0.01),
         pytest.param(24_000, 0.28, 1.0, 1e-6, marks=pytest.mark.slow),
         pytest.param(80_000, 0.28, 1.0, 1e-6, marks=pytest.mark.slow),
         pytest.param(80_000, 0.1, 0.25, 1e-6, marks=pytest.mark.slow),
         pytest.param(400_000, 0.28, 8.0, 0.01, marks=pytest.mark.slow)],
    )  # fmt: skip
    def test_the_stated_power_holds_at_the_stated_factor(
        self, count: int, separation: float, epsilon: float, delta: float
    ) -> None:
        """The factor measured anew and the event chosen anew in each run; confidence 0.999 for each row.

        Scores that test the event enter by their counts only, so these are drawn as binomials.
        """
        rng, runs, alpha = np.random.default_rng(6), 120 if count > 100_000 else 200, CHECK_ALPHA / 2.0
        needed = detectable_separation(count, epsilon=epsilon, delta=delta, alpha=alpha)
        assert needed is not None
        cut = choosing_size(count)
        total, detected = count - cut, 0
        for _ in range(runs):
            measured = certain_separation(separation + math.sqrt(2.0 / count) * rng.normal(), count)
            distance = needed * separation / measured
            first, second = distance + rng.normal(size=cut), rng.normal(size=cut)
            upward, threshold = chosen_event(first, second, delta, alpha, total)
            level = threshold if upward else distance - threshold  # the two laws are mirror images
            likely, unlikely = (int(rng.binomial(total, special.ndtr(at - level))) for at in (distance, 0.0))
            low = clopper_pearson(likely, total, alpha / 2.0)[0]
            high = clopper_pearson(unlikely, total, alpha / 2.0)[1]
            detected += low - delta > math.exp(epsilon) * high
        assert clopper_pearson(detected, runs, 1e-3)[0] >= POWER, detected


FURTHER = [pytest.param(bitsum, marks=pytest.mark.slow) for bitsum in ("3nb", "poisson")]


class TestLaws:
    def test_line_of_randomized_response_is_the_exact_ratio(self) -> None:
        plan = plan_for(
            users=6, dim=2, repetitions=1, bitsum="rr", epsilon=1.0, delta=1e-2, accountant="pld", allow_useless=True
        )
        pair = response_pair([0] * 5, Fraction(plan.parameters["flip_probability"]))
        exact = [math.log(one / zero) for one, zero in zip(pair.upper, pair.lower, strict=True)]
        counts = np.arange(7)
        assert line_ratio(plan, -1.0, 1.0, -1.0)(counts, 6 - counts) == pytest.approx(exact, rel=1e-9)

    def test_plane_of_correlated_noise_is_the_brute_force_ratio(self) -> None:
        plan = plan_for(
            users=50, dim=2, repetitions=1, bitsum="3nb", epsilon=3.0, delta=1e-2, accountant="pld", allow_useless=True
        )
        told = plan.parameters
        noise = table(precise_negative_binomial(told["noise_shape"], told["continue_probability"]), 60)
        flood = table(precise_negative_binomial(told["flood_shape"], told["flood_continue_probability"]), 60)
        law = PlaneLaw.of(noise, flood, 60)
        ratio = plane_ratio(plan, -1.0, 1.0, -1.0)
        assert ratio is not None
        ones, zeros = np.array([5, 8, 12, 9]), np.array([4, 9, 12, 3])
        exact = np.log(law.one[ones, zeros] / law.zero[ones, zeros])
        assert np.ptp(exact) > 0.1
        assert ratio(ones, zeros) == pytest.approx(exact, rel=1e-6)

    @pytest.mark.parametrize("bitsum", ["rr", *FURTHER])
    def test_likelihood_ratios_average_to_one(self, bitsum: str) -> None:
        """E_Q[P/Q] = 1: the samples of the implementation follow the law that the attacker believes in."""
        announcement = Announcement(plan=attacked(subject(bitsum=bitsum).plan), public_seed="01" * 16)
        neighbors = worst_neighbors(announcement, 1)
        assert neighbors.squared_shift == pytest.approx(16.0, rel=1e-4)
        law, stream = LikelihoodRatio(announcement.plan, neighbors), private_randomness(5)
        drawn = views(announcement, neighbors, first=False, count=8000, stream=stream)
        ratios = np.exp(np.concatenate([law.scores(view) for view in drawn]))
        assert np.var(ratios) > 0.01
        # The true variance is unknown but close to the measured one; twice that is granted.
        assert mean_test("ratio", ratios, 1.0, 2.0 * float(np.var(ratios)), LEVEL).ratio <= 1.0


HONEST = [
    {"bitsum": "rr"},
    {"bitsum": "3nb"},
    {"bitsum": "poisson"},
    {"kernel": "inner-product", "repetitions": None, "dim": 64, "accountant": "geometric"},
    pytest.param(
        {"kernel": "inner-product", "repetitions": None, "dim": 8, "accountant": "geometric"}, marks=pytest.mark.slow
    ),
]


class TestFindings:
    @pytest.mark.parametrize(
        "changes",
        [HONEST[0], *(pytest.param(one, marks=pytest.mark.slow) for one in HONEST[1:4]), HONEST[4]],
        ids=lambda one: "-".join(str(v) for v in one.values()),
    )
    @pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
    def test_an_honest_system_is_not_refuted(self, changes: dict[str, Any], seed: int) -> None:
        for name in ("communication", "model")[: 2 if seed == 1 else 1]:
            self.not_refuted(name, changes, seed)

    @pytest.mark.parametrize(
        "changes",
        [HONEST[0], *(pytest.param(one, marks=pytest.mark.slow) for one in HONEST[1:4])],
        ids=lambda one: "-".join(str(v) for v in one.values()),
    )
    def test_an_honest_system_is_not_refuted_as_a_black_box(self, changes: dict[str, Any]) -> None:
        self.not_refuted("black-box", changes, 1)

    def not_refuted(self, name: str, changes: dict[str, Any], seed: int) -> None:
        outcome = passed(name, seed, **changes)
        assert not outcome.refuted, outcome.note
        assert outcome.bound == 1.0
        shown = outcome.evidence
        assert isinstance(shown, AttackBounds)
        assert shown.curve
        assert shown.closest in shown.attacks
        assert (shown.closest.epsilon, shown.closest.promise.epsilon) == (outcome.statistic, outcome.bound)
        assert "Reached: " in outcome.note
        assert "Target with full effort: half of the promised ε" in outcome.note

    @pytest.mark.parametrize("bitsum", ["rr", *FURTHER])
    def test_noise_cut_to_a_fourth_is_refuted(self, bitsum: str) -> None:
        with quieter_noise(4.0):
            for name in ("communication", "model"):
                outcome = found(name, subject(bitsum=bitsum))
                assert outcome.refuted, outcome.note
                assert outcome.statistic > 1.2

    def test_black_box_sees_response_cut_to_a_fourth(self) -> None:
        with quieter_noise(4.0):
            assert found("black-box", subject()).refuted

    def test_quick_power(self) -> None:
        """A tenth of the promise is shown in about a second, and the stated smallest defect is below four."""
        outcome = passed("communication", 1, bitsum="rr")
        assert outcome.statistic > 0.1
        assert not outcome.refuted
        assert outcome.smallest_detectable_defect is not None
        assert outcome.smallest_detectable_defect < 4.0

    @pytest.mark.slow
    def test_half_of_the_promise_is_shown(self) -> None:
        check = distinguishers.CHECKS[0]
        outcome = check.run(subject(), FULL, check.seed(1))
        assert not outcome.refuted
        assert outcome.statistic >= 0.5 * outcome.bound


def shown(outcome: Finding, what: str) -> tuple[float, float]:
    """(ε shown, ε promised) of one attack, from the note."""
    told = re.search(rf"{re.escape(what)}: ε ≥ ([0-9.e-]+) of ([0-9.e-]+) promised", outcome.note)
    assert told is not None, outcome.note
    return float(told[1]), float(told[2])


class TestMiniature:
    @pytest.mark.parametrize(
        ("dim", "bound", "more"),
        [
            (64, 0.3, {"bitsum": "poisson"}),
            pytest.param(64, None, {"accountant": "geometric"}, marks=pytest.mark.slow),
            pytest.param(64, 0.3, {}, marks=pytest.mark.slow),
            pytest.param(8, 0.5, {}, marks=pytest.mark.slow),
        ],
    )
    def test_a_clipped_plan_stays_clipped(self, dim: int, bound: float | None, more: dict[str, Any]) -> None:
        """Whatever proves it: only `geometric` chooses a bound, the others are faster where one is given."""
        given = subject(kernel="inner-product", repetitions=None, dim=dim, bound=bound, **more).plan
        announcement = Announcement(plan=attacked(given), public_seed="01" * 16)
        small = announcement.plan.request.facts().bound
        assert given.request.facts().bound < 1.0
        assert 0.0 < small <= 0.75
        family = announcement.family()
        assert isinstance(family, IdentityFamily)
        assert family.rotation is not None
        neighbors = worst_neighbors(announcement, 1)
        assert neighbors.squared_shift == pytest.approx(min(small**-2, family.choice.dim), rel=1e-3)

    @pytest.mark.parametrize("bitsum", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
    def test_a_whole_plan_stays_whole(self, bitsum: str) -> None:
        given = subject(kernel="inner-product", repetitions=None, dim=64, bound=1.0, bitsum=bitsum).plan
        assert attacked(given).request.facts().bound == 1.0


class TestFaithfulPath:
    def test_runs_every_party(self) -> None:
        """Clients that leave out their noise, which the aggregated path draws elsewhere, are seen here only."""

        def silent(
            self: Randomizer, x: NDArray[np.floating], classes: Any = None, *, stream: Any, numbers: Any
        ) -> Tally:
            return self.inputs(x, classes, stream=stream, numbers=numbers)

        with patch.object(Randomizer, "tally", silent):
            outcome = found("black-box", subject(bitsum="poisson"))
        assert outcome.witness is not None
        assert "faithful path" in outcome.witness.found
        assert shown(outcome, "trained scorer of messages")[0] < 1.0

    def test_rows_are_those_of_the_declared_law(self) -> None:
        """The mean of the estimated sums: 7 users at −1 and the target at 1, in all instances."""
        rows = sent_views(small_plan(subject().plan), private_randomness(3), first=True, count=4000)
        assert rows.shape == (4000, 2 * REPETITIONS)
        sums = rows[:, :REPETITIONS].mean(axis=1)
        assert mean_test("sums", sums, -6.0, 2.0 * float(np.var(sums)), LEVEL).ratio <= 1.0
        assert np.all(rows[:, REPETITIONS:] == 8.0)  # one message of each user


SEPARATE: dict[str, Any] = {"classes": 3, "label_epsilon": 1.5, "epsilon": 2.5}
JOINT: dict[str, Any] = {
    "kernel": "inner-product", "repetitions": None, "classes": 2, "labels": "joint", "padded": 0,
}  # fmt: skip
RECORD: dict[str, Any] = {
    **JOINT, "model": "discriminant", "moment_weight": 0.5, "padded": 256, "accountant": "geometric",
}  # fmt: skip
LESS_NOISE: dict[str, Any] = {"accountant": "geometric"}
"""The rung that counts shifts leaves the attacks least room, and takes long to plan."""


class TestClassifier:
    def test_does_not_apply_without_labels(self) -> None:
        assert not distinguishers.CHECKS[-1].applies(subject())

    def test_separate_labels_keep_their_promises_and_nearly_use_them_up(self) -> None:
        outcome = found("classifier", subject(**SEPARATE))
        assert not outcome.refuted, outcome.note
        assert outcome.statistic > 0.9 * outcome.bound  # the label alone: its bound is tight
        for attack in ("published class sizes, label replaced", "published sizes and sums, label replaced"):
            assert 1.3 < shown(outcome, attack)[0] <= shown(outcome, attack)[1] == 1.5  # the sizes tell the label
        for attack in ("published sizes and sums", "trained scorer of published sizes and sums"):
            assert shown(outcome, f"{attack}, record replaced")[0] > 1.1
            assert shown(outcome, f"{attack}, record replaced")[1] == 2.5

    @pytest.mark.parametrize(
        "changes",
        [{"bitsum": "3nb"}, {"classes": 2, "bitsum": "poisson"}, {"classes": 40}],
    )
    @pytest.mark.slow
    def test_other_separate_labels_keep_theirs(self, changes: dict[str, Any]) -> None:
        outcome = found("classifier", subject(**SEPARATE | changes), seed=2)
        assert not outcome.refuted, outcome.note

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            RECORD,
            pytest.param({"dim": 64, "bound": 0.3}, marks=pytest.mark.slow),
            pytest.param(LESS_NOISE, marks=pytest.mark.slow),
            pytest.param({"dim": 64, **LESS_NOISE}, marks=pytest.mark.slow),
        ],
        ids=["whole", "rotated", "clipped", "whole, less noise", "clipped, less noise"],
    )
    def test_joint_labels_keep_theirs(self, changes: dict[str, Any]) -> None:
        outcome = found("classifier", subject(**JOINT | changes))
        assert not outcome.refuted, outcome.note
        assert {
            shown(outcome, f"likelihood ratio of {one}, joint label replaced")[1] for one in ("messages", "sums")
        } == {1.0}

    def test_ratios_of_published_classifiers_average_to_one(self) -> None:
        """E_Q[P/Q] = 1: what is drawn follows the law of sizes and sums that the attacker believes in."""
        classes = ClassArena.of(subject(**SEPARATE), 1)
        law, stream = ClassLikelihoodRatio(classes), private_randomness(5)
        for x, label_only in ((classes.neighbors.second, False), (classes.neighbors.first, True)):
            drawn = classes.drawn(x, 1, 20_000, stream)
            ratios = np.exp(np.concatenate([law.of(one, label_only=label_only) for one in drawn]))
            assert np.var(ratios) > 0.01
            assert mean_test("ratio", ratios, 1.0, 2.0 * float(np.var(ratios)), LEVEL).ratio <= 1.0

    def test_labels_kept_too_often_are_refuted_in_both_views(self) -> None:
        """The forgotten uniform term: keep with e^ε/(e^ε − 1 + m), else any label, the true one included."""
        honest = labels.randomize_labels

        def kept(given: NDArray[np.integer], response: LabelResponse, *, stream: ByteStream) -> NDArray[np.int64]:
            reported = honest(given, response, stream=stream)
            again = private_randomness(9).take(len(given)) % response.n_classes
            return np.where(reported == given, given, again.astype(np.int64))

        with patch.object(labels, "randomize_labels", kept):
            outcome = found("classifier", subject(**SEPARATE))
        assert outcome.refuted
        assert outcome.bound == 1.5
        for attack in ("reported label alone", "published class sizes, label replaced"):
            assert shown(outcome, attack)[0] > 1.5

    @pytest.mark.parametrize("samples", [4_000, pytest.param(arena.SAMPLES, marks=pytest.mark.slow)])
    def test_labels_that_are_not_randomized_are_refuted_in_the_model(self, samples: int) -> None:
        """By default with fewer samples than an audit draws, at the same level."""

        def told(given: NDArray[np.integer], response: LabelResponse, *, stream: ByteStream) -> NDArray[np.int64]:
            return np.asarray(given, np.int64)

        with (
            patch.object(labels, "randomize_labels", told),
            patch.object(arena, "SAMPLES", samples),
            patch.object(classifier_attacks, "SAMPLES", samples),
        ):
            outcome = found("classifier", subject(**SEPARATE))
        assert outcome.refuted
        for attack in ("published sizes and sums", "trained scorer of published sizes and sums"):
            assert shown(outcome, f"{attack}, record replaced")[0] > 2.5

    @pytest.mark.parametrize(
        ("changes", "attack", "promised"),
        [
            pytest.param(
                SEPARATE, "published sizes and sums, record replaced", 2.5, id="separate", marks=pytest.mark.slow
            ),
            pytest.param(JOINT, "trained scorer of sums, joint label replaced", 1.0, id="joint"),
        ],
    )
    def test_noise_left_out_is_refuted_in_the_model(
        self, changes: dict[str, Any], attack: str, promised: float
    ) -> None:
        with quieter_noise(1e3):
            outcome = found("classifier", subject(**changes))
        assert shown(outcome, attack)[0] > promised
        assert outcome.refuted
