"""The published model: densities as Algorithm 1 defines them, unbiased end to end, files that cannot be bent.

Statistical tests: `test_densities_are_unbiased_end_to_end`, 25 times at level 1e-10. They add up to 2.5e-9.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting import Contract, Guarantee, InvalidInputError, Plan
from accounting.composed_contracts import classifier_contract, seeded_contract
from accounting.kernels import KERNELS
from accounting.mechanisms import (
    BITSUMS,
    BitsumProtocol,
    LabelResponse,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
    pure,
)
from privkde import PrivateKDE
from privkde.bitsum import EXECUTED, Tally
from privkde.kernels import KernelChoice
from privkde.protocol.announcement import Announcement
from privkde.protocol.model import LARGEST_SUM, SCHEMA, DensityModel, FeatureSums, promised
from privkde.storage.container import DamagedFileError, read_container, write_container
from privkde.storage.user_blocks import MOST_ROWS
from tests import twins
from tests.memory import MEGABYTE, peak
from tests.plans import plan_for
from tests.privkde.unplanned import SEED, announced, small_laws, small_pure, unplanned

HASHED = ("laplacian", "exponential")
DIM = 3
Floats = NDArray[np.float64]


def unit_rows(count: int, seed: int, dim: int = DIM) -> Floats:
    x = np.random.default_rng(seed).normal(size=(count, dim)) + 1.0
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def request(kernel: str, repetitions: int = 5) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "dim": DIM,
        "repetitions": None if kernel == "inner-product" else repetitions,
        "bias": 0.25 if kernel in HASHED else None,
    }


def rr(users: int, flip: float = 0.1875) -> RandomizedResponse:
    return RandomizedResponse(n_users=users, flip_probability=flip)


def model(kernel: str = "gaussian", *, groups: int = 1, users: int = 4, sums: Floats | None = None) -> DensityModel:
    """A model whose sums are made up: one group without label, or labels 'a', 'b', …"""
    labels = tuple("abc"[:groups]) if groups > 1 else ()
    announcements = tuple(announced(rr(users + c), group="abc"[c], **request(kernel)) for c in range(groups))
    contracts = [one.plan.contract for one in announcements]
    whole = (
        classifier_contract(contracts, LabelResponse(n_classes=groups, label_epsilon=3.0)) if labels else contracts[0]
    )
    made_up = np.random.default_rng(5).normal(size=(groups, announcements[0].n_instances)) * users
    return DensityModel(
        announcements=announcements,
        sums=made_up if sums is None else sums,
        n_users=tuple(users + c for c in range(groups)),
        contract=whole,
        private=True,
        labels=labels,
    )


# --- densities are (1/(nI)) Σ F g -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_densities_equal_the_slow_twin(kernel: str) -> None:
    """F is any vector of numbers here: the formula is linear, wherever the sums come from."""
    two = model(kernel, groups=2)
    y = np.concatenate([unit_rows(6, 1), np.zeros((1, DIM)), 0.5 * unit_rows(2, 2)])
    family = two.announcements[0].family()
    found = two.densities(y)
    expected = [
        [twins.density(family, sums, n, row) for sums, n in zip(two.sums.tolist(), two.n_users, strict=True)]
        for row in y.astype(np.float32).tolist()
    ]
    assert found.shape == (9, 2)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert float(np.abs(expected).max()) > 0.1, "nothing was compared"


@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_sums_give_an_estimate_of_the_kernel_mean(kernel: str) -> None:
    """With many repetitions and no noise, the density is close to the mean of the kernel (bias included)."""
    x, y = unit_rows(5, 3), unit_rows(4, 4)
    repetitions = None if kernel == "inner-product" else 6000
    bias = 0.02 if kernel in HASHED else None
    family = KernelChoice(name=kernel, dim=DIM, repetitions=repetitions, bias=bias).build(SEED)
    sums = (family.scaled_features(x).astype(np.float64) * family.facts.bound).sum(axis=0)[None]
    found = FeatureSums(family=family, sums=sums, n_users=(len(x),)).densities(y)[:, 0]
    expected = [np.mean([twins.kernel(kernel, u, q) for u in x.tolist()]) for q in y.tolist()]
    np.testing.assert_allclose(found, expected, atol=0.1)


def test_queries_outside_the_domain_are_projected_onto_it() -> None:
    one = model("inner-product")
    y = unit_rows(3, 6)
    np.testing.assert_allclose(one.densities(7.0 * y), one.densities(y), rtol=0, atol=1e-6)
    free = model("gaussian")
    assert np.abs(free.densities(7.0 * y) - free.densities(y)).max() > 0.1, "the Gaussian kernel takes any vector"


@settings(max_examples=25)
@given(count=st.integers(0, 700), rows=st.integers(1, 300))
def test_blocks_are_the_whole(count: int, rows: int) -> None:
    two = model("inner-product", groups=2)
    y = np.random.default_rng(count).uniform(-0.5, 0.5, size=(count, DIM))
    blocks = list(two.feature_sums().density_blocks(y, rows=rows))
    assert [start for start, _ in blocks] == list(range(0, count, rows))
    assert all(len(block) == min(rows, count - start) for start, block in blocks)
    whole = two.densities(y)
    assert whole.shape == (count, 2)
    if blocks:
        np.testing.assert_allclose(np.concatenate([block for _, block in blocks]), whole, rtol=0, atol=1e-6)


def test_a_bad_query_is_named_by_its_row_wherever_it_is() -> None:
    y = np.zeros((3 * MOST_ROWS, DIM))
    y[2 * MOST_ROWS + 7, 1] = np.nan
    with pytest.raises(InvalidInputError, match=rf"row {2 * MOST_ROWS + 7} "):
        model().densities(y)


@pytest.mark.parametrize("shape", [(4,), (4, DIM + 1), (2, 2, DIM), ()])
def test_queries_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="the model is for"):
        model().densities(np.zeros(shape))


# --- unbiased, from the vectors to the published density --------------------------------------------------------------
#
# Given the public randomness, K̃(y) is an affine function of independent bits and noises whose moment-generating
# functions are known: ψ(s) = ln E exp(s (K̃ − E K̃)) is a finite sum. For every s > 0 and every level,
# P(K̃ − E K̃ ≥ (ψ(s) + ln(1/level))/s) ≤ level (Chernoff), with no approximation; the same with −s below.

RECORDS, COPIES = 8, 1500
USERS = RECORDS * COPIES
"""Eight different vectors, 1,500 users each: there are few terms to evaluate in the bound."""
LEVEL = 1e-10
LAWS: dict[str, BitsumProtocol] = {
    law.name: law
    for law in (
        rr(USERS, flip=0.25),
        ThreeNegativeBinomial(
            n_users=USERS, noise_shape=4, continue_probability=0.8, flood_shape=240.0, flood_continue_probability=0.9
        ),
        PoissonNoise(n_users=USERS, total_mean=2400.0),
        NegativeBinomialNoise(n_users=USERS, shape=2400.0, continue_probability=0.5),
        small_pure(USERS, silence=0.25),
    )
}
"""Much noise, of a mean that shows if it is not subtracted."""


def bits_of(s: Floats, means: Floats) -> Floats:
    """Independent bits, `COPIES` of each mean."""
    return np.asarray(COPIES * (np.log1p(means * np.expm1(s)) - means * s).sum(axis=0))


def centered_negative_binomial(s: Floats, shape: float, go_on: float) -> Floats:
    with np.errstate(invalid="ignore"):  # beyond the domain of the moment-generating function: NaN, ignored below
        cumulant = shape * (np.log1p(-go_on) - np.log1p(-go_on * np.exp(s)))
    return np.asarray(cumulant - s * shape * go_on / (1.0 - go_on))


def cumulant(law: BitsumProtocol, scaled: Floats, s: Floats) -> Floats:
    """ln E exp(s (B̃ − E B̃)) of one instance, `COPIES` users for each feature `scaled`·R, from the definitions."""
    means = 0.5 * (1.0 + scaled)[:, None]
    if isinstance(law, RandomizedResponse):
        p = law.flip_probability
        return bits_of(s / (1.0 - 2.0 * p), p + (1.0 - 2.0 * p) * means)
    if isinstance(law, Pure):
        q, noise = law.silence_probability, math.exp(-law.noise_epsilon)
        t = s / (1.0 - q)
        both = centered_negative_binomial(t, 1.0, noise) + centered_negative_binomial(-t, 1.0, noise)
        return bits_of(t, (1.0 - q) * means) + both
    bits = bits_of(s, means)
    if isinstance(law, PoissonNoise):
        return np.asarray(bits + law.total_mean * (np.expm1(s) - s))
    if isinstance(law, NegativeBinomialNoise):
        return bits + centered_negative_binomial(s, law.shape, law.continue_probability)
    assert isinstance(law, ThreeNegativeBinomial)
    shape, p = float(law.noise_shape), law.continue_probability
    return np.asarray(bits + centered_negative_binomial(s, shape, p) + centered_negative_binomial(-s, shape, p))


def allowed_deviation(law: BitsumProtocol, scaled: Floats, weights: Floats, level: float) -> float:
    """t with P(|Σ_j w_j (B̃_j − E B̃_j)| ≥ t) ≤ level; columns of `scaled` are instances."""
    exponents = np.geomspace(10.0, 1e4, 61)  # any exponent gives a bound, so the best of a fixed list does
    sides = []
    for sign in (1.0, -1.0):
        psi = sum(cumulant(law, scaled[:, j], sign * weights[j] * exponents) for j in range(len(weights)))
        bounds = (psi + math.log(2.0 / level)) / exponents
        sides.append(float(np.nanmin(np.where(np.isfinite(bounds), bounds, np.nan))))
    return max(sides)


@cache
def fitted(kernel: str, bitsum: str) -> PrivateKDE:
    """Users crowded around one point, so that densities are far from 0; seed chosen before looking."""
    x = np.repeat(unit_rows(RECORDS, 7), COPIES, axis=0)
    plan = unplanned(LAWS[bitsum], **request(kernel, repetitions=16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "verify", lambda _: None)  # the noise is chosen for the test and keeps no promise
        return PrivateKDE(insecure_seed=20250, public_seed=SEED).fit(x, plan=plan)


def deviations(kernel: str, bitsum: str, y: Floats) -> tuple[Floats, Floats]:
    """How far K̃(y) is from (1/(nI)) Σ_u f(x_u)·g(y), and how far it may be."""
    kde, x = fitted(kernel, bitsum), unit_rows(RECORDS, 7).astype(np.float32)
    family = kde.model_.announcements[0].family()
    n_terms = USERS * family.facts.n_repetitions
    scaled = family.scaled_features(x).astype(np.float64)
    queries = family.query_features(y.astype(np.float32)).astype(np.float64)
    expected = queries @ scaled.sum(axis=0) * COPIES * family.facts.bound / n_terms
    allowed = [
        allowed_deviation(kde.plan_.protocol(), scaled, 2.0 * family.facts.bound * g / n_terms, LEVEL / len(y))
        for g in queries
    ]
    return np.abs(kde.density(y) - expected), np.array(allowed) + 1e-5  # single precision


@pytest.mark.parametrize("bitsum", BITSUMS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_densities_are_unbiased_end_to_end(kernel: str, bitsum: str) -> None:
    """|K̃(y) − (1/(nI)) Σ f·g| stays within a Chernoff bound, at two queries.

    False alarms: 1e-10 each, whatever the seed. Power: a bias of twice `allowed` is missed with at most the same
    probability. The defects that the next test plants are twice as large as that and more.
    """
    y = np.concatenate([np.full((1, DIM), 3.0**-0.5), unit_rows(1, 8)])
    found, allowed = deviations(kernel, bitsum, y)
    assert np.all(found <= allowed), (found, allowed)
    assert np.all(allowed < 0.15), "a bound that allows anything shows nothing"


def without_correction(_: Any, tally: Tally, n_users: int) -> Floats:
    """The paper's Algorithm 2: counts taken as sums of bits."""
    return np.asarray(tally.ones, dtype=np.float64)


def uncorrected_difference(_: Any, tally: Tally, n_users: int) -> Floats:
    return np.asarray(tally.ones - tally.zeros, dtype=np.float64)


@pytest.mark.parametrize(
    ("bitsum", "estimate"),
    [
        ("rr", without_correction),
        ("pure", uncorrected_difference),
        ("negative-binomial", without_correction),
        ("poisson", without_correction),
        ("3nb", without_correction),
    ],
)
def test_an_analyzer_without_its_correction_is_refuted(
    bitsum: str, estimate: Callable[..., Floats], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saboteurs, each with a defect that the test above misses with probability 1e-10 or less."""
    y = np.full((1, DIM), 3.0**-0.5)
    monkeypatch.setattr(EXECUTED[bitsum], "estimate", estimate)
    fitted.cache_clear()
    found, allowed = deviations("inner-product", bitsum, y)
    fitted.cache_clear()
    assert found[0] > 2.0 * allowed[0], (found, allowed)


# --- squared means ----------------------------------------------------------------------------------------------------


def variance_of_sums(law: BitsumProtocol, scaled: Floats, bound: float) -> Floats:
    """Var F̃ of each instance, from the definitions: F̃ = (2B̃ − n)R."""
    means = 0.5 * (1.0 + scaled)
    if isinstance(law, RandomizedResponse):
        p = law.flip_probability
        ones = p + (1.0 - 2.0 * p) * means
        return np.asarray(4.0 * bound**2 * (ones * (1.0 - ones)).sum(axis=0) / (1.0 - 2.0 * p) ** 2)
    noise = {
        "poisson": lambda one: one.total_mean,
        "negative-binomial": lambda one: one.shape * one.continue_probability / (1.0 - one.continue_probability) ** 2,
        "3nb": lambda one: 2.0 * one.noise_shape * one.continue_probability / (1.0 - one.continue_probability) ** 2,
    }[law.name](law)
    return np.asarray(4.0 * bound**2 * ((means * (1.0 - means)).sum(axis=0) + noise))


def averaged_features(kernel: str, x: Floats) -> Floats:
    """f(x)/R over repetitions on which ‖f‖² averages to exactly what it does over all public randomness."""
    if kernel == "gaussian":  # cos² at two phases a quarter turn apart
        angles = x @ np.random.default_rng(9).normal(size=(DIM, 4))
        return np.asarray(np.cos(np.concatenate([angles, angles + math.pi / 2.0], axis=1)))
    if kernel == "inner-product-signs":  # all signs
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * DIM)).reshape(DIM, -1)
        return np.asarray(x @ signs / math.sqrt(DIM))
    family = KernelChoice(name=kernel, dim=DIM, **{k: request(kernel, 8)[k] for k in ("repetitions", "bias")})
    return family.build(SEED).scaled_features(x).astype(np.float64)


@pytest.mark.parametrize("bitsum", [name for name in BITSUMS if name != "pure"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_squared_means_are_unbiased_on_unit_vectors(kernel: str, bitsum: str) -> None:
    """E Σ F̃²/(n²I) = ‖μ‖² + Σ Var F̃/(n²I): what is subtracted is the second term, exactly, for any data."""
    users = 6
    law, x = small_laws(users)[bitsum], unit_rows(users, 10)
    announcement = announced(law, **request(kernel, repetitions=8))
    facts = announcement.plan.request.facts()
    scaled = averaged_features(kernel, x)
    mean = scaled.sum(axis=0) * facts.bound
    sums = np.stack([mean, np.zeros_like(mean)])
    squares, nothing = (
        DensityModel(
            announcements=(announcement,),
            sums=row[None],
            n_users=(users,),
            contract=announcement.plan.contract,
            private=True,
        ).squared_means()[0]
        for row in sums
    )
    scale = users**2 * facts.n_repetitions
    assert squares - nothing == pytest.approx(mean @ mean / scale, rel=1e-12)
    added = variance_of_sums(law, scaled, facts.bound).sum() / scale
    assert added > 0.1, "nothing to subtract"
    assert -nothing == pytest.approx(added, rel=1e-6)  # features are single precision


def test_squared_means_of_pure_subtract_the_largest_variance() -> None:
    """Its variance depends on the bits, so that on average at most ‖μ‖² is left."""
    users = 6
    announcement = announced(small_laws(users)["pure"], **request("inner-product"))
    law = announcement.plan.protocol()
    model = DensityModel(
        announcements=(announcement,),
        sums=np.zeros((1, DIM)),
        n_users=(users,),
        contract=announcement.plan.contract,
        private=True,
    )
    subtracted = (DIM - 1) / users + 4.0 * DIM * law.variance(users) / users**2
    assert -model.squared_means()[0] == pytest.approx(subtracted, rel=1e-12)


def test_squared_means_use_the_users_who_took_part_and_each_groups_own_plan() -> None:
    two = model("gaussian", groups=2, users=5)
    more = replace(two, n_users=(9, 6))
    for index, n in enumerate((9, 6)):
        law = two.plans[index].protocol()
        noise = (2.0 - 1.0) / n + 8.0 * law.variance(n) / n**2
        assert more.squared_means()[index] == pytest.approx(
            float(two.sums[index] @ two.sums[index]) / (n**2 * 5) - noise, rel=1e-12
        )


# --- what a model may be ----------------------------------------------------------------------------------------------


def changed(base: DensityModel, name: str, value: Any) -> DensityModel:
    return replace(base, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("announcements", ()),
        ("sums", np.zeros((2, 4))),
        ("sums", np.zeros((1, 5))),
        ("sums", np.zeros(10)),
        ("sums", np.zeros((2, 5), np.float32)),
        ("sums", np.zeros((2, 5), np.complex128)),
        ("sums", np.full((2, 5), np.nan)),
        ("sums", np.full((2, 5), -np.inf)),
        ("sums", np.full((2, 5), 2.0 * LARGEST_SUM)),
        ("n_users", (4,)),
        ("n_users", (4, 5, 6)),
        ("n_users", (4, 0)),
        ("n_users", (3, 5)),
        ("n_users", (4, 5.0)),
        ("n_users", (4, True)),
        ("n_users", (4, 10**10)),
        ("labels", ()),
        ("labels", ("a",)),
        ("labels", ("a", "a")),
        ("labels", ("a", 1)),
        ("labels", (0, False)),
        ("labels", (("a",), ("b",))),
        ("private", False),
        ("private", 1),
    ],
)
def test_an_inconsistent_model_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError):
        changed(model(groups=2), name, value)


def test_what_is_allowed_at_the_edge() -> None:
    two = model(groups=2)
    assert changed(two, "sums", np.full((2, 5), LARGEST_SUM)).sums[0, 0] == LARGEST_SUM
    assert changed(two, "n_users", (10**9, 5)).n_users == (10**9, 5)
    for labels in ((0, 1), (False, True), (0.5, 1.5), ("", "b")):
        assert changed(two, "labels", labels).labels == labels


def test_groups_that_do_not_share_their_features_are_refused() -> None:
    two = model(groups=2)
    first, second = two.announcements
    for other in (
        replace(second, public_seed="ff" * 16),
        replace(second, bandwidth=2.0),
        announced(rr(5), **(request("gaussian") | {"kernel": "inner-product-signs"})),
    ):
        contracts = [first.plan.contract, other.plan.contract]
        whole = classifier_contract(contracts, LabelResponse(n_classes=2, label_epsilon=3.0))
        with pytest.raises(InvalidInputError, match="shares"):
            replace(two, announcements=(first, other), contract=whole)


def weaker(contract: Contract) -> Contract:
    one, *rest = contract.guarantees
    return replace(contract, guarantees=(Guarantee(**(one.to_json() | {"epsilon": one.epsilon / 2})), *rest))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_contract_that_does_not_follow_from_the_plans_is_refused(groups: int) -> None:
    base = model(groups=groups)
    assert changed(changed_privacy(base), "n_users", base.n_users).private is False
    for contract in (weaker(base.contract), seeded_contract(base.contract), replace(base.contract, parts=())):
        with pytest.raises(InvalidInputError, match=r"contract|classes|label_epsilon"):
            changed(base, "contract", contract)
    for contract in (base.contract, seeded_contract(weaker(base.contract))):
        with pytest.raises(InvalidInputError, match=r"contract|classes|label_epsilon"):
            replace(base, contract=contract, private=False)


def changed_privacy(base: DensityModel) -> DensityModel:
    return replace(base, contract=seeded_contract(base.contract), private=False)


def test_verifying_a_model_verifies_the_plan_of_every_group() -> None:
    """Loading checks that parts fit together; whether the noise keeps the promise is computed when asked for."""
    with pytest.raises(InvalidInputError, match="do not keep"):
        model(groups=2).verify()
    planned = plan_for(
        users=9, dim=DIM, repetitions=5, bitsum="pure", accountant="basic", epsilon=50.0, delta=0.0, allow_useless=True
    )
    honest = replace(model().announcements[0], plan=planned)
    label = LabelResponse(n_classes=2, label_epsilon=3.0)
    for other, fails in ((honest, False), (announced(rr(5), **request("gaussian")), True)):
        two = DensityModel(
            announcements=(honest, other),
            sums=np.zeros((2, 5)),
            n_users=(9, 9),
            contract=classifier_contract([honest.plan.contract, other.plan.contract], label),
            private=True,
            labels=("a", "b"),
        )
        if fails:
            with pytest.raises(InvalidInputError, match="do not keep"):
                two.verify()
        else:
            two.verify()


def test_classes_are_ranked_by_density_or_by_distance_to_their_mean() -> None:
    two = model("gaussian", groups=2)
    densities = two.densities(unit_rows(4, 13))
    assert two.ranked(densities, "density") is densities
    np.testing.assert_allclose(two.ranked(densities, "mean"), densities - two.squared_means() / 2.0, rtol=1e-12)
    with pytest.raises(InvalidInputError, match="rule"):
        two.ranked(densities, "median")


def test_progress_adds_up_to_the_number_of_queries() -> None:
    done: list[int] = []
    found = model().densities(unit_rows(2 * MOST_ROWS, 14), progress=done.append)
    assert sum(done) == len(found) == 2 * MOST_ROWS
    assert len(done) > 1


def test_the_label_mechanism_is_read_from_the_contract() -> None:
    assert model().label_response() is None
    two = model(groups=2)
    for one in (two, changed_privacy(two)):
        label = one.label_response()
        assert label is not None
        assert (label.n_classes, label.label_epsilon) == (2, 3.0)


def test_labels_were_randomized_over_at_least_the_classes_that_are_released() -> None:
    """More of them than released: small classes were left out. Fewer: nobody could have reported the rest."""
    three = model(groups=3)
    contracts = [plan.contract for plan in three.plans]
    more, fewer = (classifier_contract(contracts, LabelResponse(n_classes=m, label_epsilon=3.0)) for m in (7, 2))
    assert changed(three, "contract", more).label_response() == LabelResponse(n_classes=7, label_epsilon=3.0)
    with pytest.raises(InvalidInputError, match="classes=2"):
        changed(three, "contract", fewer)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[DensityModel, Path]:
    base, path = model(groups=request.param), tmp_path / "model.npz"
    base.save(path)
    return base, path


def same(a: DensityModel, b: DensityModel) -> bool:
    fields = ("announcements", "n_users", "contract", "private", "labels")
    return a.sums.tobytes() == b.sums.tobytes() and all(getattr(a, name) == getattr(b, name) for name in fields)


def test_a_model_comes_back_bit_for_bit(saved: tuple[DensityModel, Path]) -> None:
    base, path = saved
    loaded = DensityModel.load(path)
    assert same(loaded, base)
    assert [type(n) for n in loaded.n_users] == [int] * len(base.n_users)
    y = unit_rows(300, 11)
    assert loaded.densities(y).tobytes() == base.densities(y).tobytes()
    again = path.with_name("again.npz")
    loaded.save(str(again))
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_file_remembers_that_nothing_was_private(groups: int, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    seeded = changed_privacy(model(groups=groups))
    seeded.save(path)
    loaded = DensityModel.load(path)
    assert loaded.private is False
    assert same(loaded, seeded)


@pytest.mark.parametrize("labels", [("x", "ü €"), (-3, 10**15), (False, True), (0.1, 2.0)])
def test_labels_keep_their_type_and_value(labels: tuple[Any, ...], tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    changed(model(groups=2), "labels", labels).save(path)
    found = DensityModel.load(path).labels
    assert found == labels
    assert [type(label) for label in found] == [type(label) for label in labels]


def test_every_flipped_byte_and_every_truncation_is_found(
    saved: tuple[DensityModel, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers, the digest, and a sample of the rest (`test_container` tries every bit of a small file)."""
    _, path = saved
    whole = path.read_bytes()
    masks = np.random.default_rng(12).integers(1, 256, size=len(whole)).tolist()
    ends = {*range(300), *range(len(whole) - 400, len(whole))}
    bent = [whole[:at] + bytes([whole[at] ^ masks[at]]) + whole[at + 1 :] for at in ends | {*range(0, len(whole), 23)}]
    cut = [whole[:length] for length in ends | {*range(0, len(whole), 101)}]
    for content in (*bent, *cut, whole + b"\0"):
        monkeypatch.setattr(Path, "read_bytes", lambda _, content=content: content)
        with pytest.raises(DamagedFileError):
            DensityModel.load(path)
    monkeypatch.setattr(Path, "read_bytes", lambda _: whole)
    assert DensityModel.load(path)


def forged(path: Path, edit: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """The same file with another content, digest included."""
    document, arrays = read_container(path, SCHEMA, ("sums",))
    held: dict[str, Any] = dict(arrays)
    edit(document, held)
    write_container(path, document, held)
    return path


def set_at(*keys: Any, to: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def edit(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        place: Any = {"arrays": arrays} if keys[0] == "arrays" else document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return edit


PLAN = ("announcements", 0, "plan")


@pytest.mark.parametrize(
    "edit",
    [
        set_at("arrays", "sums", to=np.zeros((1, 4))),
        set_at("arrays", "sums", to=np.zeros((2, 5))),
        set_at("arrays", "sums", to=np.array([[0.0, 0.0, np.nan, 0.0, 0.0]])),
        set_at("arrays", "sums", to=np.zeros((1, 5), np.int64)),
        set_at("arrays", "sums", to=np.array([["a"] * 5])),
        set_at("arrays", "sums", to=np.zeros((1, 5), ">f8")),
        set_at("n_users", to=[0]),
        set_at("n_users", to=[-4]),
        set_at("n_users", to=[3]),
        set_at("n_users", to=[4, 4]),
        set_at("n_users", to=4),
        set_at("n_users", to=["4"]),
        set_at("n_users", to=[10**400]),
        set_at("schema", to="privkde.model/3"),
        set_at("schema", to=None),
        set_at("private", to="true"),
        set_at("private", to=False),
        set_at("private", to=None),
        set_at("labels", to=["a"]),
        set_at("labels", to=[["a"]]),
        set_at("labels", to=None),
        set_at("announcements", to=[]),
        set_at("announcements", to={}),
        set_at("announcements", 0, to=None),
        set_at("announcements", 0, "schema", to="privkde.plan/1"),
        set_at("announcements", 0, "public_seed", to="00"),
        set_at("announcements", 0, "public_seed", to=[1]),
        set_at("announcements", 0, "bandwidth", to=0.0),
        set_at("announcements", 0, "projection", to=99),
        set_at(*PLAN, to=None),
        set_at(*PLAN, "schema", to="privkde.plan/0"),
        set_at(*PLAN, "request", "users", to=1),
        set_at(*PLAN, "request", "kernel", to="cosine"),
        set_at(*PLAN, "request", "classes", to=2),
        set_at(*PLAN, "request", "surprise", to=2),
        set_at(*PLAN, "bitsum", to="telepathy"),
        set_at(*PLAN, "instance", "parameters", to={}),
        set_at(*PLAN, "instance", "parameters", to="ab"),
        set_at(*PLAN, "instance", "parameters", "flip_probability", to=0.75),
        set_at(*PLAN, "guarantees", 0, "epsilon", to=-1.0),
        set_at(*PLAN, "contracts", 0, "evidence", "kind", to="hope"),
        set_at("contract", "evidence", "kind", to="hope"),
        set_at("contract", "guarantees", 0, "epsilon", to=0.25),
        set_at("contract", "guarantees", to=[]),
        set_at("contract", "component", to="something better"),
        set_at("contract", to={}),
        set_at("contract", to=None),
    ],
)  # fmt: skip
def test_a_forgery_with_a_matching_digest_is_validated(edit: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model().save(path)
    with pytest.raises(DamagedFileError):
        DensityModel.load(forged(path, edit))


def test_swapped_and_missing_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model().save(path)

    def renamed(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["counts"] = arrays.pop("sums")

    with pytest.raises(DamagedFileError):
        DensityModel.load(forged(path, renamed))


def test_one_models_sums_do_not_fit_another_kernel(tmp_path: Path) -> None:
    one, other = tmp_path / "a.npz", tmp_path / "b.npz"
    model("gaussian").save(one)
    model("laplacian").save(other)
    _, arrays = read_container(other, SCHEMA, ("sums",))
    with pytest.raises(DamagedFileError):
        DensityModel.load(forged(one, set_at("arrays", "sums", to=arrays["sums"])))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON document, containers included."""
    if at:
        yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


JUNK: tuple[Any, ...] = (None, [], {}, "x", -1, 1e300, float("nan"), True, [[]], {"schema": 1})


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", range(len(JUNK)), ids=[str(junk) for junk in JUNK])
def test_no_junk_anywhere_ends_in_another_error(
    number: int, every: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Values of the document replaced in turn: refused, or (where nobody relies on it) a model that works.

    By default each place gets one or two kinds of junk, in the study all of them.
    """
    junk = JUNK[number]
    path = tmp_path / "model.npz"
    model(groups=2).save(path)
    document, arrays = read_container(path, SCHEMA, ("sums",))
    everywhere = [at for at in places(document) if at[:2] != ("announcements", 1)][number % every :: every]
    assert len(everywhere) >= 20
    refused = 0
    for at in everywhere:
        bent = copy.deepcopy(document)
        set_at(*at, to=junk)(bent, {})
        monkeypatch.setattr("privkde.protocol.model.read_container", lambda *_, bent=bent: (bent, dict(arrays)))
        try:
            loaded = DensityModel.load(path)
        except DamagedFileError:
            refused += 1
            continue
        assert np.all(np.isfinite(loaded.densities(np.zeros((1, DIM)))))
        assert np.all(np.isfinite(loaded.squared_means()))
        assert str(loaded.contract)
    assert refused > len(everywhere) // 2


def test_a_document_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model().save(path)
    document, arrays = read_container(path, SCHEMA, ("sums",))
    nested = document["contract"]
    for _ in range(400):
        nested = {**document["contract"], "parts": [nested]}
    write_container(path, {**document, "contract": nested}, arrays)
    with pytest.raises(DamagedFileError):
        DensityModel.load(path)


@pytest.mark.parametrize("when", ["write", "replace"])
def test_a_save_that_fails_leaves_nothing_behind(
    when: str, saved: tuple[DensityModel, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, path = saved
    before = path.read_bytes()

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError("no space left on device")

    def fail(*_: Any) -> None:
        raise OSError("the disk is gone")

    if when == "write":
        monkeypatch.setattr(Path, "write_bytes", half)
    else:
        monkeypatch.setattr("os.replace", fail)
    for target in (path, path.with_name("new.npz")):
        with pytest.raises(OSError, match=r"space|gone"):
            base.save(target)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_model_says_what_it_is_without_its_numbers() -> None:
    text = repr(model(groups=2))
    assert "labels=('a', 'b')" in text
    assert "sums" not in text


def test_plans_are_those_of_the_groups() -> None:
    three = model(groups=3)
    assert [plan.request.users for plan in three.plans] == [4, 5, 6]
    assert json.dumps([plan.to_json() for plan in three.plans])


def test_announcements_are_rebuilt_not_trusted(tmp_path: Path) -> None:
    """What is loaded equals what was announced, down to the name of the collection."""
    path = tmp_path / "model.npz"
    base = model(groups=2)
    base.save(path)
    for one, other in zip(DensityModel.load(path).announcements, base.announcements, strict=True):
        assert isinstance(one, Announcement)
        assert one.collection() == other.collection()


def test_a_model_of_kilobytes_does_not_become_a_gigabyte(tmp_path: Path) -> None:
    """Its document asks for maps of 2²⁸ numbers: drawn for queries of that dimension only."""
    path = tmp_path / "model.npz"
    public = announced(small_laws(5)["rr"], kernel="gaussian", dim=2**20 - 2**16, repetitions=256)
    contract = promised([public.plan], None, private=True, declared=True)
    DensityModel(announcements=(public,), sums=np.zeros((1, 256)), n_users=(5,), contract=contract, private=True).save(
        path
    )
    assert path.stat().st_size < 12_000

    def query() -> None:
        with pytest.raises(InvalidInputError, match="the model is for"):
            DensityModel.load(path).densities(np.zeros((1, 3)))

    assert peak(query) < MEGABYTE


def test_members_of_the_document_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model(groups=2).save(path)
    document, arrays = read_container(path, SCHEMA, ("sums",))
    write_container(path, {**document, "remark": 1}, arrays)
    with pytest.raises(DamagedFileError, match="'remark', which does not belong"):
        DensityModel.load(path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda document, _: document["announcements"].append(document["announcements"][0]),
        lambda document, _: document["announcements"].clear(),
        lambda document, _: document["n_users"].append(5),
        lambda document, _: document["labels"].append("c"),
        set_at("arrays", "sums", to=np.zeros((8, 5))),
        set_at("arrays", "sums", to=np.zeros(5)),
    ],
)
def test_plans_are_read_only_if_there_are_as_many_as_belong_to_the_rest(
    edit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: many announcements in one file, of which each takes seconds to read."""
    path = tmp_path / "model.npz"
    model(groups=2).save(path)
    forged(path, edit)
    monkeypatch.setattr(Announcement, "from_json", None)
    with pytest.raises(DamagedFileError, match=r"announcements, .* numbers of users, .* do not belong together"):
        DensityModel.load(path)


def test_plans_in_a_model_are_read_in_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every look at the clock takes 300 s, so two may pass."""
    path = tmp_path / "model.npz"
    announcements = (announced(Pure.calibrate(2.0, 4, excess_error=0.5), **request("gaussian")),)
    sums, contract = np.zeros((1, announcements[0].n_instances)), announcements[0].plan.contract
    saved = DensityModel(announcements=announcements, sums=sums, n_users=(4,), contract=contract, private=True)
    saved.save(path)
    assert same(DensityModel.load(path), saved)
    looks = itertools.count()
    monkeypatch.setattr("accounting.numerics.effort.time.thread_time", lambda: 300.0 * next(looks))
    pure._satisfies_hypothesis.cache_clear()
    with pytest.raises(DamagedFileError, match="plans take more than 600 s of processor time to read"):
        DensityModel.load(path)
    assert next(looks) == 4


def joint_model(classes: int, dim: int = 1, *, labels: tuple[Any, ...] | None = None, **asked: Any) -> DensityModel:
    """A model of joint labels with many classes or dimensions."""
    request = {"repetitions": None, "kernel": "inner-product", "labels": "joint"} | asked
    users = 40 + 2 * classes
    public = announced(rr(users), dim=dim, classes=classes, **request)
    return DensityModel(
        announcements=(public,),
        sums=np.zeros((1, public.n_instances)),
        n_users=(users,),
        contract=public.plan.contract,
        private=True,
        labels=labels or tuple(range(classes)),
    )


def test_labels_of_equal_hash_do_not_slow_a_model_down(tmp_path: Path) -> None:
    """The attack: 825 kB of labels i·(2⁶¹ − 1), whose hashes are equal, took 11 s to compare."""
    many = 20_000
    model = joint_model(many, bound=1.0, padded=0)
    model.save(tmp_path / "model")

    def flood(document: dict[str, Any], _: dict[str, Any]) -> None:
        document["labels"] = [number * (2**61 - 1) for number in range(1, many + 1)]

    forged(tmp_path / "model", flood)
    with pytest.raises(DamagedFileError, match="must fit in 64 bits"):
        DensityModel.load(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="no two equal"):
        replace(model, labels=(*range(many - 1), 0))


def test_classes_that_have_a_density_are_found_in_one_pass() -> None:
    """The attack: each of n classes was looked up among n labels; 10,000 classes took seconds for one query."""
    compared = 0

    class Watched(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    many = 300
    model = joint_model(many, bound=1.0, padded=0)
    sums = np.zeros(model.sums.shape)
    sums[0, -many:] = 1e6  # sizes that stand out
    told = replace(model, sums=sums)
    object.__setattr__(told, "labels", tuple(Watched(number) for number in range(many)))
    compared = 0
    assert len(told.feature_sums().sums) == len(told.classes) == many
    assert compared < 10 * many


def test_a_rule_for_long_vectors_takes_no_matrix(tmp_path: Path) -> None:
    """The attack: 299 kB of model became 2.7 GB, an identity matrix."""
    dim = 5_000
    model = joint_model(2, dim, model="mean", moment_weight=0.0, padded=2 * dim + 2, bound=0.5)
    assert peak(model.linear_rule) < 8 * MEGABYTE
    rule = model.linear_rule()
    assert rule is not None
    assert rule.weights.shape == (2, dim)


def test_a_few_kilobytes_of_a_rotated_record_are_refused_before_its_layout_is_drawn(tmp_path: Path) -> None:
    """The attack: a model of 10 kB for vectors of 4,460 dimensions, and 419 MB."""
    path = tmp_path / "model.npz"
    joint = announced(
        rr(40), kernel="inner-product", repetitions=None, dim=20, classes=2, labels="joint", model="discriminant",
        moment_weight=0.5, padded=512, bound=0.5,
    )  # fmt: skip
    DensityModel(
        announcements=(joint,),
        sums=np.zeros((1, 512)),
        n_users=(40,),
        contract=joint.plan.contract,
        private=True,
        labels=(0, 1),
    ).save(path)
    assert DensityModel.load(path).labels == (0, 1)

    def wider(document: dict[str, Any], _: dict[str, Any]) -> None:
        document["announcements"][0]["plan"]["request"].update(dim=4460, padded=10**7, max_messages=1e15)

    forged(path, wider)
    assert path.stat().st_size < 16_000

    def load() -> None:
        with pytest.raises(DamagedFileError, match=r"shape \(1, 512\) .* give float64 of shape \(1, 10000000\)"):
            DensityModel.load(path)

    assert peak(load) < 2 * MEGABYTE
