"""How far one user can shift its bits: never further than the accountant is told, and nearly as far.

A bit of scaled feature s is one with probability (1 + s)/2, so replacing a record shifts it by t = |s − s'|/2. The
pairs here come from the real feature maps: at random, by projected gradient ascent on Σ t², and by jumping search
where features are piecewise constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting import kernels as facts_of_kernels
from accounting.kernels import KERNELS, MOST_DIMENSIONS, KernelFacts, kernel_named
from accounting.mechanisms import RandomizedResponse
from privkde.kernels import KernelChoice, LsqFamily
from privkde.kernels.inner_product import SignFamily
from privkde.kernels.norms import NORM_ERROR
from privkde.protocol import announcement
from privkde.protocol.announcement import Announcement
from privkde.protocol.inputs import checked_vectors
from privkde.protocol.joint_labels import JointLayout
from privkde.protocol.parties import Randomizer
from tests.privkde.long_vectors import SHAPES, long_vectors
from tests.privkde.unplanned import SEED, unplanned

Floats = NDArray[np.float64]
Scaled = Callable[[Floats], NDArray[Any]]
HASHED = ("laplacian", "exponential")
SMOOTH: dict[str, dict[str, Any]] = {
    "gaussian": {"name": "gaussian", "dim": 3, "repetitions": 4},
    "ball": {"name": "gaussian", "dim": 24, "repetitions": 24, "radius": 0.3, "bandwidth": 2.0},
    "small ball": {"name": "gaussian", "dim": 24, "repetitions": 16, "radius": 0.01},
    "projected ball": {"name": "gaussian", "dim": 24, "repetitions": 24, "radius": 0.3, "projection": 20},
    "identity": {"name": "inner-product", "dim": 5},
    "rotated": {"name": "inner-product", "dim": 8, "bound": 0.5},
    "clipped": {"name": "inner-product", "dim": 8, "bound": 0.2},
    "tall signs": {"name": "inner-product-signs", "dim": 4, "repetitions": 24},
    "wide signs": {"name": "inner-product-signs", "dim": 12, "repetitions": 5},
    "one sign": {"name": "inner-product-signs", "dim": 6, "repetitions": 1},
}
CHOICES = {name: KernelChoice(**given) for name, given in SMOOTH.items()} | {
    name: KernelChoice(name=name, dim=3, repetitions=12, bias=0.25) for name in HASHED
}
STARTS = 48


def in_domain(z: Floats, family: LsqFamily) -> Floats:
    """Rows of the largest norm at most, where there is one."""
    longest = family.largest_norm
    if longest is None:
        return z
    return np.asarray(z / np.maximum(1.0, np.linalg.norm(z, axis=1, keepdims=True) / longest))


def shifts(scaled: Scaled, pairs: Floats) -> Floats:
    """t of every pair (x, x') side by side in a row and of every instance."""
    half = pairs.shape[1] // 2
    both = scaled(np.concatenate([pairs[:, :half], pairs[:, half:]])).astype(np.float64)
    return np.asarray(np.abs(both[: len(pairs)] - both[len(pairs) :]) / 2.0)


def squares(scaled: Scaled, pairs: Floats) -> Floats:
    return np.asarray(np.sum(shifts(scaled, pairs) ** 2, axis=1))


def starts(dim: int, rng: np.random.Generator) -> Floats:
    """Random pairs on the sphere, half of them opposite: the ascent may leave a symmetric saddle."""
    x, other = rng.normal(size=(2, STARTS, dim))
    other[: STARTS // 2] = -x[: STARTS // 2]
    return np.concatenate([x, other], axis=1)


def projected(pairs: Floats, family: LsqFamily) -> Floats:
    half = pairs.shape[1] // 2
    return np.concatenate([in_domain(pairs[:, :half], family), in_domain(pairs[:, half:], family)], axis=1)


def climbed(scaled: Scaled, family: LsqFamily, pairs: Floats, steps: int = 60) -> Floats:
    """Projected gradient ascent from every pair at once, by central differences; a step that loses is halved."""
    pairs = projected(pairs, family)
    width, size = pairs.shape[1], np.full(len(pairs), 0.5)
    best = squares(scaled, pairs)
    moves = 1e-2 * np.eye(width)
    for _ in range(steps):
        probes = np.concatenate([(pairs[:, None] + sign * moves).reshape(-1, width) for sign in (1.0, -1.0)])
        up, down = squares(scaled, projected(probes, family)).reshape(2, len(pairs), width)
        gradient = up - down
        length = np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1e-12)
        tried = projected(pairs + size[:, None] * gradient / length, family)
        found = squares(scaled, tried)
        better = found > best
        pairs[better], best[better] = tried[better], found[better]
        size = np.where(better, size, size / 2.0)
    return pairs


def jumped(scaled: Scaled, family: LsqFamily, pairs: Floats, rng: np.random.Generator, steps: int = 60) -> Floats:
    """The same by random jumps of shrinking length, for maps without a gradient."""
    pairs = projected(pairs, family)
    best = squares(scaled, pairs)
    for step in range(steps):
        tried = projected(pairs + rng.normal(size=pairs.shape) * 2.0 * 0.93**step, family)
        found = squares(scaled, tried)
        better = found >= best
        pairs[better], best[better] = tried[better], found[better]
    return pairs


def adversarial(scaled: Scaled, family: LsqFamily, seed: int) -> Floats:
    """Random pairs and the best ones that the search came to."""
    rng = np.random.default_rng(seed)
    pairs = projected(starts(family.facts.dim, rng), family)
    search = partial(jumped, rng=rng) if family.choice.name in HASHED else climbed
    return np.concatenate([pairs, search(scaled, family, pairs.copy())])


def respected(found: Floats, facts: KernelFacts) -> None:
    """Every promise of `Touched` about the shifts of these pairs (rows)."""
    touched = facts.touched
    assert float(found.max()) <= facts.largest_shift * (1.0 + 1e-6)
    assert float(np.sum(found**2, axis=1).max()) <= touched.shift_budget * (1.0 + 1e-6)
    assert int(np.count_nonzero(found, axis=1).max()) <= touched.total
    assert touched.squared_shift is None or touched.shift_budget <= touched.squared_shift


# --- one density ----------------------------------------------------------------------------------


REACHED = {  # share of Δ² that the search must come to
    "gaussian": 0.9, "identity": 0.99, "rotated": 0.95, "clipped": 0.8, "tall signs": 0.3, "wide signs": 0.3,
    "one sign": 0.95, "ball": 0.6, "small ball": 0.6, "projected ball": 0.6, "laplacian": 0.75, "exponential": 0.75,
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_nobody_shifts_further_than_declared(name: str) -> None:
    family = CHOICES[name].build(SEED)
    found = shifts(family.scaled_features, adversarial(family.scaled_features, family, seed=1))
    respected(found, family.facts)
    reached = float(np.sum(found**2, axis=1).max()) / family.facts.touched.shift_budget
    assert reached >= REACHED[name], "the search has no power"


@pytest.mark.parametrize("seed", [SEED, "ab" * 16, "07" * 16])
@pytest.mark.parametrize("name", ["tall signs", "wide signs", "one sign"])
def test_signs_reach_what_is_computed_from_the_draw(name: str, seed: str) -> None:
    """The singular value is the truth, not only a bound; what is declared before the draw is larger."""
    family = CHOICES[name].build(seed)
    assert isinstance(family, SignFamily)
    drawn = family.squared_shift()
    assert drawn is not None
    best = float(np.sum(shifts(family.scaled_features, adversarial(family.scaled_features, family, 2)) ** 2, 1).max())
    assert 0.95 * drawn <= best <= drawn
    singular = np.linalg.svd(np.sign(family.weights.astype(np.float64)), compute_uv=False)[0]
    assert drawn == pytest.approx(1.0001**2 * singular**2 / family.facts.dim, rel=1e-5)
    declared = family.facts.squared_shift
    assert declared is not None
    assert drawn < declared


def test_an_untrue_bound_is_found() -> None:
    """The search refutes half of Δ² for every kernel whose Δ² it must come near."""
    for name in ("identity", "rotated", "gaussian", "laplacian", "exponential"):
        family = CHOICES[name].build(SEED)
        found = shifts(family.scaled_features, adversarial(family.scaled_features, family, seed=1))
        less = replace(family.facts, squared_shift=0.5 * family.facts.touched.shift_budget)
        with pytest.raises(AssertionError):
            respected(found, less)


# --- single precision -----------------------------------------------------------------------------


LONG: dict[str, dict[str, Any]] = {  # a prime; R is about 4/√dim, and 1/√dim where it clips
    "identity": {"name": "inner-product", "dim": 100_003},
    "rotated": {"name": "inner-product", "dim": 100_003, "bound": 0.013},
    "clipped": {"name": "inner-product", "dim": 100_003, "bound": 0.0032},
    "signs": {"name": "inner-product-signs", "dim": 100_003, "repetitions": 16},
}
LONGEST: dict[str, dict[str, Any]] = {
    "longest identity": {"name": "inner-product", "dim": MOST_DIMENSIONS},
    "longest rotated": {"name": "inner-product", "dim": MOST_DIMENSIONS, "bound": 0.004},
    "longest clipped": {"name": "inner-product", "dim": MOST_DIMENSIONS, "bound": 0.001},
    "longest signs": {"name": "inner-product-signs", "dim": MOST_DIMENSIONS, "repetitions": 16},
}


@pytest.mark.parametrize("name", [*LONG, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGEST)])
def test_nobody_shifts_further_in_many_dimensions(name: str) -> None:
    """Opposite vectors of norm 1, as the check admits them: Σ t² is ‖f(x)/R‖², and near Δ² where nothing is clipped."""
    family = KernelChoice(**(LONG | LONGEST)[name]).build(SEED)
    dim, declared = family.facts.dim, family.facts.squared_shift
    assert declared is not None
    for shape in SHAPES:
        x = checked_vectors(long_vectors(shape, dim), dim, longest=1.0, outside="project")
        there, back = (family.scaled_features(sign * x).astype(np.float64) for sign in (1.0, -1.0))
        found = np.sum((there - back) ** 2, axis=1) / 4.0
        assert np.all(found <= declared)
        if name.endswith(("identity", "rotated")):
            lost = 1.0 - found * family.facts.bound**2
            assert np.all(lost >= -2.0 * NORM_ERROR - 1e-6), "the slack is not used up"
            assert np.min(lost) <= 1e-3, "the shift is near the bound"


@pytest.mark.parametrize("name", ["identity", "rotated", "clipped", "tall signs", "wide signs", "one sign"])
def test_features_are_held_to_the_declared_shift_whatever_rounding_does(name: str) -> None:
    """Vectors longer than any rounding makes them: features come near Δ and stop there."""
    family = CHOICES[name].build(SEED)
    declared = family.facts.squared_shift
    assert declared is not None
    x = np.random.default_rng(5).normal(size=(500, family.facts.dim))
    x *= np.geomspace(1.0, 100.0, len(x))[:, None] / np.linalg.norm(x, axis=1, keepdims=True)
    features = family.scaled_features(x).astype(np.float64)
    found = np.sum(features**2, axis=1)
    assert np.all(found <= declared)
    assert np.all(np.abs(features) <= 1.0)
    if family.facts.n_instances > declared:  # else [−1, 1] is the tighter bound
        assert np.max(found) >= (1.0 - 5.0 * NORM_ERROR) * declared


@pytest.mark.parametrize("name", ["identity", "rotated", "tall signs", "wide signs"])
def test_features_of_the_unit_ball_are_not_touched(name: str) -> None:
    family = CHOICES[name].build(SEED)
    x = np.random.default_rng(6).normal(size=(500, family.facts.dim))
    x *= (1.0 + NORM_ERROR) / np.linalg.norm(x, axis=1, keepdims=True)
    clipped = np.clip(family.query_features(x) / family._bound, -1.0, 1.0)
    np.testing.assert_allclose(family.scaled_features(x), clipped, rtol=3e-7)


# --- joint labels ---------------------------------------------------------------------------------


def layout_of(family: LsqFamily, n_classes: int) -> tuple[JointLayout, KernelFacts]:
    facts = family.facts.joint(n_classes)
    layout = JointLayout.of(facts)
    assert layout is not None
    return layout, facts


def labeled(family: LsqFamily, layout: JointLayout, classes: tuple[int, int]) -> Scaled:
    """Scaled features of (x, c) for the first half of the rows and of (x', c') for the second."""

    def scaled(z: Floats) -> Floats:
        numbers = np.repeat(classes, len(z) // 2)
        return layout.scaled(family.scaled_features(z), numbers).astype(np.float64)

    return scaled


@pytest.mark.parametrize("classes", [(0, 0), (2, 2), (0, 1), (2, 0)], ids=str)
@pytest.mark.parametrize("name", CHOICES)
def test_nobody_shifts_further_with_joint_labels(name: str, classes: tuple[int, int]) -> None:
    family = CHOICES[name].build(SEED)
    layout, facts = layout_of(family, 3)
    scaled = labeled(family, layout, classes)
    found = shifts(scaled, adversarial(scaled, family, seed=3))
    respected(found, facts)
    moved = np.count_nonzero(found, axis=1)
    if classes[0] == classes[1]:
        assert moved.max() <= family.facts.touched.total
        assert not found[:, -3:].any(), "sizes stay"
    else:
        assert moved.max() == 2 * facts.sparsity * facts.n_repetitions + 2
        assert np.all(found[:, -3:].astype(np.float32).sum(axis=1) == 2.0 * facts.size_weight)


@pytest.mark.parametrize("name", ["gaussian", "identity", "rotated", "one sign", *HASHED])
def test_changing_the_class_is_worst_or_as_bad(name: str) -> None:
    """The weight of the sizes is as loud as Δ² allows: other classes come near it, too."""
    family = CHOICES[name].build(SEED)
    layout, facts = layout_of(family, 2)
    scaled = labeled(family, layout, (0, 1))
    found = squares(scaled, adversarial(scaled, family, seed=4))
    assert float(found.max()) >= 0.85 * facts.touched.shift_budget


@pytest.mark.parametrize("name", CHOICES)
def test_weights_are_exact_and_no_louder_than_any_bit(name: str) -> None:
    base = CHOICES[name].facts()
    facts = base.joint(3)
    assert 0.0 < facts.size_weight <= facts.largest_shift <= 1.0
    assert float(np.float32(facts.size_weight)) == facts.size_weight
    assert facts.touched.shift_budget >= base.touched.shift_budget
    assert (facts.n_instances, facts.touched.total) == (
        3 * base.n_instances + 3,
        2 * base.sparsity * base.n_repetitions + 2,
    )
    assert facts.paper_touched == facts.touched
    assert not facts.unit_ball
    if name not in HASHED and base.ball is None:  # there, leaving a class costs as much as moving within it, or more
        assert facts.touched.shift_budget == base.touched.shift_budget
    half = base.touched.shift_budget / 2.0
    assert half + 2.0 * facts.size_weight**2 <= facts.touched.shift_budget * (1.0 + 1e-12) or name in HASHED


def test_weights_by_hand() -> None:
    """Identity, R = 1: Δ² = 1.0001², and ½Δ² + 2w² = Δ². Hashed: Δ² = I/2 is used up, so w = ½ comes on top."""
    identity = kernel_named("inner-product").facts(dim=7).joint(4)
    assert identity.size_weight == pytest.approx(1.0001 / 2.0, abs=2e-6)
    assert identity.squared_shift == pytest.approx(1.0001**2, rel=1e-12)
    hashed = kernel_named("laplacian").facts(dim=2, repetitions=6).joint(4)
    assert (hashed.size_weight, hashed.squared_shift) == (0.5, 3.5)
    for repetitions, weight in ((1, 0.5), (2, math.sqrt(0.5)), (3, math.sqrt(0.75)), (4, 1.0), (768, 1.0)):
        gaussian = kernel_named("gaussian").facts(dim=2, repetitions=repetitions).joint(4)
        assert gaussian.size_weight == pytest.approx(weight, abs=2e-6)
        assert gaussian.touched.shift_budget == repetitions


# --- declared before the draw, checked after it ---------------------------------------------------


def signs_announced(**given: Any) -> Announcement:
    law = RandomizedResponse(n_users=4, flip_probability=0.25)
    plan = unplanned(law, **{"kernel": "inner-product-signs", "dim": 4, "repetitions": 24, **given})
    return Announcement(plan=plan, public_seed=SEED)


@pytest.mark.parametrize("labels", [{}, {"labels": "joint", "classes": 2}], ids=["density", "joint"])
def test_signs_beyond_the_declared_shift_are_refused(labels: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs the maps is refused them, so that nobody takes part with such a draw."""
    announcement._family.cache_clear()
    sound = signs_announced(**labels).to_json()
    drawn = CHOICES["tall signs"].build(SEED).squared_shift()
    assert drawn is not None
    kernel = facts_of_kernels.KERNELS["inner-product-signs"]

    def declare(value: float) -> None:
        def declared(*given: Any) -> KernelFacts:
            return replace(kernel.build(*given), squared_shift=value)

        monkeypatch.setitem(facts_of_kernels.KERNELS, kernel.name, replace(kernel, build=declared))
        announcement._family.cache_clear()

    declare(1.0001 * drawn)
    Randomizer(signs_announced(**labels))
    declare(0.9999 * drawn)
    with pytest.raises(InvalidInputError, match="draws maps with squared shift"):
        signs_announced(**labels).family()
    with pytest.raises(InvalidInputError, match="draws maps with squared shift"):
        Randomizer(Announcement.from_json(sound))
    announcement._family.cache_clear()


def test_unknown_shifts_are_taken_only_if_none_was_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    family = CHOICES["tall signs"].build(SEED)
    family.require_declared_shift()
    monkeypatch.setattr("privkde.kernels.inner_product.MOST_SINGULAR", 3)
    assert family.squared_shift() is None
    with pytest.raises(InvalidInputError, match="squared shift None"):
        family.require_declared_shift()
    monkeypatch.setattr(facts_of_kernels, "MOST_SINGULAR", 3)
    undeclared = CHOICES["tall signs"].build(SEED)
    assert undeclared.facts.touched.shift_budget == 24
    undeclared.require_declared_shift()


@pytest.mark.parametrize(("dim", "repetitions"), [(1, 1), (2, 3), (8, 8), (3, 200), (200, 3), (40, 60)])
def test_hardly_any_seed_is_refused(dim: int, repetitions: int) -> None:
    """40 public seeds; a plan that most draws break would be of no use. Not statistical: the seeds are fixed."""
    choice = KernelChoice(name="inner-product-signs", dim=dim, repetitions=repetitions)
    for number in range(40):
        choice.build(f"{number:032x}").require_declared_shift()


@pytest.mark.parametrize("name", KERNELS)
def test_only_signs_are_drawn_after_their_shift_was_declared(name: str) -> None:
    family = KernelChoice(name=name, dim=3).build(SEED)
    family.require_declared_shift()
    assert (family.squared_shift() == family.facts.squared_shift) is (name != "inner-product-signs")
