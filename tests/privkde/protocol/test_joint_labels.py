"""Joint labels from the client's bits to a fitted classifier: one collection, one promise for features and label.

Statistical tests: `test_class_sums_and_sizes_are_unbiased`, ten times at level 1e-10; `test_both_paths_have_one_law`,
ten comparisons at 5e-9; `test_sizes_follow_their_law`, two at 1e-9. They add up to 6e-8.
"""

from __future__ import annotations

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
from numpy.typing import NDArray

from accounting import Adjacency, InfeasibleError, InvalidInputError, Plan, PlanRequest, PrivkdeError, View
from accounting.classifier_model import TELLING_DEVIATIONS
from accounting.composed_contracts import seeded_contract
from accounting.kernels import KERNELS, kernel_named
from accounting.mechanisms import BITSUMS, BitsumProtocol, RandomizedResponse
from accounting.numerics.pmf import binomial
from privkde import PrivateClassifier
from privkde.bitsum import Tally
from privkde.bitsum import execution as base
from privkde.cli import main
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import bernoulli
from privkde.engines import PATHS
from privkde.engines.local import collect
from privkde.protocol import rounds
from privkde.protocol.announcement import Announcement
from privkde.protocol.joint_labels import JointLayout
from privkde.protocol.model import DensityModel
from privkde.protocol.parties import Analyzer, Randomizer, TooFewUsersError
from privkde.protocol.rounds import Collection, ExcludedClassWarning, Round, Terms, WrongRoundError
from privkde.storage.container import DamagedFileError
from tests import twins
from tests.plans import made_once
from tests.privkde.cli.test_command_line import refuse
from tests.privkde.engines.test_local import COMPARED, compared
from tests.privkde.protocol.test_model import (
    COPIES,
    DIM,
    LAWS,
    RECORDS,
    USERS,
    allowed_deviation,
    averaged_features,
    request,
    unit_rows,
    variance_of_sums,
)
from tests.privkde.unplanned import SEED, announced, small_laws, unplanned
from verification.statistical.goodness_of_fit import goodness_of_fit

Floats = NDArray[np.float64]
ABC = ("a", "b", "c")


def stream(*labels: str | int) -> ByteStream:
    return ByteStream(bytes(range(32))).child("test_joint", *labels)


def joint(law: BitsumProtocol, kernel: str = "inner-product", *, classes: int = 3, **changes: Any) -> Announcement:
    """An announcement with joint labels and a block of instances for each class."""
    return announced(law, labels="joint", classes=classes, padded=0, **{**request(kernel), **changes})


def layout_of(announcement: Announcement) -> JointLayout:
    layout = announcement.layout()
    assert isinstance(layout, JointLayout)
    return layout


def rr(n_users: int, flip: float = 0.125) -> RandomizedResponse:
    return RandomizedResponse(n_users=n_users, flip_probability=flip)


# --- the layout -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_are_in_the_block_of_the_class_and_nowhere_else(kernel: str) -> None:
    announcement = joint(rr(6), kernel)
    layout, family = layout_of(announcement), announcement.family()
    x, classes = unit_rows(6, 1).astype(np.float32), np.array([2, 0, 1, 1, 2, 0])
    found = layout.scaled(family.scaled_features(x), classes)
    assert found.shape == (6, announcement.n_instances)
    assert found.dtype == np.float32
    width = family.facts.n_repetitions * family.facts.n_coordinates
    for row, own, record in zip(found, classes, x.tolist(), strict=True):
        expected = [f / family.facts.bound for f in twins.features(family, record)]
        for c in range(3):
            block = row[c * width : (c + 1) * width].tolist()
            if c == own:
                assert block == pytest.approx(expected, abs=1e-5)
                assert np.abs(block).max() > 0.3
            else:
                assert block == [0.0] * width, "fair coins, exactly"
        weight = announcement.plan.request.facts().size_weight
        assert row[3 * width :].tolist() == [weight if c == own else -weight for c in range(3)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_noise_the_sums_are_those_of_each_class(kernel: str) -> None:
    """Expected sums R·Σ_u s_u in place of published ones: `split` gives Σ_{u in c} f(x_u) and n_c."""
    announcement = joint(rr(9), kernel)
    layout, family, bound = layout_of(announcement), announcement.family(), announcement.plan.request.facts().bound
    x, classes = unit_rows(9, 2).astype(np.float32), np.array([0] * 5 + [2] * 4)
    scaled = layout.scaled(family.scaled_features(x), classes).astype(np.float64)
    sums, sizes = layout.split(bound * scaled.sum(axis=0), 9)
    assert sizes.tolist() == pytest.approx([5.0, 0.0, 4.0], abs=1e-9)
    for c, row in enumerate(sums):
        members = x[classes == c].tolist()
        expected = twins.feature_sums(family, members) if members else [0.0] * layout.width
        assert row.tolist() == pytest.approx(expected, abs=1e-4)


def test_layouts_belong_to_joint_labels_only() -> None:
    assert announced(rr(4)).layout() is None
    assert JointLayout.of(kernel_named("gaussian").facts(dim=2, repetitions=4)) is None
    facts = kernel_named("laplacian").facts(dim=2, repetitions=4, bias=0.25).joint(5)
    assert JointLayout.of(facts) == JointLayout(n_classes=5, width=16, weight=0.5, bound=1.0)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, "no classes were given for 2 users"),
        (np.array([0]), r"shape \(1,\)"),
        (np.array([[0, 1]]), r"shape \(1, 2\)"),
        (np.array([0.0, 1.0]), "float64"),
        (np.array([True, False]), "bool"),
        (np.array(["a", "b"]), "<U1"),
        (np.array([0, 3]), "row 1 is not one of the 3, 0 to 2"),
        (np.array([-1, 0]), "row 0 is not one of the 3, 0 to 2"),
    ],
)
def test_bad_classes_are_refused_before_anything_is_drawn(classes: Any, message: str) -> None:
    client = Randomizer(joint(rr(6)), stream=stream())
    x = np.zeros((2, DIM))
    untouched = stream("bad").take(8).tolist()
    for call in (client.inputs, client.tally, client.packets):
        source = stream("bad")
        with pytest.raises(InvalidInputError, match=message):
            call(x, classes, stream=source)
        assert source.take(8).tolist() == untouched


def test_classes_without_joint_labels_are_refused() -> None:
    client = Randomizer(announced(rr(4)), stream=stream())
    for call in (client.inputs, client.tally, client.packets):
        with pytest.raises(InvalidInputError, match="no joint labels"):
            call(np.zeros((2, 1)), np.array([0, 1]), stream=stream())
    with pytest.raises(InvalidInputError, match="no joint labels"):
        client.packet(np.zeros(1), 0)


def test_one_packet_is_the_packet_of_one_row() -> None:
    announcement = joint(small_laws(6)["3nb"])
    x = unit_rows(1, 3)[0]
    packet = Randomizer(announcement, stream=stream()).packet(x, 2)
    assert packet == Randomizer(announcement, stream=stream()).packets(x[None], np.array([2]))[0]
    assert packet != Randomizer(announcement, stream=stream()).packet(x, 1)
    with pytest.raises(InvalidInputError, match="row 0 is not one of the 3"):
        Randomizer(announcement).packet(x, 3)
    with pytest.raises(InvalidInputError, match="no classes"):
        Randomizer(announcement).packet(x)


def test_bits_are_drawn_from_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    announcement = joint(rr(6), "gaussian")
    drawn: list[NDArray[np.float32]] = []

    def spy(scaled: NDArray[np.float32], source: ByteStream, *, flip: float = 0.0) -> NDArray[np.uint8]:
        drawn.append(scaled.copy())
        return bernoulli(scaled, source, flip=flip)

    monkeypatch.setattr(base, "bernoulli", spy)
    x, classes = unit_rows(7, 4).astype(np.float32), np.array([0, 1, 2, 2, 1, 0, 0])
    for path in PATHS:
        for index in (np.arange(7), np.array([6, 1, 0, 5, 2, 3])):
            collect(announcement, x, index, classes, stream=stream(path), path=path)
            features = announcement.family().scaled_features(x)
            expected = layout_of(announcement).scaled(features, classes)[index]
            assert np.array_equal(np.concatenate(drawn), expected)
            drawn.clear()


# --- unbiased, with a known variance ----------------------------------------------------------------------------------

MEMBERS = np.array([0, 0, 0, 1, 1, 1, 1, 2])
"""The classes of the eight records of test_model.py, 1,500 users each."""
LEVEL = 1e-10


@cache
def published(bitsum: str, path: str) -> tuple[Announcement, Floats]:
    """Users around one point in three classes; the seed was chosen before looking."""
    announcement = joint(LAWS[bitsum])
    x, classes = np.repeat(unit_rows(RECORDS, 7), COPIES, axis=0), np.repeat(MEMBERS, COPIES)
    analyzer = collect(announcement, x, np.arange(USERS), classes, stream=stream(bitsum, path), path=path)
    return announcement, analyzer.sums()


def deviations(announcement: Announcement, sums: Floats) -> tuple[Floats, Floats]:
    """|ñ_c − n_c|/n and |F̃_c·y − Σ_{u in c} x_u·y|/n of each class, and how large each may be by Chernoff's bound."""
    layout, x = layout_of(announcement), unit_rows(RECORDS, 7).astype(np.float32)
    y = unit_rows(1, 8)[0]
    law = announcement.plan.protocol()
    scaled = np.zeros((RECORDS, 12))
    for record, c in enumerate(MEMBERS):  # identity features, R = 1: written out here, too
        scaled[record, 3 * c : 3 * c + 3] = x[record]
        scaled[record, 9:] = -layout.weight
        scaled[record, 9 + c] = layout.weight
    features, sizes = layout.split(sums, USERS)
    found, allowed = [], []
    for c in range(3):
        size, query, members = np.zeros(12), np.zeros(12), np.equal(MEMBERS, c)
        size[9 + c] = 1.0 / (layout.weight * USERS)
        query[3 * c : 3 * c + 3] = 2.0 * y / USERS
        exact = COPIES * x[members].astype(np.float64).sum(axis=0) @ y
        found += [sizes[c] / USERS - np.mean(members), (features[c] @ y - exact) / USERS]
        allowed += [allowed_deviation(law, scaled, weights, LEVEL / 6) for weights in (size, query)]
    return np.abs(found), np.array(allowed) + 1e-6  # single precision


@pytest.mark.parametrize(
    ("bitsum", "path"),
    [
        *((bitsum, "aggregated") for bitsum in BITSUMS),
        ("3nb", "faithful"),  # of all: test_both_paths_have_one_law
        *(pytest.param(one, "faithful", marks=pytest.mark.slow) for one in BITSUMS if one != "3nb"),
    ],
)
def test_class_sums_and_sizes_are_unbiased(bitsum: str, path: str) -> None:
    """False alarms: 1e-10 each, whatever the seed. A bias of twice `allowed` is missed with no larger probability."""
    found, allowed = deviations(*published(bitsum, path))
    assert np.all(found <= allowed), (found, allowed)
    assert np.all(allowed < 0.13), "a bound that allows anything shows nothing"


Split = Callable[[JointLayout, Floats, int], tuple[Floats, Floats]]


def without_weight(layout: JointLayout, sums: Floats, n_users: int) -> tuple[Floats, Floats]:
    return sums[:9].reshape(3, 3), (sums[9:] + n_users) / 2.0


def without_others(layout: JointLayout, sums: Floats, n_users: int) -> tuple[Floats, Floats]:
    """As if the others sent nothing."""
    return sums[:9].reshape(3, 3), sums[9:] / layout.weight


def other_blocks(layout: JointLayout, sums: Floats, n_users: int) -> tuple[Floats, Floats]:
    features, sizes = SPLIT(layout, sums, n_users)
    return features[::-1], sizes


SPLIT = JointLayout.split


@pytest.mark.parametrize("broken", [without_weight, without_others, other_blocks])
def test_a_wrong_split_is_refuted(broken: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    announcement, sums = published("pure", "aggregated")
    monkeypatch.setattr(JointLayout, "split", broken)
    found, allowed = deviations(announcement, sums)
    assert np.max(found / allowed) > 2.0


@pytest.mark.parametrize("bitsum", [name for name in BITSUMS if name != "pure"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_deviation_of_a_size_from_its_definition(kernel: str, bitsum: str) -> None:
    """Var ñ = (Σ_u q(1 − q) + E²)/w², where q = (1 ± w)/2, for any classes; `pure` states its largest."""
    law = small_laws(8)[bitsum]
    facts = joint(law, kernel).plan.request.facts()
    w = facts.size_weight
    scaled = np.where(np.arange(8)[:, None] < 3, w, -w) * np.ones((8, 1))
    exact = variance_of_sums(law, scaled, 1.0)[0] / (4.0 * w**2)
    assert facts.size_deviation(8, law.variance(8)) ** 2 == pytest.approx(exact, rel=1e-9)
    assert exact == pytest.approx(8 * (1.0 - w**2) / 4.0 / w**2 + law.variance(8) / w**2, rel=1e-9)
    assert exact > 0.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_predicted_rounding_error_covers_users_of_other_classes(kernel: str) -> None:
    """Var K̃_c(y) = Σ_ij g² Σ_u (R² − f_u²)/(n_c I)², where f_u = 0 outside the class, plus that of the size."""
    n_classes, size = 4, 3
    choice = {name: request(kernel, 8)[name] for name in ("repetitions", "bias")}
    base = kernel_named(kernel).facts(dim=DIM, **choice)
    facts = base.joint(n_classes)
    f = averaged_features(kernel, unit_rows(size, 21)) * facts.bound
    g = averaged_features(kernel, unit_rows(1, 22))[0] * facts.bound
    rounding = size * n_classes * facts.bound**2 - np.sum(f**2, axis=0)
    sums = float(g**2 @ rounding) / (size * facts.n_repetitions) ** 2
    sizes = size * n_classes * (1.0 / facts.size_weight**2 - 1.0) / 4.0 / size**2
    assert sums + sizes <= facts.rounding / (size * facts.n_repetitions) * (1.0 + 1e-5)


# --- one law on both paths --------------------------------------------------------------------------------------------

MANY = 5_000
"""Classes of which four users hold three: in each of the others, counts are independent and of one law."""
FOUR = np.array([0, 1, 1, 2])


@cache
def counts(bitsum: str, path: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(ones, zeros) in the blocks and in the sizes of all classes without users."""
    announcement = joint(COMPARED[bitsum], users=2 * MANY, classes=MANY, dim=1)
    x = np.array([[1.0], [0.5], [-1.0], [0.0]])
    analyzer = collect(announcement, x, np.arange(4), FOUR, stream=stream("law", bitsum, path), path=path)
    assert (analyzer.n_users, analyzer.rejected) == (4, 0)
    both = np.stack([analyzer.tally.ones, analyzer.tally.zeros], axis=1)
    assert both.shape == (2 * MANY, 2)
    return both[3:MANY], both[MANY + 3 :]


@pytest.mark.parametrize("bitsum", BITSUMS)
def test_both_paths_have_one_law(bitsum: str) -> None:
    """Two exact comparisons at 5e-9 each (test_local.py); their power is shown below and there."""
    for first, second in zip(counts(bitsum, "faithful"), counts(bitsum, "aggregated"), strict=True):
        assert not compared(first, second).refuted
    assert compared(*counts(bitsum, "faithful")).refuted, "blocks are fair coins, sizes are not"


@pytest.mark.parametrize("path", PATHS)
def test_sizes_follow_their_law(path: str) -> None:
    """Four bits of probability p + (1 − 2p)(1 − w)/2 = 0.35 with p = 0.2, w = ½; another weight is refuted."""
    blocks, sizes = counts("rr", path)
    weight = layout_of(joint(COMPARED["rr"], users=2 * MANY, classes=MANY, dim=1)).weight
    assert weight == 0.5

    def one(w: float) -> float:
        return 0.2 + 0.6 * (1.0 - w) / 2.0

    assert not goodness_of_fit(blocks[:, 0], binomial(4, 0.5), level=5e-10).refuted
    assert not goodness_of_fit(sizes[:, 0], binomial(4, one(weight)), level=5e-10).refuted
    for wrong in (0.0, 0.35, 0.65, 1.0):
        assert goodness_of_fit(sizes[:, 0], binomial(4, one(wrong)), level=5e-10).refuted


# --- models -----------------------------------------------------------------------------------------------------------


def sums_for(announcement: Announcement, blocks: Floats, sizes: list[float], n_users: int) -> Floats:
    """Published sums that `split` takes apart into these blocks and sizes."""
    layout = layout_of(announcement)
    size_sums = layout.weight * (2.0 * np.array(sizes) - n_users) * layout.bound
    return np.concatenate([np.ravel(blocks), size_sums])


def model(
    sizes: list[float] | None = None, *, users: int = 600, kernel: str = "gaussian", **changes: Any
) -> DensityModel:
    """A joint model with made-up sums, of three classes unless said otherwise."""
    announcement = joint(rr(users), kernel, users=users)
    blocks = np.random.default_rng(5).normal(size=(3, layout_of(announcement).width)) * users
    given: dict[str, Any] = {
        "announcements": (announcement,),
        "sums": sums_for(announcement, blocks, sizes or [200.0, 250.0, 150.0], users)[None],
        "n_users": (users,),
        "contract": announcement.plan.contract,
        "private": True,
        "labels": ABC,
    }
    return DensityModel(**{**given, **changes})


@pytest.mark.parametrize("kernel", KERNELS)
def test_densities_of_each_class_equal_the_slow_twin(kernel: str) -> None:
    whole = model(kernel=kernel)
    assert whole.sizes() == pytest.approx({"a": 200.0, "b": 250.0, "c": 150.0}, rel=1e-9)
    assert whole.classes == ABC
    y = unit_rows(5, 6)
    family = whole.announcements[0].family()
    width = family.facts.n_repetitions * family.facts.n_coordinates
    blocks = whole.sums[0, : 3 * width].reshape(3, width) / np.array([[200.0], [250.0], [150.0]])
    expected = [[twins.density(family, row, 1, query) for row in blocks.tolist()] for query in y.tolist()]
    np.testing.assert_allclose(whole.densities(y), expected, rtol=0, atol=1e-4)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("bitsum", [name for name in BITSUMS if name != "pure"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_squared_means_are_unbiased(kernel: str, bitsum: str) -> None:
    """Given the sizes, E Σ F̃²/(n_c²I) = ‖μ_c‖² + Σ Var F̃/(n_c²I): everybody's rounding is subtracted, exactly."""
    users, members = 600, np.repeat([0, 1, 2], [200, 250, 150])
    law = small_laws(users)[bitsum]
    announcement = joint(law, kernel, users=users, repetitions=None if kernel == "inner-product" else 8)
    facts = announcement.plan.request.facts()
    features = averaged_features(kernel, np.tile(unit_rows(6, 10), (100, 1)))
    scaled = np.zeros((users, 3, features.shape[1]))
    scaled[np.arange(users), members] = features
    sizes = [200.0, 250.0, 150.0]

    def squared(blocks: Floats) -> Floats:
        return model(announcements=(announcement,), contract=announcement.plan.contract,
                     sums=sums_for(announcement, blocks, sizes, users)[None]).squared_means()  # fmt: skip

    means = facts.bound * scaled.sum(axis=0)
    nothing = squared(np.zeros_like(means))
    scale = np.square(sizes) * facts.n_repetitions
    np.testing.assert_allclose(squared(means) - nothing, np.sum(means**2, axis=1) / scale, rtol=1e-9)
    variances = variance_of_sums(law, scaled.reshape(users, -1), facts.bound).reshape(3, -1)
    np.testing.assert_allclose(-nothing, variances.sum(axis=1) / scale, rtol=1e-5)
    assert np.all(-nothing > 1e-3), "nothing to subtract"


def test_a_class_needs_a_size_that_stands_out() -> None:
    whole = model()
    law = whole.plans[0].protocol()
    least = TELLING_DEVIATIONS * whole.plans[0].request.facts().size_deviation(600, law.variance(600))
    assert 20.0 < least < 150.0
    some = model([599.0 - 1.001 * least, 0.999 * least, 1.001 * least])
    assert some.classes == ("a", "c")
    assert list(some.sizes()) == ["a", "b", "c"], "what is known of the others is kept"
    assert some.densities(unit_rows(4, 6)).shape == (4, 2)
    assert len(some.squared_means()) == 2
    all_of_them = model([599.0 - 1.001 * least, 1.002 * least, 1.001 * least])
    np.testing.assert_array_equal(some.densities(unit_rows(4, 6)), all_of_them.densities(unit_rows(4, 6))[:, [0, 2]])
    np.testing.assert_array_equal(some.squared_means(), all_of_them.squared_means()[[0, 2]])
    assert model([-10.0, 0.0, 3.0]).classes == ()


def test_a_class_needs_more_than_one_user_however_little_noise_there_is() -> None:
    announcement = joint(rr(600, flip=1e-7), "gaussian", users=600)
    sums = sums_for(announcement, np.zeros((3, layout_of(announcement).width)), [598.0, 0.9, 1.1], 600)
    found = model(announcements=(announcement,), contract=announcement.plan.contract, sums=sums[None])
    assert found.classes == ("a", "c")


def test_models_survive_a_file(tmp_path: Path) -> None:
    whole = model([300.0, 290.0, 10.0])
    whole.save(tmp_path / "model")
    loaded = DensityModel.load(tmp_path / "model")
    assert loaded.sums.tobytes() == whole.sums.tobytes()
    assert replace(loaded, sums=whole.sums) == whole
    assert loaded.classes == ("a", "b")
    assert loaded.sizes() == whole.sizes()
    assert loaded.densities(unit_rows(3, 6)).tobytes() == whole.densities(unit_rows(3, 6)).tobytes()
    assert loaded.label_response() is None


@pytest.mark.parametrize("part", ["sums", "document"])
def test_tampered_files_are_refused(part: str, tmp_path: Path) -> None:
    model().save(tmp_path / "model")
    with np.load(tmp_path / "model") as stored:
        parts = dict(stored)
    name = part if part in parts else next(name for name in parts if name != "sums")
    value = parts[name].copy()
    flat = value.reshape(-1).view(np.uint8)
    flat[len(flat) // 2] ^= 1
    np.savez(tmp_path / "tampered.npz", **{**parts, name: value})
    with pytest.raises(DamagedFileError):
        DensityModel.load(tmp_path / "tampered.npz")


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": ()},
        {"labels": ("a", "b")},
        {"labels": ("a", "b", "c", "d")},
        {"labels": ("a", "b", "b")},
        {"private": False},
        {"n_users": (599,)},
        {"n_users": (600, 600)},
        {"sums": np.zeros((1, 5))},
        {"sums": np.zeros((3, 18))},
    ],
    ids=str,
)
def test_inconsistent_models_are_refused(changes: dict[str, Any]) -> None:
    assert model().sums.shape == (1, 18)
    with pytest.raises(InvalidInputError):
        model(**changes)


def test_contracts_of_other_plans_are_refused() -> None:
    whole = model()
    alone = unplanned(rr(600), users=600, **request("gaussian"))
    for contract in (alone.contract, seeded_contract(whole.contract)):
        with pytest.raises(InvalidInputError, match="contract is not"):
            replace(whole, contract=contract)
    with pytest.raises(InvalidInputError, match="contract is not"):
        replace(whole, private=False, contract=seeded_contract(alone.contract))
    seeded = replace(whole, private=False, contract=seeded_contract(whole.contract))
    assert seeded.classes == ABC
    two = (whole.announcements[0],) * 2
    with pytest.raises(InvalidInputError, match="2 groups and 3 labels"):
        replace(whole, announcements=two)


# --- the rounds of a collection ---------------------------------------------------------------------------------------

REQUEST: dict[str, Any] = {
    "kernel": "gaussian", "dim": 2, "repetitions": 4, "bitsum": "rr", "epsilon": 4.0, "delta": 1e-2,
    "accountant": "basic", "labels": "joint",
}  # fmt: skip


def quick_plan(asked: PlanRequest, *, progress: Any = None) -> Plan:
    """A planner that takes no time."""
    given = {name: value for name, value in asked.to_json().items() if name not in ("users", "min_users", "bitsum")}
    return replace(unplanned(rr(asked.counted_users), users=asked.users, **given), request=asked)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "plan", quick_plan)


def terms(labels: tuple[Any, ...] = ABC, **changes: Any) -> Terms:
    return Terms(request={**REQUEST, **changes}, labels=labels, public_seed=SEED)


def counted(analyzer: Analyzer, n_users: int) -> Analyzer:
    other = Analyzer(analyzer.announcement)
    other.add(Tally(np.zeros(15, np.int64), np.full(15, n_users)), n_users, secret=True)
    return other


def perform(collection: Collection, call: str) -> None:
    match call:
        case "enroll":
            collection.enroll(7)
        case "fix_plan":
            collection.fix_plan()
        case "count":
            known = collection.analyzers or (Analyzer(joint(rr(7), "gaussian", users=7, repetitions=4, dim=2)),)
            collection.count(0, counted(known[0], 7))
        case _:
            collection.publish(private=True)


@pytest.mark.usefixtures("quick")
def test_of_all_orders_of_four_calls_only_the_right_one_publishes() -> None:
    """All 4⁴ sequences, and in none of their rounds does anybody report a label."""
    published_by = []
    for sequence in itertools.product(("enroll", "fix_plan", "count", "publish"), repeat=4):
        collection = Collection(terms())
        stage = 0  # nobody enrolled, enrolled, fixed, counted, published
        for call in sequence:
            with pytest.raises(WrongRoundError):
                collection.enroll_labels(np.array([0, 1]))
            steps = {("enroll", 0): 1, ("enroll", 1): 1, ("fix_plan", 1): 2, ("count", 2): 3, ("publish", 3): 4}
            if (call, stage) in steps:
                perform(collection, call)
                stage = steps[call, stage]
                continue
            with pytest.raises(PrivkdeError):
                perform(collection, call)
        if stage == 4:
            published_by.append(sequence)
    assert published_by == [("enroll", "fix_plan", "count", "publish")]


@pytest.mark.usefixtures("quick")
def test_one_collection_for_all_classes() -> None:
    collection = Collection(terms(min_users=20))
    assert collection.enrolled.tolist() == [0]
    collection.enroll(30)
    collection.enroll(5)
    (announcement,) = collection.fix_plan()
    assert (announcement.group, announcement.least_packets, announcement.n_instances) == ("", 20, 15)
    assert (announcement.plan.request.users, announcement.plan.request.classes) == (35, 3)
    assert collection.released == (0,)
    with pytest.raises(TooFewUsersError):
        collection.publish(private=True)
    collection.count(0, counted(collection.analyzers[0], 19))
    with pytest.raises(TooFewUsersError):
        collection.publish(private=True)
    collection.count(0, counted(collection.analyzers[0], 9))
    with pytest.raises(InvalidInputError, match="36 users would be counted and 35 enrolled"):
        collection.count(0, counted(collection.analyzers[0], 8))
    whole = collection.publish(private=True)
    assert collection.round is Round.PUBLICATION
    assert (whole.n_users, whole.labels) == ((28,), ABC)
    assert whole.contract == announcement.plan.contract == collection.contract(private=True)
    assert whole.sizes()["b"] < 0.0, "nobody said that a class is its own"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": ()}, "0 labels"),
        ({"labels": ("a",)}, "1 labels"),
        ({"labels": ABC, "label_epsilon": 1.0}, "label_epsilon=1.0"),
        ({"labels": (1, "1")}, "differ as text"),
    ],
)
def test_terms_that_joint_labels_refuse(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Terms(request=REQUEST, public_seed=SEED, **given)


@pytest.mark.usefixtures("quick")
def test_classes_of_different_sizes_share_one_bound() -> None:
    """Regression: each class's plan chose its own R from its size, and one model shares (f_i, g_i)."""
    asked: dict[str, Any] = {"kernel": "inner-product", "dim": 64, "epsilon": 2.0, "delta": 1e-6}
    sizes = [50, 4_000, 600]
    assert len({PlanRequest(**asked, users=n).facts().bound for n in sizes}) > 1
    collection = Collection(Terms(request=asked, labels=ABC, label_epsilon=1.0, public_seed=SEED))
    collection.enroll_labels(np.repeat([0, 1, 2], sizes))
    announcements = collection.fix_plan()
    (bound,) = {one.plan.request.facts().bound for one in announcements}
    assert bound == PlanRequest(**asked, users=1_550).facts().bound < 1.0
    for position, (one, n) in enumerate(zip(announcements, sizes, strict=True)):
        assert one.plan.request.users == n
        other = Analyzer(one)
        other.add(Tally(np.zeros(64, np.int64), np.full(64, n)), n)
        collection.count(position, other)
    assert collection.publish(private=True).labels == ABC
    fixed = Collection(Terms(request={**asked, "bound": 0.75}, labels=ABC, label_epsilon=1.0, public_seed=SEED))
    fixed.enroll_labels(np.repeat([0, 1, 2], sizes))
    assert {one.plan.request.facts().bound for one in fixed.fix_plan()} == {0.75}


# --- the estimator ----------------------------------------------------------------------------------------------------

CENTERS = {"low": -0.7, "high": 0.7, "off": 0.0}
SETTINGS: dict[str, Any] = {
    "kernel": "gaussian", "bandwidth": 0.5, "epsilon": 12.0, "delta": 1e-5, "repetitions": 32, "accountant": "advanced",
    "insecure_seed": 11, "classes": ("low", "high"),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


def blobs(count: int, seed: int, names: tuple[str, ...] = ("low", "high")) -> tuple[Floats, NDArray[np.str_]]:
    """Clouds of width 0.1 around centers at least 0.7 apart."""
    y = np.array(names)[np.arange(count) % len(names)]
    x = 0.1 * np.random.default_rng(seed).normal(size=(count, 2))
    x[:, 0] += [CENTERS[name] for name in y]
    return x, y


def classifier(**changes: Any) -> PrivateClassifier:
    """Another kernel than the default: a block of instances for each class."""
    return PrivateClassifier(**(SETTINGS | changes))


@pytest.mark.parametrize("bitsum", ["rr", "poisson", "pure"])
def test_blobs_are_told_apart(bitsum: str) -> None:
    """Fixed seed. Chance is ½; what is published separates the clouds many deviations over."""
    x, y = blobs(1_500, 1)
    fitted = classifier(bitsum=bitsum, accountant="basic" if bitsum == "pure" else "advanced").fit(x, y)
    queries, truth = blobs(200, 2)
    assert fitted.score(queries, truth) > 0.95
    assert fitted.classes_.tolist() == ["high", "low"]
    assert fitted.model_.n_users == (1_500,)
    assert sum(fitted.class_sizes_.values()) == pytest.approx(1_500, abs=300)
    assert min(fitted.class_sizes_.values()) > 450


def test_the_faithful_path_and_files(tmp_path: Path) -> None:
    x, y = blobs(1_500, 1)
    fitted = classifier(path="faithful").fit(x, y)
    queries, truth = blobs(100, 3)
    assert fitted.score(queries, truth) > 0.95
    fitted.save(tmp_path / "model")
    loaded = PrivateClassifier.load(tmp_path / "model")
    assert loaded.predict(queries).tolist() == fitted.predict(queries).tolist()
    assert loaded.class_sizes_ == fitted.class_sizes_
    assert loaded.plan_ == fitted.plan_
    assert list(loaded.class_sizes_) == ["high", "low"]
    words = ["minus", "plus"]
    places = np.array([[-0.7, 0.0], [0.7, 0.0]])
    assert loaded.decode(places, words, k=1) == {"high": ["plus"], "low": ["minus"]}


def test_the_contract_is_for_features_and_label_together() -> None:
    x, y = blobs(1_500, 1)
    fitted = classifier(insecure_seed=None).fit(x, y)
    found = {(g.adjacency, g.view): (g.epsilon, g.delta) for g in fitted.contract_.guarantees}
    assert {adjacency for adjacency, _ in found} == {Adjacency.RECORD}
    for view in (View.COMMUNICATION, View.MODEL):
        assert found[Adjacency.RECORD, view] == (12.0, 1e-5)
    plan = fitted.plan_
    flip = plan.parameters["flip_probability"]
    assert plan.instances_per_user == 2 * 32 + 2
    assert found[Adjacency.RECORD, View.LOCAL][0] == pytest.approx(66 * math.log((1 - flip) / flip), rel=1e-9)
    assert fitted.contract_ == plan.contract
    text = json.dumps(fitted.contract_.to_json(), ensure_ascii=False)
    assert "label_epsilon" not in text
    assert "randomized response on the label" not in text
    assert "NOT PRIVATE" not in text
    assert any("the number of users are public" in one for one in fitted.contract_.assumed)
    assert fitted.model_.private
    fitted.model_.verify()


def test_a_seeded_run_is_not_private() -> None:
    x, y = blobs(1_500, 1)
    fitted = classifier().fit(x, y)
    assert fitted.contract_.component.startswith("NOT PRIVATE")
    assert all(g.is_empty and g.adjacency is Adjacency.RECORD for g in fitted.contract_.guarantees)
    assert classifier().fit(x, y).model_.sums.tobytes() == fitted.model_.sums.tobytes()
    assert classifier(insecure_seed=12).fit(x, y).model_.sums.tobytes() != fitted.model_.sums.tobytes()


def test_classes_too_small_to_stand_out_are_refused_or_left_out() -> None:
    x, y = blobs(1_500, 1)
    y = np.where(np.arange(1_500) < 3, "Rare", y)
    declared = ("Rare", "low", "high")
    with pytest.raises(InfeasibleError, match="users: 'Rare' "):
        classifier(classes=declared).fit(x, y)
    earlier = classifier(classes=declared, small_classes="exclude")
    with pytest.warns(ExcludedClassWarning, match="excluded: .* users: 'Rare'"):
        earlier.fit(x, y)
    assert earlier.classes_.tolist() == ["high", "low"]
    assert set(earlier.class_sizes_) == {"Rare", "high", "low"}
    assert set(earlier.predict(x)) == {"high", "low"}
    assert earlier.scores(x[:5]).shape == (5, 2)
    before = earlier.model_
    with pytest.raises(InfeasibleError, match="Rare"):
        earlier.set_params(small_classes="refuse").fit(x, y)
    assert earlier.model_ is before, "a fit that fails leaves no trace"
    nobody = classifier(classes=declared, small_classes="exclude", epsilon=0.5, accountant="basic", allow_useless=True)
    with pytest.raises(InfeasibleError, match="do not stand out"):
        nobody.fit(x, y)
    assert not hasattr(nobody, "model_")


def test_declared_classes_may_be_missing_from_the_data() -> None:
    x, y = blobs(1_500, 1)
    with pytest.warns(ExcludedClassWarning, match="'off'"):
        fitted = classifier(classes=["off", "low", "high"], small_classes="exclude").fit(x, y)
    assert fitted.model_.labels == ("high", "low", "off")
    assert fitted.classes_.tolist() == ["high", "low"]


# --- the command line -------------------------------------------------------------------------------------------------

PLAN = [
    "plan", "--users", "1500", "--dim", "2", "--repetitions", "32", "--epsilon", "12", "--delta", "1e-5",
    "--accountant", "advanced", "--kernel", "gaussian", "--labels", "joint", "--classes", "2",
]  # fmt: skip


def test_command_line_from_plan_to_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x, y = blobs(1_500, 1)
    queries, truth = blobs(100, 2)
    places = np.array([[-0.7, 0.0], [0.7, 0.0], [0.0, 5.0]])
    np.savez(
        tmp_path / "data.npz", X_train=x, y_train=y, X_test=queries, y_test=truth, X=places,
        words=np.array(["minus", "plus", "far"]),
    )  # fmt: skip
    data, plan, published_model = (str(tmp_path / name) for name in ("data.npz", "plan.json", "model"))

    def out(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return " ".join(capsys.readouterr().out.split())

    text = out(*PLAN, "--output", plan)
    assert "1,500 in 2 classes with joint labels" in text
    assert "(12, 1e-05)-DP (replace-one, communication view)" in text
    assert "Theorem 3.2 bound" not in text
    fit = ["fit", data, "--plan", plan, "-o", published_model, "--classes", "low,high"]
    text = out(*fit, "--bandwidth", "0.5")
    assert text.startswith("(12, 1e-5)-differential privacy for a whole record: features and label, in one collection")
    assert "NOT PRIVATE" not in text
    assert "accuracy" in out("predict", published_model, data)
    document = json.loads(out("decode", published_model, data, "-k", "1", "--json"))
    assert {one["class"]: one["terms"][0]["word"] for one in document["classes"]} == {"low": "minus", "high": "plus"}
    text = out(*fit, "--insecure-seed", "3")
    assert text.startswith("NOT PRIVATE")
    assert DensityModel.load(published_model).private is False
    assert "label_epsilon=2.0" in refuse(capsys, *PLAN, "--label-epsilon", "2")
    assert "give the number of classes" in refuse(capsys, *PLAN[:-2])
    assert "labels='jiont'" in refuse(capsys, *PLAN, "--labels", "jiont")
