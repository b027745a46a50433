"""The local baseline: unbiased sums, with the planned flips and a draw of its own for each block and group.

Statistical tests: `test_local_sums_are_unbiased_with_the_planned_flips`, 5 times at level 1e-10. They add up to 5e-10.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import InfeasibleError, InvalidInputError
from accounting.kernels import KERNELS
from benchmarks import local_baseline
from benchmarks.local_baseline import local_sums
from privkde.bitsum import Tally
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.draws.randomness import ByteStream
from privkde.learning.baselines import baseline
from privkde.storage.user_blocks import MOST_ROWS
from tests.plans import plan_for
from tests.privkde.learning.test_baselines import DIM, Floats, family_of, groups, plan_of, rows, stream
from tests.privkde.unplanned import small_laws, unplanned


@pytest.mark.parametrize("kernel", KERNELS)
def test_local_sums_are_unbiased_with_the_planned_flips(kernel: str) -> None:
    """Each sum is an affine function of n independent bits: Bernstein's bound with the exact variance.

    False alarms: 1e-10 for each kernel, seed fixed before looking. Power: a flip probability used that is not the
    one subtracted shifts all sums together; the next test shows that 10 % of 1 − 2p are seen.
    """
    deviations, allowed = local_deviations(kernel, planned=None)
    assert np.all(deviations <= allowed), (deviations, allowed)


def local_deviations(kernel: str, planned: float | None) -> tuple[Floats, Floats]:
    """How far the local sums are from Σ f(x_u), and how far they may be, for all instances together and each alone."""
    family, plans = family_of(kernel), [plan_of(kernel)]
    x = np.repeat(rows(1, seed=5), 20_000, axis=0).astype(np.float32)
    flip = float(baseline(plans[0], "local").contract.parameters["flip_probability"])
    assert 0.01 < flip < 0.49
    found = local_sums(family, plans, x, [np.arange(len(x))], stream=stream()).sums[0]
    scaled = family.scaled_features(x[:1])[0].astype(np.float64)
    # One sum is R(2(c − np)/(1−2p) − n) with c ~ Bin(n, q), q = ½ + (½ − p)F.
    p = flip if planned is None else planned
    q = 0.5 + (0.5 - p) * scaled
    scale = 2.0 * family.facts.bound / (1.0 - 2.0 * p)
    weights = np.vstack([np.eye(len(scaled)), np.sign(scaled)])  # each sum, and all of them
    variance = len(x) * (weights**2) @ (q * (1.0 - q)) * scale**2
    log = math.log(2.0 * len(weights) / 1e-10)
    allowed = np.sqrt(2.0 * variance * log) + 2.0 * scale * log / 3.0
    expected = len(x) * family.facts.bound * scaled
    return np.abs(weights @ (found - expected)), allowed


class Careless(RandomizedResponseBitsum):
    """Users flip less than planned; the analyzer undoes the planned flips."""

    def respond(self, scaled: NDArray[np.float32], stream: ByteStream) -> NDArray[np.uint8]:
        return RandomizedResponseBitsum(flip=self.flip - 0.05 * (1.0 - 2.0 * self.flip)).respond(scaled, stream)


class Forgetful(RandomizedResponseBitsum):
    """The analyzer forgets to undo the flips."""

    def estimate(self, tally: Tally, n_users: int) -> Floats:
        return np.asarray(tally.ones, dtype=np.float64)


@pytest.mark.parametrize("saboteur", [Careless, Forgetful])
def test_another_flip_probability_is_refuted(
    saboteur: type[RandomizedResponseBitsum], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = float(baseline(plan_of("inner-product"), "local").contract.parameters["flip_probability"])
    monkeypatch.setattr(local_baseline, "RandomizedResponseBitsum", saboteur)
    deviations, allowed = local_deviations("inner-product", planned)
    assert deviations[-1] > allowed[-1]


def test_the_planned_flips_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    honest = RandomizedResponseBitsum

    def noticed(*, flip: float) -> Any:
        used.append(flip)
        return honest(flip=flip)

    monkeypatch.setattr(local_baseline, "RandomizedResponseBitsum", noticed)
    plans = [plan_of("gaussian"), plan_of("gaussian", 100)]
    found = local_sums(family_of("gaussian"), plans, rows(168), groups(168), stream=stream())
    assert used == [baseline(plan, "local").contract.parameters["flip_probability"] for plan in plans]
    assert found.n_users == (84, 84)
    again = local_sums(family_of("gaussian"), plans, rows(168), groups(168), stream=stream())
    np.testing.assert_array_equal(found.sums, again.sums)
    assert not np.array_equal(found.sums[0], found.sums[1]), "each group draws for itself; single sums may agree"


@pytest.mark.parametrize("kernel", KERNELS)
def test_local_sums_undo_the_flips_exactly(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With c users that report a one, the sum is R(2(c − np)/(1 − 2p) − n); here everybody with F > 0 does."""

    def signs(_: Any, scaled: NDArray[np.float32], __: ByteStream) -> NDArray[np.uint8]:
        return (scaled > 0.0).astype(np.uint8)

    monkeypatch.setattr(RandomizedResponseBitsum, "respond", signs)
    family, plan, x = family_of(kernel), plan_of(kernel), rows(70).astype(np.float32)
    found = local_sums(family, [plan], x, [np.arange(70)], stream=stream()).sums[0]
    p = float(baseline(plan, "local").contract.parameters["flip_probability"])
    counts = (family.scaled_features(x) > 0.0).sum(axis=0)
    expected = family.facts.bound * (2.0 * (counts - 70 * p) / (1.0 - 2.0 * p) - 70)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_blocks_and_groups_draw_their_own_bits() -> None:
    """All users alike, so that equal draws would give equal counts: no two blocks or groups share theirs."""
    x = np.zeros((4 * MOST_ROWS, DIM))
    parts = [np.arange(MOST_ROWS) + MOST_ROWS * i for i in range(4)]
    plan = plan_of("inner-product")
    one = [local_sums(family_of("inner-product"), [plan], x, [part], stream=stream()).sums for part in parts]
    np.testing.assert_array_equal(one[0], one[1])  # the same stream, the same place in it: the same draws
    groups = local_sums(family_of("inner-product"), [plan] * 4, x, parts, stream=stream()).sums
    assert len({row.tobytes() for row in groups}) == 4
    whole = local_sums(family_of("inner-product"), [plan], x, [np.arange(len(x))], stream=stream()).sums[0]
    assert np.any(whole != 4.0 * groups[0])


def test_what_the_plan_does_not_cover_is_refused() -> None:
    """No baseline without delta, another kernel, a group without users, a bad row."""
    pure = plan_for(
        users=50, dim=DIM, kernel="gaussian", repetitions=6, bitsum="pure", epsilon=8.0, delta=0.0, allow_useless=True
    )
    family, x, everybody = family_of("gaussian"), rows(300), [np.arange(300)]
    with pytest.raises(InfeasibleError, match=r"no local baseline.*delta=0"):
        local_sums(family, [pure], x, everybody, stream=stream())
    for other in (plan_of("inner-product-signs"), unplanned(small_laws(50)["rr"], kernel="gaussian", dim=DIM)):
        with pytest.raises(InvalidInputError, match="another kernel"):
            local_sums(family, [other], x, everybody, stream=stream())
    with pytest.raises(InvalidInputError, match="group 1 has no users"):
        local_sums(family, [plan_of("gaussian")] * 2, x, [*everybody, np.arange(0)], stream=stream())
    x[280, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 280 "):
        local_sums(family, [plan_of("gaussian")], x, [np.arange(300)[::-1]], stream=stream())
