"""The baselines do what their contracts say: exact means, planned noise, sensitivities that nobody exceeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import Adjacency, InfeasibleError, InvalidInputError, Plan, View
from accounting.kernels import KERNELS
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import normals
from privkde.kernels import KernelChoice, LsqFamily
from privkde.learning import baselines
from privkde.learning.baselines import baseline, central_sums, exact_densities
from privkde.storage import user_blocks
from tests import twins
from tests.plans import plan_for
from tests.privkde.unplanned import SEED, small_laws, unplanned

DIM = 3
HASHED = ("laplacian", "exponential")
Floats = NDArray[np.float64]


@pytest.fixture(params=[64, pytest.param(user_blocks.MOST_ROWS, marks=pytest.mark.slow)])
def users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """More than two blocks of rows that are read at once; as many as the library takes are thousands."""
    monkeypatch.setattr(user_blocks, "MOST_ROWS", request.param)
    return 2 * int(request.param) + 40


def settings(kernel: str) -> dict[str, Any]:
    return {
        "dim": DIM,
        "repetitions": None if kernel == "inner-product" else 6,
        "bias": 0.25 if kernel in HASHED else None,
    }


def family_of(kernel: str) -> LsqFamily:
    return KernelChoice(name=kernel, **settings(kernel)).build(SEED)


def plan_of(kernel: str, users: int = 168) -> Plan:
    """Pure has no baselines; of the others, Poisson noise by basic composition is planned fastest."""
    return plan_for(
        users=users,
        kernel=kernel,
        bitsum="poisson",
        epsilon=8.0,
        delta=1e-6,
        accountant="basic",
        allow_useless=True,
        **settings(kernel),
    )


def stream() -> ByteStream:
    return ByteStream(bytes(range(32)))


def rows(count: int, seed: int = 1) -> Floats:
    x = np.random.default_rng(seed).normal(size=(count, DIM)) + 1.0
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def groups(users: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.arange(0, users, 2), np.arange(1, users, 2)[::-1]


# --- no privacy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_privacy_the_density_is_the_mean_of_the_kernel(kernel: str, users: int) -> None:
    x, y = rows(users), rows(4, seed=2)
    found = exact_densities(family_of(kernel), x, groups(users), y)
    assert found.shape == (4, 2)
    for c, index in enumerate(groups(users)):
        for q, query in enumerate(y.tolist()):
            values = [twins.kernel(kernel, x[u].tolist(), query) for u in index.tolist()]
            assert found[q, c] == pytest.approx(math.fsum(values) / len(values), abs=1e-6)
    assert found.max() > 0.2, "nothing was compared"


def test_the_bandwidth_is_used() -> None:
    wide = KernelChoice(name="gaussian", dim=DIM, repetitions=2, bandwidth=3.0).build(SEED)
    x, y = rows(5), rows(1, seed=2)
    values = [twins.kernel("gaussian", u, y[0].tolist(), bandwidth=3.0) for u in x.tolist()]
    assert exact_densities(wide, x, [np.arange(5)], y)[0, 0] == pytest.approx(np.mean(values), abs=1e-6)


def test_data_and_queries_outside_the_ball_are_projected() -> None:
    family, x, y = family_of("inner-product"), rows(6), rows(2, seed=2)
    index = [np.arange(6)]
    np.testing.assert_allclose(
        exact_densities(family, 5.0 * x, index, 3.0 * y), exact_densities(family, x, index, y), atol=1e-6
    )


# --- central ----------------------------------------------------------------------------------------------------------


def exact_sums(kernel: str, x: Floats, index: NDArray[np.intp]) -> Floats:
    return np.array(twins.feature_sums(family_of(kernel), x[index].astype(np.float32).tolist()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_central_noise_is_the_planned_deviation_times_normals(kernel: str, users: int) -> None:
    x, both = rows(users), groups(users)
    plans = [plan_of(kernel, len(both[0])), plan_of(kernel)]
    found = central_sums(family_of(kernel), plans, x, both, stream=stream())
    assert found.n_users == (len(both[0]), len(both[1]))
    for number, (plan, index) in enumerate(zip(plans, both, strict=True)):
        deviation = plan.baselines[0].contract.parameters["standard_deviation"]
        assert isinstance(deviation, float)
        drawn = normals((family_of(kernel).facts.n_instances,), stream().child("central", number))
        np.testing.assert_allclose(
            found.sums[number], exact_sums(kernel, x, index) + deviation * drawn, rtol=0, atol=1e-3
        )
        assert deviation > 1.0, "the noise would not show"


def test_central_noise_alone(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With normals of zero the sums are exact; with normals of one they are off by exactly σ."""
    x, index, plans = rows(users), [np.arange(users)], [plan_of("gaussian", users)]
    means = []
    for value in (0.0, 1.0):
        monkeypatch.setattr(baselines, "normals", lambda shape, _, value=value: np.full(shape, value))
        means.append(central_sums(family_of("gaussian"), plans, x, index, stream=stream()).sums)
    np.testing.assert_allclose(means[0][0], exact_sums("gaussian", x, index[0]), rtol=0, atol=1e-3)
    sigma = float(baseline(plans[0], "central").contract.parameters["standard_deviation"])
    np.testing.assert_allclose(means[1] - means[0], sigma, rtol=1e-9)


def largest_move(family: LsqFamily, seed: int) -> float:
    """The largest ‖f(x) − f(x')‖₂ over all repetitions that a search finds: random starts, then steps uphill."""
    random = np.random.default_rng(seed)

    def features(x: Floats) -> Floats:
        clipped = baselines.admitted(family, x, np.arange(len(x)))
        return family.scaled_features(clipped).astype(np.float64) * family.facts.bound

    scale = 30.0 if not family.needs_unit_norm else 1.5  # outside the ball, too: it is projected
    x = random.uniform(-scale, scale, size=(400, DIM))
    x[: 2 * DIM] = np.concatenate([np.eye(DIM), -np.eye(DIM)])
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * DIM)).reshape(DIM, -1).T
    x[2 * DIM : 2 * DIM + len(corners)] = corners
    values = features(x)
    distances = np.linalg.norm(values[:, None] - values[None], axis=2)
    a, b = np.unravel_index(int(np.argmax(distances)), distances.shape)
    left, right, best = x[a], x[b], float(distances[a, b])
    for step in np.geomspace(1.0, 1e-3, 40):
        trial = np.concatenate(
            [left + step * random.normal(size=(60, DIM)), right + step * random.normal(size=(60, DIM))]
        )
        moved = features(trial)
        f_left, f_right = features(left[None])[0], features(right[None])[0]
        to_left = np.linalg.norm(moved[:60] - f_right, axis=1)
        to_right = np.linalg.norm(moved[60:] - f_left, axis=1)
        if to_left.max() > best:
            left, best = trial[int(np.argmax(to_left))], float(to_left.max())
        elif to_right.max() > best:
            right, best = trial[60 + int(np.argmax(to_right))], float(to_right.max())
    return best


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_replacement_moves_the_sums_beyond_the_contracts_sensitivity(kernel: str) -> None:
    """An adversary chooses x and x' for the public draw at hand; add-or-remove would be half of this or less."""
    sensitivity = baseline(plan_of(kernel), "central").contract.parameters["sensitivity"]
    assert isinstance(sensitivity, float)
    found = max(largest_move(family_of(kernel), seed) for seed in range(3))
    assert found <= sensitivity * (1.0 + 1e-6)
    assert found > 0.75 * sensitivity, "the search found nothing"


def test_the_sums_really_move_by_that_much(users: int) -> None:
    """Two datasets that differ in one user, the noise held fixed."""
    family, plans, index = family_of("inner-product"), [plan_of("inner-product", users)], [np.arange(users)]
    x = rows(users)
    x[17] = np.eye(DIM)[0]
    other = x.copy()
    other[17] = -x[17]
    moved = [central_sums(family, plans, data, index, stream=stream()).sums[0] for data in (x, other)]
    distance = float(np.linalg.norm(moved[0] - moved[1]))
    assert distance == pytest.approx(float(baseline(plans[0], "central").contract.parameters["sensitivity"]), rel=1e-6)


# --- contracts and refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_contracts_say_who_is_protected_from_whom(kernel: str) -> None:
    plan = plan_of(kernel)
    central, local = baseline(plan, "central").contract, baseline(plan, "local").contract
    assert [(g.adjacency, g.view) for g in central.guarantees] == [(Adjacency.FEATURES, View.MODEL)]
    assert {(g.adjacency, g.view) for g in local.guarantees} == {(Adjacency.FEATURES, view) for view in View}
    for guarantee in (*central.guarantees, *local.guarantees):
        assert (guarantee.epsilon, guarantee.delta) <= (8.0, 1e-6)
    assert any("trusted" in text for text in central.assumed)


def test_without_delta_there_is_no_baseline_to_run() -> None:
    pure = plan_for(
        users=50, dim=DIM, kernel="gaussian", repetitions=6, bitsum="pure", epsilon=8.0, delta=0.0, allow_useless=True
    )
    x, index = rows(50), [np.arange(50)]
    with pytest.raises(InfeasibleError, match=r"no central baseline.*delta=0"):
        central_sums(family_of("gaussian"), [pure], x, index, stream=stream())
    for name in ("central", "local"):
        with pytest.raises(InfeasibleError, match=rf"no {name} baseline.*delta=0"):
            baseline(pure, name)


def test_a_plan_for_another_kernel_is_refused() -> None:
    """Its sensitivity would be wrong, and the contract with it."""
    for other in (plan_of("inner-product-signs"), unplanned(small_laws(50)["rr"], kernel="gaussian", dim=DIM)):
        with pytest.raises(InvalidInputError, match="another kernel"):
            central_sums(family_of("gaussian"), [other], rows(50), [np.arange(50)], stream=stream())


def test_a_group_without_users_is_refused() -> None:
    family, x, empty = family_of("gaussian"), rows(50), [np.arange(50), np.arange(0)]
    plans = [plan_of("gaussian")] * 2
    with pytest.raises(InvalidInputError, match="group 1 has no users"):
        central_sums(family, plans, x, empty, stream=stream())
    with pytest.raises(InvalidInputError, match="group 1 has no users"):
        exact_densities(family, x, empty, x[:1])


def test_a_bad_row_is_named() -> None:
    x, backwards = rows(300), [np.arange(300)[::-1]]
    x[280, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 280 "):
        central_sums(family_of("gaussian"), [plan_of("gaussian")], x, backwards, stream=stream())
    with pytest.raises(InvalidInputError, match="row 280 "):
        exact_densities(family_of("gaussian"), x, backwards, x[:1])
