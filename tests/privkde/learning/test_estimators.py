"""The estimators' fixed surface: every call of the documentation, honest contracts, failures that leave no trace."""

from __future__ import annotations

import dataclasses
import math
import re
import traceback
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from accounting import (
    Adjacency,
    Contract,
    Guarantee,
    InfeasibleError,
    InvalidInputError,
    PlanRequest,
    PrivkdeError,
    View,
)
from accounting.kernels import KERNELS
from accounting.mechanisms import BITSUMS, LabelResponse
from privkde import PrivateClassifier, PrivateKDE, PrivateKDEClassifier
from privkde.cli import build_parser
from privkde.learning.labeled_estimator import UndeclaredClassesWarning
from privkde.protocol.model import DensityModel
from privkde.protocol.rounds import ExcludedClassWarning
from privkde.storage.container import DamagedFileError
from privkde.storage.datasets import StoredRows, read_vectors
from tests.plans import made_once, plan_for

HASHED = ("laplacian", "exponential")
DIM = 3
USERS = 60
SETTINGS: dict[str, Any] = {"epsilon": 50.0, "repetitions": 4, "accountant": "basic", "allow_useless": True}
"""Cheap to plan; accuracy is not the point here."""
Floats = NDArray[np.float64]


@pytest.fixture(autouse=True, scope="module")
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


def unit_rows(count: int = USERS, seed: int = 1) -> Floats:
    x = np.random.default_rng(seed).normal(size=(count, DIM))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


X = unit_rows()
Y = np.where(np.arange(USERS) % 3 == 0, "b", "a")
CLASSES = ("a", "b")


def settings(kernel: str) -> dict[str, Any]:
    return SETTINGS | {"kernel": kernel, "bias": 0.25 if kernel in HASHED else None}


def kde(**changes: Any) -> PrivateKDE:
    return PrivateKDE(**(SETTINGS | {"bitsum": "pure", "insecure_seed": 1} | changes))


def classifier(**changes: Any) -> PrivateKDEClassifier:
    """ε = 100 for a record: 50 for the label, unless a test says otherwise, and the rest for the features."""
    fixed = {"bitsum": "pure", "insecure_seed": 1, "classes": CLASSES, "epsilon": 100.0, "label_epsilon": 50.0}
    return PrivateKDEClassifier(**(SETTINGS | fixed | changes))


def guarantees(contract: Contract) -> dict[tuple[Adjacency, View], tuple[float, float]]:
    found = {(g.adjacency, g.view): (g.epsilon, g.delta) for g in contract.guarantees}
    assert len(found) == len(contract.guarantees), "a guarantee is stated twice"
    return found


def state(estimator: Any) -> dict[str, Any]:
    """Everything an estimator holds, arrays by value."""
    return {name: repr(value) if name != "model_" else value for name, value in vars(estimator).items()}


# --- the surface, as documented ---------------------------------------------------------------------------------------


def test_the_documented_calls_of_the_density(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(3000, 2))
    fitted = PrivateKDE(
        kernel="gaussian", bitsum="rr", epsilon=2.0, delta=1e-6, repetitions=768, accountant="auto", min_users=None,
        insecure_seed=None,
    ).fit(x)  # fmt: skip
    assert isinstance(fitted, PrivateKDE)
    density = fitted.density(np.zeros((5, 2)))
    assert density.shape == (5,)
    assert density.dtype == np.float64
    plan, contract = fitted.plan_, fitted.contract_
    assert (plan.request.users, plan.request.dim, plan.request.repetitions, plan.accountant) == (3000, 2, 768, "pld")
    assert contract == plan.contract
    assert guarantees(contract)[Adjacency.FEATURES, View.MODEL] == (2.0, 1e-6)
    path = tmp_path / "density.npz"
    fitted.save(path)
    loaded = PrivateKDE.load(path)
    assert loaded.density(x[:7]).tobytes() == fitted.density(x[:7]).tobytes()
    assert (loaded.plan_, loaded.contract_) == (plan, contract)


def test_the_documented_calls_of_the_classifier(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = random.integers(0, 2, size=1500)
    x = random.normal(size=(1500, 2)) * 0.3 + 3.0 * y[:, None]
    fitted = PrivateKDEClassifier(
        kernel="gaussian", bitsum="rr", epsilon=9.0, delta=1e-6, label_epsilon=5.0, insecure_seed=None,
        repetitions=64, classes=[0, 1],
    ).fit(x, y)  # fmt: skip
    assert isinstance(fitted, PrivateKDEClassifier)
    queries = np.array([[0.0, 0.0], [3.0, 3.0]])
    assert fitted.predict(queries).tolist() == [0, 1]
    scores = fitted.scores(queries)
    assert scores.shape == (2, 2)
    assert fitted.decode(queries, ["zero", "three"], k=1) == {0: ["zero"], 1: ["three"]}
    assert fitted.decode(queries, ["zero", "three"]) == {0: ["zero", "three"], 1: ["three", "zero"]}
    assert list(fitted.plan_) == [0, 1]
    assert guarantees(fitted.contract_)[Adjacency.RECORD, View.COMMUNICATION] == (9.0, 1e-6)
    path = tmp_path / "classifier.npz"
    fitted.save(path)
    loaded = PrivateKDEClassifier.load(path)
    assert loaded.scores(queries).tobytes() == scores.tobytes()
    assert loaded.predict(queries).tolist() == [0, 1]
    assert loaded.decode(queries, ["zero", "three"], k=1) == {0: ["zero"], 1: ["three"]}
    assert loaded.plan_ == fitted.plan_
    assert loaded.reported_counts_ == fitted.reported_counts_


def test_the_documented_defaults() -> None:
    documented = {
        "kernel": "gaussian", "bitsum": "rr", "epsilon": None, "delta": 1e-6, "repetitions": None, "accountant": "auto",
        "min_users": None, "dropout": 0.0, "colluders": 0.0, "insecure_seed": None,
    }  # fmt: skip
    also = {"label_epsilon": None, "classes": None, "rule": "density", "small_classes": "refuse"}
    shared = {
        "bandwidth": 1.0, "projection": None, "bias": None, "bound": None, "radius": None, "noise_shape": None,
        "excess_error": None, "allow_useless": False, "outside": "reject", "path": "aggregated",
        "public_seed": None, "engine": None, "verbose": False,
    }  # fmt: skip
    assert PrivateKDE().get_params() == documented | shared
    assert PrivateKDEClassifier().get_params() == documented | also | shared


@pytest.mark.parametrize("path", ["aggregated", "faithful"])
def test_a_radius_is_for_records_and_in_bandwidths(path: str, tmp_path: Path) -> None:
    """A fit refuses what lies outside before it plans, needs less noise, and keeps its radius in a file."""
    shared: dict[str, Any] = {"bandwidth": 3.0, "repetitions": 48, "delta": 1e-4, "epsilon": 4.0, "insecure_seed": 5}
    shared |= {"allow_useless": True, "path": path}
    x = np.random.default_rng(4).normal(size=(300, 4))
    x *= 1.4 / np.max(np.linalg.norm(x, axis=1))
    plain, short = PrivateKDE(**shared).fit(x), PrivateKDE(**shared, radius=0.5).fit(x)
    assert short.plan_.bitsum_rmse < 0.9 * plain.plan_.bitsum_rmse
    with pytest.raises(InvalidInputError, match=r"norm above 1\.2"):
        PrivateKDE(**shared, radius=0.4).fit(x)
    PrivateKDE(**shared, radius=0.4, outside="project").fit(x)
    far = 20.0 * x[:3]
    assert np.all(np.isfinite(short.density(far)))
    short.save(tmp_path / "model")
    loaded = PrivateKDE.load(tmp_path / "model")
    assert (loaded.radius, loaded.bandwidth) == (0.5, 3.0)
    assert loaded.density(far).tolist() == short.density(far).tolist()


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "inner-product"])
def test_what_is_left_out_means_the_same_to_estimators_and_planner(kernel: str) -> None:
    """Seen before: 768 maps if fitted, and as many as dimensions if planned."""
    asked: dict[str, Any] = {"kernel": kernel, "epsilon": 2.0, "delta": 1e-6}
    fitted = PlanRequest(**PrivateKDE(**asked)._request(5), users=100)
    assert fitted == PlanRequest(**asked, dim=5, users=100)
    parsed = build_parser().parse_args(["plan", "--users", "100", "--dim", "5", "--epsilon", "2", "--delta", "1e-6"])
    assert parsed.repetitions is None is PrivateKDE().repetitions


def test_data_may_be_given_by_name() -> None:
    """As scikit-learn's tools do."""
    density, classes = kde().fit(X=X, y=None), classifier().fit(X=X, y=Y)
    assert density.density(X=X).tobytes() == kde().fit(X).density(X).tobytes()
    again = classifier().fit(X, Y)
    assert classes.scores(X=X).tobytes() == again.scores(X).tobytes()
    assert classes.predict(X=X).tolist() == again.predict(X).tolist()
    assert classes.score(X=X, y=Y) == again.score(X, Y)


@pytest.mark.parametrize("bitsum", BITSUMS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_with_every_bitsum(kernel: str, bitsum: str) -> None:
    fitted = PrivateKDE(bitsum=bitsum, insecure_seed=3, **settings(kernel)).fit(X)
    assert (fitted.plan_.request.kernel, fitted.plan_.bitsum) == (kernel, bitsum)
    density = fitted.density(X[:4])
    assert np.all(np.isfinite(density))
    again = PrivateKDE(bitsum=bitsum, insecure_seed=3, **settings(kernel)).fit(X)
    np.testing.assert_array_equal(again.density(X[:4]), density)
    (inner,) = fitted.contract_.parts
    delta = 0.0 if bitsum == "pure" else 1e-6
    assert guarantees(inner)[Adjacency.FEATURES, View.COMMUNICATION] == (50.0, delta)
    assert guarantees(inner)[Adjacency.FEATURES, View.MODEL] == (50.0, delta)


@pytest.mark.parametrize("path", ["aggregated", "faithful"])
@pytest.mark.parametrize("bitsum", ["rr", "poisson"])
def test_both_ways_of_running_a_collection(path: str, bitsum: str) -> None:
    fitted = kde(bitsum=bitsum, path=path).fit(X)
    assert np.all(np.isfinite(fitted.density(X)))
    with pytest.raises(InvalidInputError, match="path"):
        kde(path="fast").fit(X)


# --- contracts --------------------------------------------------------------------------------------------------------


def test_the_contract_of_a_density_names_its_promise() -> None:
    fitted = kde(insecure_seed=None, bitsum="rr", epsilon=8.0, delta=1e-5).fit(X)
    assert fitted.model_.private
    found = guarantees(fitted.contract_)
    flip = fitted.plan_.parameters["flip_probability"]
    assert found == {
        (Adjacency.FEATURES, View.COMMUNICATION): (8.0, 1e-5),
        (Adjacency.FEATURES, View.MODEL): (8.0, 1e-5),
        (Adjacency.FEATURES, View.LOCAL): (pytest.approx(4 * math.log((1 - flip) / flip), rel=1e-9), 0.0),
    }
    assert "NOT PRIVATE" not in str(fitted.contract_)


def test_the_contract_of_a_classifier_adds_features_and_label() -> None:
    fitted = classifier(insecure_seed=None, bitsum="3nb", epsilon=11.0, delta=1e-5, label_epsilon=3.0).fit(X, Y)
    found = guarantees(fitted.contract_)
    for view in (View.COMMUNICATION, View.MODEL):
        assert found[Adjacency.FEATURES, view] == (8.0, 1e-5)
        assert found[Adjacency.RECORD, view] == (11.0, 1e-5)
        assert found[Adjacency.LABEL, view] == (3.0, 0.0)
    assert found[Adjacency.FEATURES, View.LOCAL] == (0.0, 1.0), "3nb protects nobody from the shuffler"
    assert found[Adjacency.LABEL, View.LOCAL] == (3.0, 0.0)
    label, *parts = fitted.contract_.parts
    assert label == LabelResponse(n_classes=2, label_epsilon=3.0).contract()
    assert parts == [plan.contract for plan in fitted.plan_.values()]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_pure_promises_delta_zero_whatever_is_asked(delta: float) -> None:
    fitted = kde(insecure_seed=None, delta=delta).fit(X)
    assert guarantees(fitted.contract_)[Adjacency.FEATURES, View.MODEL] == (50.0, 0.0)
    with pytest.raises(InvalidInputError, match="only 'pure' keeps delta = 0"):
        kde(bitsum="rr", delta=0.0).fit(X)


def test_a_seed_takes_all_promises_back() -> None:
    for fitted in (kde(insecure_seed=7).fit(X), classifier(insecure_seed=7).fit(X, Y)):
        assert fitted.model_.private is False
        assert fitted.contract_.component.startswith("NOT PRIVATE")
        assert all(g.is_empty for g in fitted.contract_.guarantees)
        assert {(g.adjacency, g.view) for g in fitted.contract_.guarantees} == {
            (g.adjacency, g.view) for g in fitted.contract_.parts[0].guarantees
        }


def test_fits_are_secret_unless_seeded() -> None:
    one, other = (kde(insecure_seed=None, bitsum="rr", epsilon=1.0).fit(X) for _ in range(2))
    assert one.model_.private is True
    assert other.model_.private is True
    assert one.model_.announcements[0].public_seed != other.model_.announcements[0].public_seed
    assert one.density(X).tolist() != other.density(X).tolist()
    fixed = [kde(insecure_seed=None, bitsum="rr", epsilon=1.0, public_seed="ab" * 16).fit(X) for _ in range(2)]
    assert {one.model_.announcements[0].public_seed for one in fixed} == {"ab" * 16}
    assert fixed[0].model_.sums.tolist() != fixed[1].model_.sums.tolist(), "private draws must differ all the same"


def test_seeded_fits_depend_on_the_seed_alone() -> None:
    def sums(seed: int, **changes: Any) -> bytes:
        return kde(insecure_seed=seed, bitsum="rr", epsilon=1.0, **changes).fit(X).model_.sums.tobytes()

    assert sums(3) == sums(3)
    assert sums(3) != sums(4)
    public = {"public_seed": "00" * 16}
    assert sums(3, **public) != sums(4, **public)


# --- classes ----------------------------------------------------------------------------------------------------------


def test_classes_share_public_seed_and_each_plan_counts_on_its_reports() -> None:
    fitted = classifier(label_epsilon=1.0).fit(X, Y)
    announcements = fitted.model_.announcements
    assert len({one.public_seed for one in announcements}) == 1
    assert [one.group for one in announcements] == ["a", "b"]
    assert announcements[0].family() is announcements[1].family()
    reported = fitted.reported_counts_
    assert sum(reported.values()) == USERS
    assert reported != {"a": 40, "b": 20}, "labels were not randomized"
    assert {label: plan.request.users for label, plan in fitted.plan_.items()} == reported
    assert {label: plan.request.counted_users for label, plan in fitted.plan_.items()} == reported
    assert dict(zip("ab", fitted.model_.n_users, strict=True)) == reported


def test_labels_are_reported_as_they_are_at_a_large_epsilon() -> None:
    fitted = classifier(label_epsilon=50.0).fit(X, Y)
    assert fitted.reported_counts_ == {"a": 40, "b": 20}
    assert fitted.classes_.tolist() == ["a", "b"]


def test_classes_draw_their_own_noise() -> None:
    """Two classes of the same vectors: with shared draws, the noise would cancel in their difference."""
    x, y = np.concatenate([X, X]), np.repeat(["a", "b"], USERS)
    for bitsum in ("rr", "pure"):
        one, other = classifier(label_epsilon=50.0, bitsum=bitsum, repetitions=64).fit(x, y).model_.sums
        assert one.tolist() != other.tolist(), "64 equal sums are no accident"


def test_each_class_is_made_of_the_users_that_reported_it() -> None:
    """Identity features and hardly any noise: the sums are those of the class, up to rounding."""
    x = np.where(Y[:, None] == "a", np.eye(DIM)[0], -np.eye(DIM)[0])
    fitted = classifier(kernel="inner-product", label_epsilon=50.0).fit(x, Y)
    np.testing.assert_allclose(fitted.model_.sums[:, 0], [40.0, -20.0], atol=0.01)


@pytest.mark.parametrize(
    "classes", [["x", "y"], [3, 7], [False, True], [-1.0, 2.0], ["ü", "日本"], [np.int8(1), np.int8(5)]]
)
def test_labels_of_any_type_survive_a_file(classes: list[Any], tmp_path: Path) -> None:
    y = np.array(classes)[(Y == "b").astype(int)]
    fitted = classifier(classes=classes, label_epsilon=50.0).fit(X, y)
    path = tmp_path / "model.npz"
    fitted.save(path)
    loaded = PrivateKDEClassifier.load(path)
    assert loaded.classes_.tolist() == fitted.classes_.tolist() == np.unique(y).tolist()
    assert [type(one) for one in loaded.classes_.tolist()] == [type(one) for one in np.unique(y).tolist()]
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert list(loaded.plan_) == list(fitted.plan_)


def test_declared_classes_may_be_missing_from_the_data() -> None:
    """The label response is over all of them; each gets reports of its own."""
    x, y = unit_rows(3000), np.array(["a", "b"] * 1500)
    fitted = classifier(classes=["c", "a", "b"], label_epsilon=1.0).fit(x, y)
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    inner = fitted.contract_.parts[0]
    assert inner.parameters["classes"] == 3
    assert fitted.reported_counts_["c"] > 100
    assert fitted.model_.labels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("classes", "y", "told"),
    [
        (["a"], Y, r"label of row 0 is not among the declared classes \(20 such rows\)"),
        (["a", "c"], Y, r"label of row 0 is not among the declared classes \(20 such rows\)"),
        ([0, 1], Y, "both be texts or both be numbers"),
        (["0", "1"], (Y == "a").astype(int), "both be texts or both be numbers"),
        ([0, 1], np.arange(USERS) % 3, r"label of row 2 is not among"),
        ([0, 1, math.nan], np.arange(USERS) % 2, "a declared class is NaN or infinite"),
        ([0, 1, math.inf], np.arange(USERS) % 2, "a declared class is NaN or infinite"),
        (None, np.full(USERS, "a"), "at least two"),
        (None, np.arange(USERS) / 7.0, "continuous"),
        (None, np.where(np.arange(USERS) == 3, np.nan, 1.0), "NaN"),
        (None, np.zeros((USERS, 2), int), r"1d array|shape"),
        (None, Y[:-1], "inconsistent numbers of samples"),
        (None, None, "y"),
    ],
)
def test_labels_that_are_no_classes_are_refused(classes: Any, y: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        classifier(classes=classes).fit(X, y)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_no_classes_are_refused_without_a_warning(strange: float) -> None:
    """The command line gives rows that scikit-learn has not looked at; NumPy warned before they were refused."""
    y = np.where(np.arange(USERS) == 3, strange, np.arange(USERS) % 2.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(InvalidInputError):
            classifier(classes=[0, 1])._numbered(y)
    assert not caught


def with_a_class_of_one() -> NDArray[Any]:
    return np.where(np.arange(USERS) == 7, "secret illness", Y)


def of_labels(labels: str, **changes: Any) -> PrivateClassifier | PrivateKDEClassifier:
    """Either way to protect labels, with little noise."""
    few = {"repetitions": 2, "bitsum": "poisson", "small_classes": "exclude"}
    if labels == "separate":
        return classifier(**few, epsilon=51.0, label_epsilon=1.0, **changes)
    return PrivateClassifier(**(SETTINGS | few | {"kernel": "gaussian", "insecure_seed": 1} | changes))


@pytest.mark.parametrize("labels", ["joint", "separate"])
@pytest.mark.parametrize("seed", [None, 1])
def test_classes_read_off_the_data_are_said_to_be(labels: str, seed: int | None, tmp_path: Path) -> None:
    """A user with a class of its own: published, so there is a warning, and a contract that claims nothing of it."""
    open_set = of_labels(labels, insecure_seed=seed, classes=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_set.fit(np.tile(X, (10, 1)), np.concatenate([with_a_class_of_one(), np.tile(Y, 9)]))  # drawn in secret
    said = [warning for warning in caught if warning.category is UndeclaredClassesWarning]
    assert len(said) == 1
    assert said[0].filename == __file__, "it points at who called fit"
    assert "secret" not in str(said[0].message)
    assert "secret illness" in open_set.model_.labels
    open_set.save(tmp_path / "model.npz")
    for model in (open_set.model_, DensityModel.load(tmp_path / "model.npz")):
        assert not model.classes_declared
        whole = model.contract if seed is None else model.contract.parts[0]
        assert "although it was read off the labels" in " ".join(whole.assumed)


@pytest.mark.parametrize("labels", ["joint", "separate"])
def test_declared_classes_do_not_depend_on_the_data(labels: str, tmp_path: Path) -> None:
    """Whoever has which class, and whether anybody has it."""
    declared = ["b", "c", "a"]
    for y in (Y, np.where(np.arange(USERS) == 7, "c", Y), np.full(USERS, "a")):
        model = of_labels(labels, classes=declared)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UndeclaredClassesWarning)
            warnings.simplefilter("ignore", ExcludedClassWarning)
            model.fit(X, y)
        assert model.model_.labels == ("a", "b", "c")
        assert model.model_.classes_declared
        assert "read off" not in str(model.contract_)
        model.save(tmp_path / "model.npz")
        assert DensityModel.load(tmp_path / "model.npz").labels == ("a", "b", "c")
    with pytest.raises(InvalidInputError, match=r"label of row 7 is not among the declared classes \(1 such"):
        of_labels(labels, classes=CLASSES).fit(X, with_a_class_of_one())


def test_small_classes_are_refused_or_left_out() -> None:
    y = np.where(np.arange(USERS) < 1, "Rare", Y)  # the first in order, so that all others move up
    declared = ["Rare", *CLASSES]
    with pytest.raises(PrivkdeError, match="class 'Rare', reported by 1 users"):
        classifier(classes=declared, label_epsilon=50.0).fit(X, y)
    with pytest.warns(ExcludedClassWarning, match="excluded: class 'Rare', reported by 1 users"):
        fitted = classifier(classes=declared, label_epsilon=50.0, small_classes="exclude").fit(X, y)
    assert fitted.classes_.tolist() == ["a", "b"]
    assert list(fitted.plan_) == ["a", "b"]
    assert fitted.reported_counts_ == {"Rare": 1, "a": 40, "b": 19}, "what was published of labels is kept"
    assert fitted.model_.n_users == (40, 19)
    assert set(fitted.predict(X)) <= {"a", "b"}
    assert fitted.contract_.parts[0].parameters["classes"] == 3, "labels were randomized over all classes"
    with pytest.raises(InvalidInputError, match="small_classes"):
        classifier(classes=declared, small_classes="drop").fit(X, y)


def test_min_users_is_promised_to_every_class() -> None:
    fitted = classifier(label_epsilon=50.0, min_users=15).fit(X, Y)
    assert [plan.request.counted_users for plan in fitted.plan_.values()] == [15, 15]
    with pytest.raises(InvalidInputError, match="class 'b', reported by 20 users: min_users=30"):
        classifier(label_epsilon=50.0, min_users=30).fit(X, Y)
    with pytest.raises(InvalidInputError, match="min_users=61"):
        kde(min_users=61).fit(X)


def test_rules() -> None:
    """The mean rule takes half the squared length of each class's mean from its density."""
    fitted = classifier(label_epsilon=50.0, kernel="inner-product", bitsum="rr").fit(X, Y)
    densities = fitted.scores(X)
    np.testing.assert_array_equal(densities, fitted.model_.densities(X))
    fitted.set_params(rule="mean")
    np.testing.assert_allclose(fitted.scores(X), densities - 0.5 * fitted.model_.squared_means(), rtol=1e-12)
    assert np.abs(fitted.scores(X) - densities).max() > 0.0
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[np.argmax(fitted.scores(X), axis=1)])
    fitted.set_params(rule="median")
    with pytest.raises(InvalidInputError, match="rule='median'"):
        fitted.scores(X)
    with pytest.raises(InvalidInputError, match="rule='median'"):
        fitted.fit(X, Y)


def test_the_mean_rule_finds_the_nearest_mean() -> None:
    """Inner products alone prefer the longer mean; with the mean rule, the class at the origin is found, too."""
    far = np.tile([0.9, 0.0, 0.0], (400, 1))
    x = np.concatenate([far, 0.05 * unit_rows(400)])
    y = np.repeat(["far", "origin"], 400)
    fitted = classifier(kernel="inner-product", label_epsilon=50.0, classes=["far", "origin"]).fit(x, y)
    query = np.array([[0.2, 0.0, 0.0], [0.8, 0.0, 0.0]])
    assert fitted.predict(query).tolist() == ["far", "far"]
    # ‖f‖² = 1 is assumed and wrong here for both classes, by at most 1/n.
    assert fitted.set_params(rule="mean").predict(query).tolist() == ["origin", "far"]


def test_ties_go_to_the_first_class() -> None:
    fitted = classifier(kernel="inner-product", label_epsilon=50.0).fit(X, Y)
    assert fitted.predict(np.zeros((2, DIM))).tolist() == ["a", "a"]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 101.0, math.nan])
def test_label_epsilon_is_checked(epsilon: float) -> None:
    with pytest.raises(InvalidInputError, match="label_epsilon"):
        classifier(label_epsilon=epsilon).fit(X, Y)


@pytest.mark.parametrize(
    "estimator", [PrivateKDE(), PrivateKDEClassifier(classes=CLASSES), PrivateClassifier()], ids=repr
)
def test_nobody_invents_an_epsilon(estimator: Any) -> None:
    """Refused before anything else, such as a warning of undeclared classes, is said."""
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(InvalidInputError, match=r"epsilon=None: nothing is promised yet\. Choose"),
    ):
        estimator.fit(X, Y)
    assert not hasattr(estimator, "model_")


@pytest.mark.parametrize(("label", "features"), [(None, 5.0), (2.0, 8.0)])
def test_label_epsilon_is_a_part_of_the_total(label: float | None, features: float) -> None:
    """Planned, half of ten goes to the label: both classes of sixty users."""
    fitted = classifier(bitsum="rr", epsilon=10.0, label_epsilon=label, insecure_seed=None).fit(X, Y)
    found = guarantees(fitted.contract_)
    assert found[Adjacency.RECORD, View.COMMUNICATION] == (10.0, 1e-6)
    assert found[Adjacency.FEATURES, View.COMMUNICATION] == (features, 1e-6)
    assert found[Adjacency.LABEL, View.COMMUNICATION] == (10.0 - features, 0.0)
    assert fitted.summary().startswith("(10, 1e-6)-differential privacy for a whole record: features and label, in a")
    with pytest.raises(
        InvalidInputError,
        match=r"^label_epsilon=10\.0 leaves nothing of epsilon=10\.0, which is for features and label",
    ):
        classifier(epsilon=10.0, label_epsilon=10.0).fit(X, Y)


@pytest.mark.parametrize("rule", ["density", "mean"])
def test_the_rule_survives_a_file(rule: str, tmp_path: Path) -> None:
    """A regression: it was lost, and predictions changed without a word."""
    fitted = classifier(kernel="inner-product", bitsum="rr").fit(X, Y).set_params(rule=rule)
    fitted.save(tmp_path / "model")
    loaded = PrivateKDEClassifier.load(tmp_path / "model")
    assert (loaded.rule, loaded.model_.rule) == (rule, rule)
    np.testing.assert_array_equal(loaded.scores(X), fitted.scores(X))
    assert loaded.set_params(rule="density").scores(X).tolist() == fitted.model_.densities(X).tolist()


def test_log_densities_where_there_are_any() -> None:
    fitted = kde(kernel="inner-product").fit(np.tile(X[0], (USERS, 1)))
    density, logs = fitted.density(np.stack([X[0], -X[0]])), fitted.score_samples(np.stack([X[0], -X[0]]))
    assert density[0] > 0.0 > density[1]
    assert logs.tolist() == [math.log(density[0]), -math.inf]


def test_decoding_passes_its_options_on() -> None:
    fitted = classifier(label_epsilon=50.0).fit(X, Y)
    words = [str(i) for i in range(20)]
    for contrast in (False, True):
        found = fitted.decode(X[:20], words, k=20, contrast=contrast)
        densities = fitted.scores(X[:20])
        shown = densities - densities.mean(axis=1, keepdims=True) if contrast else densities
        for c, label in enumerate("ab"):
            np.testing.assert_allclose(shown[[int(word) for word in found[label]], c], np.sort(shown[:, c])[::-1])
    with pytest.raises(InvalidInputError, match="19 words for 20 vectors"):
        fitted.decode(X[:20], words[:19])


# --- bad data ---------------------------------------------------------------------------------------------------------


def with_value(value: float) -> Floats:
    x = X.copy()
    x[7, 1] = value
    return x


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("kernel", ["gaussian", "inner-product"])
def test_data_that_are_not_finite_are_refused_by_row(value: float, kernel: str) -> None:
    with pytest.raises(InvalidInputError, match="row 7 "):
        kde(kernel=kernel).fit(with_value(value))
    with pytest.raises(InvalidInputError, match="row 7 "):
        classifier(kernel=kernel).fit(with_value(value), Y)
    fitted = kde(kernel=kernel).fit(X)
    with pytest.raises(InvalidInputError, match="row 7 "):
        fitted.density(with_value(value))


@pytest.mark.parametrize("kernel", KERNELS)
def test_bad_data_are_found_before_anything_is_planned(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*_: Any, **__: Any) -> None:
        raise AssertionError("a plan was made")

    monkeypatch.setattr("privkde.protocol.rounds.plan", planned)
    bad = [with_value(np.nan)] if kernel == "gaussian" else [with_value(np.nan), with_value(2.0)]
    for x in bad:
        with pytest.raises(InvalidInputError, match="row 7 "):
            PrivateKDE(bitsum="pure", **settings(kernel)).fit(x)
        with pytest.raises(InvalidInputError, match="row 7 "):
            classifier(**settings(kernel) | {"epsilon": 100.0}).fit(x, Y)


def test_text_among_the_data_is_not_quoted() -> None:
    x = X.astype(object)
    x[3, 1] = "secret illness"
    fitted = kde().fit(X)
    for asked in (kde().fit, fitted.fit, fitted.density, lambda x: classifier().fit(x, Y)):
        with pytest.raises(InvalidInputError, match="not a number") as caught:
            asked(x)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("declared", [["a", "b"], ["a", "b", "c"]])
def test_a_label_that_was_not_declared_is_not_quoted(declared: list[str]) -> None:
    y = Y.astype(object)
    y[[4, 9]] = "secret illness"
    with pytest.raises(InvalidInputError, match=r"the label of row 4 is not among .* \(2 such rows\)") as caught:
        classifier(classes=declared).fit(X, y)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "gaussian"])
def test_data_outside_the_ball_are_refused_or_projected(kernel: str) -> None:
    asked = settings(kernel) | {"bitsum": "pure", "insecure_seed": 1}
    with pytest.raises(InvalidInputError, match="row 0 has a norm above 1"):
        PrivateKDE(**asked).fit(2.0 * X)
    projected = PrivateKDE(**asked, outside="project").fit(2.0 * X)
    np.testing.assert_array_equal(projected.density(X), PrivateKDE(**asked).fit(X).density(X))
    with pytest.raises(InvalidInputError, match="outside"):
        PrivateKDE(**asked, outside="ignore").fit(X)


@pytest.mark.parametrize(
    "x",
    [
        X[:, 0],
        X[None],
        X[:1],
        X[:0],
        np.zeros((5, 0)),
        np.array([["a", "b"]] * 5),
        X.astype(complex),
    ],
)
def test_data_that_are_no_matrix_of_users_are_refused(x: Any) -> None:
    with pytest.raises(InvalidInputError):
        kde().fit(x)


def test_one_query_is_enough() -> None:
    fitted, classes = kde().fit(X), classifier().fit(X, Y)
    assert fitted.density(X[:1]).tolist() == pytest.approx(fitted.density(X)[:1].tolist(), abs=1e-5)
    assert classes.scores(X[:1]).shape == (1, 2)
    assert classes.predict(X[:1]).shape == (1,)
    assert classes.decode(X[:1], ["only"]) == {"a": ["only"], "b": ["only"]}


def test_queries_of_another_dimension_are_refused() -> None:
    fitted, classes = kde().fit(X), classifier().fit(X, Y)
    for query in (X[:, :2], np.zeros((1, DIM + 1)), X[0]):
        with pytest.raises(InvalidInputError):
            fitted.density(query)
        for method in (classes.predict, classes.scores, lambda q: classes.decode(q, ["a"] * len(q))):
            with pytest.raises(InvalidInputError):
                method(query)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_any_real_type_will_do(dtype: Any) -> None:
    x = np.sign(X).astype(dtype)
    np.testing.assert_allclose(kde().fit(x).density(x[:5]), kde().fit(np.sign(X)).density(np.sign(X[:5])), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", "cosine"),
        ("bitsum", "xor"),
        ("accountant", "hope"),
        ("epsilon", 0.0),
        ("epsilon", "2"),
        ("delta", 1.0),
        ("repetitions", 0),
        ("repetitions", 2.5),
        ("bandwidth", -1.0),
        ("projection", DIM + 1),
        ("min_users", 1),
        ("insecure_seed", -1),
        ("insecure_seed", 0.5),
        ("public_seed", "short"),
        ("noise_shape", 0),
        ("excess_error", -1.0),
    ],
)
def test_every_parameter_is_checked_when_fitting(name: str, value: Any) -> None:
    for estimator, data in ((kde(**{name: value}), (X,)), (classifier(**{name: value}), (X, Y))):
        with pytest.raises(InvalidInputError, match=name):
            estimator.fit(*data)


def test_a_hopeless_request_is_refused_with_the_smallest_number_of_users() -> None:
    with pytest.raises(InfeasibleError, match="smallest feasible n"):
        PrivateKDE(epsilon=0.1, bitsum="pure", repetitions=4).fit(X)


def test_bandwidth_and_projection_reach_the_kernel() -> None:
    fitted = kde(bandwidth=2.5, projection=2).fit(X)
    choice = fitted.model_.announcements[0].kernel_choice()
    assert (choice.bandwidth, choice.projection) == (2.5, 2)


# --- plans made before ------------------------------------------------------------------------------------------------


def test_a_plan_made_before_decides() -> None:
    asked = SETTINGS | {"kernel": "inner-product", "repetitions": None, "bitsum": "poisson", "delta": 1e-6}
    plan = plan_for(users=80, min_users=50, dim=DIM, **asked)
    fitted = kde(kernel="gaussian", epsilon=None).fit(X, plan=plan)
    assert fitted.plan_ == plan
    assert fitted.model_.n_users == (USERS,)
    assert fitted.model_.sums.shape == (1, DIM)
    with pytest.raises(InvalidInputError, match="row 0 has a norm above 1"):
        kde(kernel="gaussian").fit(2.0 * X, plan=plan)
    gaussian = plan_for(users=60, dim=DIM, bitsum="pure", delta=0.0, **SETTINGS)
    assert kde(kernel="inner-product").fit(2.0 * X, plan=gaussian).model_.n_users == (USERS,)


def test_a_plan_for_another_promise_is_refused() -> None:
    """A regression: ε = 0.1 was asked for and the plan's ε = 50 was spent, without a word."""
    plan = plan_for(users=60, dim=DIM, bitsum="rr", delta=1e-7, **SETTINGS)
    for asked, told in (({"epsilon": 0.1}, "epsilon=0.1 and a plan for epsilon=50"), ({"delta": 1e-9}, "delta=1e-09")):
        with pytest.raises(InvalidInputError, match=told):
            kde(**asked).fit(X, plan=plan)
    assert kde().fit(X, plan=plan).plan_ == plan


def test_a_plan_that_does_not_keep_its_promise_is_refused() -> None:
    plan = plan_for(users=60, dim=DIM, bitsum="rr", delta=1e-6, **SETTINGS)
    flip = plan.parameters["flip_probability"]
    for altered in (
        dataclasses.replace(plan, parameters={"flip_probability": flip / 2.0}),
        dataclasses.replace(plan, contract=plan.baselines[0].contract),
    ):
        estimator = kde()
        with pytest.raises(InvalidInputError, match="altered"):
            estimator.fit(X, plan=altered)
        assert not hasattr(estimator, "n_features_in_")


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"users": 61, "dim": DIM}, "60 users enrolled and the plan counts on 61"),
        ({"users": 60, "dim": DIM + 1}, "vectors have 3 entries and the plan is for 4"),
        ({"users": 60, "dim": 2}, "vectors have 3 entries and the plan is for 2"),
        ({"users": 200, "dim": DIM, "classes": 2, "label_epsilon": 1.0, "min_users": 50}, "forecast"),
    ],
)
def test_a_plan_that_does_not_fit_the_data_is_refused(request_: dict[str, Any], told: str) -> None:
    plan = plan_for(**(SETTINGS | {"bitsum": "pure", "delta": 0.0} | request_))
    estimator = kde()
    with pytest.raises(PrivkdeError, match=told):
        estimator.fit(X, plan=plan)
    assert not hasattr(estimator, "model_")


def test_a_plan_for_a_promised_number_of_users_takes_more() -> None:
    plan = plan_for(users=60, dim=DIM, min_users=40, bitsum="pure", delta=0.0, **SETTINGS)
    assert kde().fit(X[:40], plan=plan).model_.n_users == (40,)
    assert kde().fit(np.tile(X, (3, 1)), plan=plan).model_.n_users == (180,)
    with pytest.raises(InfeasibleError, match="39 users enrolled"):
        kde().fit(X[:39], plan=plan)


# --- all or nothing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["data", "labels", "plan", "collection", "interrupt"])
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another dimension and other labels in the second fit: nothing of them may stay."""
    wide = np.concatenate([X, X], axis=1) / 2.0
    new, error = np.where(Y == "a", "c", "d"), InvalidInputError
    density, classes = kde().fit(X), classifier(label_epsilon=50.0).fit(X, Y).set_params(classes=["c", "d"])
    before, scores = (state(density), state(classes)), classes.scores(X)
    if broken == "data":
        wide[5] = np.nan
    elif broken == "labels":
        new = new[:-1]
    elif broken == "plan":
        density.epsilon = classes.epsilon = -1.0
        before = (state(density), state(classes))
    else:
        error = KeyboardInterrupt if broken == "interrupt" else error  # type: ignore[assignment]

        def fail(*_: Any, **__: Any) -> None:
            raise error("now")

        monkeypatch.setattr("privkde.protocol.rounds.Collection.publish", fail)
    if broken != "labels":
        with pytest.raises(error):
            density.fit(wide)
    with pytest.raises(error):
        classes.fit(wide, new)
    assert (state(density), state(classes)) == before
    np.testing.assert_array_equal(classes.scores(X), scores)
    assert set(classes.predict(X)) <= {"a", "b"}


def test_a_first_fit_that_fails_leaves_nothing() -> None:
    for estimator, data in ((kde(), (with_value(np.nan),)), (classifier(), (with_value(np.nan), Y))):
        before = state(estimator)
        with pytest.raises(InvalidInputError):
            estimator.fit(*data)
        assert state(estimator) == before
        with pytest.raises(NotFittedError):
            estimator.contract_  # noqa: B018


def test_a_second_fit_replaces_everything() -> None:
    fitted = classifier(label_epsilon=50.0).fit(X, Y)
    fitted.set_params(classes=[5, 7]).fit(X[:, :2], np.where(Y == "a", 5, 7))
    assert fitted.n_features_in_ == 2
    assert fitted.classes_.tolist() == [5, 7]
    assert list(fitted.reported_counts_) == [5, 7]
    assert fitted.model_.labels == (5, 7)
    fresh = classifier(label_epsilon=50.0, classes=[5, 7]).fit(X[:, :2], np.where(Y == "a", 5, 7))
    np.testing.assert_array_equal(fitted.scores(X[:, :2]), fresh.scores(X[:, :2]))


def test_what_is_not_fitted_says_so(tmp_path: Path) -> None:
    for call in (
        lambda: kde().density(X),
        lambda: kde().plan_,
        lambda: kde().contract_,
        lambda: kde().save(tmp_path / "x"),
        lambda: classifier().predict(X),
        lambda: classifier().scores(X),
        lambda: classifier().plan_,
        lambda: classifier().decode(X, ["a"] * USERS),
    ):
        with pytest.raises(NotFittedError):
            call()
    assert list(tmp_path.iterdir()) == []


# --- files ------------------------------------------------------------------------------------------------------------


def test_each_file_is_loaded_by_its_own_estimator(tmp_path: Path) -> None:
    density, classes = tmp_path / "density.npz", tmp_path / "classes.npz"
    kde().fit(X).save(density)
    classifier().fit(X, Y).save(classes)
    with pytest.raises(InvalidInputError, match="holds a classifier; load it with PrivateKDEClassifier"):
        PrivateKDE.load(classes)
    with pytest.raises(InvalidInputError, match="holds no separate labels; load it with PrivateKDE\\."):
        PrivateKDEClassifier.load(density)
    for load in (PrivateKDE.load, PrivateKDEClassifier.load):
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "nowhere.npz")
        (tmp_path / "junk.npz").write_bytes(b"junk")
        with pytest.raises(DamagedFileError):
            load(tmp_path / "junk.npz")


def test_a_loaded_estimator_knows_how_it_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    asked = {"epsilon": 40.0, "min_users": 10, "bandwidth": 2.0, "projection": 2, "bitsum": "rr"}
    fitted = kde(**asked, insecure_seed=None).fit(X)
    fitted.save(str(path))
    loaded = PrivateKDE.load(str(path))
    expected = fitted.get_params() | {"public_seed": fitted.model_.announcements[0].public_seed}
    assert loaded.get_params() == expected
    assert loaded.n_features_in_ == DIM
    with pytest.raises(InvalidInputError):
        loaded.density(X[:, :2])
    loaded.fit(X)
    assert guarantees(loaded.contract_)[Adjacency.FEATURES, View.MODEL] == (40.0, 1e-6)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_loaded_classifier_knows_how_it_was_asked(seed: int | None, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    fitted = classifier(label_epsilon=2.5, insecure_seed=seed, rule="mean").fit(X, Y)
    fitted.save(path)
    loaded = PrivateKDEClassifier.load(path)
    assert loaded.label_epsilon == 2.5
    assert loaded.model_.private == (seed is None)
    assert loaded.contract_ == fitted.contract_
    expected = fitted.get_params() | {"public_seed": loaded.public_seed, "insecure_seed": None}
    assert loaded.get_params() == expected


def test_a_forged_classifier_is_not_loaded(tmp_path: Path) -> None:
    """Without its label mechanism in the contract there is no label_epsilon to restore."""
    path = tmp_path / "model.npz"
    fitted = classifier(insecure_seed=None).fit(X, Y)
    bent = dataclasses.replace(fitted.contract_, parameters={})
    object.__setattr__(fitted.model_, "contract", bent)
    fitted.model_.save(path)
    with pytest.raises(DamagedFileError):
        PrivateKDEClassifier.load(path)


def test_a_save_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        kde().fit(X).save(tmp_path / "nowhere" / "model.npz")


# --- vectors in files -------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> StoredRows:
    np.savez(tmp_path / "x.npz", x=X.astype(np.float32))
    rows = read_vectors(tmp_path / "x.npz", "x")
    assert isinstance(rows, StoredRows)
    return rows


def test_stored_vectors_give_the_same_model(stored: StoredRows) -> None:
    single = X.astype(np.float32)
    np.testing.assert_array_equal(kde().fit(stored).density(stored), kde().fit(single).density(single))
    from_file, from_memory = classifier().fit(stored, Y), classifier().fit(single, Y)
    np.testing.assert_array_equal(from_file.scores(stored), from_memory.scores(single))
    assert from_file.decode(stored, [str(i) for i in range(USERS)]) == from_memory.decode(
        single, [str(i) for i in range(USERS)]
    )
    assert from_file.n_features_in_ == DIM


def test_names_of_columns_do_not_outlive_them(stored: StoredRows) -> None:
    """A file has none, so those of an earlier fit go."""
    fitted = kde().fit(X)
    fitted.feature_names_in_ = np.array(["height", "weight", "age"], dtype=object)
    assert not hasattr(fitted.fit(stored), "feature_names_in_")


@pytest.mark.parametrize("y", [Y[:-1], np.append(Y, "a"), Y[:, None], Y[:1], "a"])
def test_labels_must_match_stored_vectors(y: Any, stored: StoredRows) -> None:
    """Fewer labels would silently leave users out."""
    with pytest.raises(InvalidInputError, match="for 60 rows; give one for each"):
        classifier().fit(stored, y)


def test_stored_queries_of_another_dimension_are_refused(stored: StoredRows) -> None:
    with pytest.raises(InvalidInputError):
        kde().fit(X[:, :2]).density(stored)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_progress_goes_to_standard_error_whatever_the_labels(capsys: pytest.CaptureFixture[str]) -> None:
    """Labels are not markup: '[/b]' would be a syntax error of rich."""
    y = np.where(Y == "a", "[/b]", "[red]x")
    classifier(classes=["[/b]", "[red]x"], verbose=True).fit(X, y)
    kde(verbose=True).fit(X)
    told = capsys.readouterr()
    assert told.out == ""
    assert re.search(r"collecting \[/b\]", told.err)
    assert re.search(r"collecting \[red\]x", told.err)
    kde().fit(X)
    assert capsys.readouterr().err == ""


def test_models_are_what_is_published() -> None:
    """Nothing of the data stays in a fitted estimator."""
    fitted = classifier().fit(X, Y)
    kept = {name for name in vars(fitted) if name.endswith("_")}
    assert kept == {"model_", "classes_", "reported_counts_", "n_features_in_"}
    assert isinstance(fitted.model_, DensityModel)
    assert isinstance(next(iter(fitted.contract_.guarantees)), Guarantee)


@pytest.mark.parametrize("bad", [np.array([123.5, 7.25]), np.array([[1 + 2j, 123.5]] * 30), 123.5], ids=str)
def test_complaints_about_shape_and_type_quote_no_data(bad: object) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        PrivateKDE(epsilon=1.0).fit(bad)
    assert "123.5" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("huge", [10**400, Fraction(10**400)])
def test_numbers_that_no_float_holds_are_refused_and_not_shown(huge: Any) -> None:
    """A regression: they ended in an OverflowError."""
    x = X.astype(object)
    x[1, 0] = huge
    with pytest.raises(InvalidInputError, match="too large for a float") as error:
        PrivateKDE(epsilon=1.0, repetitions=4).fit(x)
    assert "000" not in str(error.value)


def test_labels_of_characters_that_do_not_exist_are_refused() -> None:
    """A regression: they ended in a SystemError."""
    labels: Any = np.full(len(X), 0x110005, "<u4").view("<U1")
    for classes in (None, ("a", "b")):
        with pytest.raises(InvalidInputError, match="characters that do not exist"):
            PrivateClassifier(epsilon=4.0, classes=classes).fit(X, labels)
    with pytest.raises(InvalidInputError):
        PrivateClassifier(epsilon=4.0, classes=labels[:2]).fit(X, Y)
