"""The default classifier: one promise, one collection, all declared classes, and words where noise wins."""

from __future__ import annotations

import importlib
import inspect
import math
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from accounting import Adjacency, InfeasibleError, InvalidInputError, PlanRequest, View
from accounting.request import MOST_MESSAGES
from privkde import PrivateClassifier, PrivateKDE, PrivateKDEClassifier
from privkde.learning.private_classifier import FaintClassesWarning, WeakSignalWarning, weakness
from privkde.protocol.linear_rule import LinearRule
from privkde.protocol.model import DensityModel
from privkde.protocol.rounds import ExcludedClassWarning
from tests.plans import made_once, plan_for
from tests.privkde.unplanned import little_noise

Floats = NDArray[np.float64]
USERS, DIM = 900, 4
NAMES = ("ant", "bee", "cat")
CENTERS = 0.6 * np.eye(3, DIM)
BLOCKS: dict[str, Any] = {"kernel": "gaussian", "repetitions": 64, "epsilon": 20.0, "accountant": "advanced"}
"""Another kernel: a block of instances for each class; quick to plan."""


@pytest.fixture(autouse=True, scope="module")
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


@pytest.fixture
def noise() -> Iterator[None]:
    """Little, and not planned."""
    with little_noise():
        yield


def clouds(count: int = USERS, seed: int = 1) -> tuple[Floats, NDArray[np.str_]]:
    """Three clouds of width 0.08 around centers 0.85 apart, in the unit ball."""
    numbers = np.arange(count) % 3
    x = CENTERS[numbers] + 0.08 * np.random.default_rng(seed).normal(size=(count, DIM))
    return x, np.array(NAMES)[numbers]


X, Y = clouds()


def classifier(**changes: Any) -> PrivateClassifier:
    few: dict[str, Any] = {"epsilon": 4.0, "classes": NAMES, "max_messages": 500, "insecure_seed": 1}
    return PrivateClassifier(**few | changes)


def test_epsilon_alone_is_enough_and_is_the_total() -> None:
    """As the documentation has it, with padding and cryptographic draws: 32,768 bits for each of few users."""
    x, y = clouds(300)
    fitted = PrivateClassifier(epsilon=4.0, classes=NAMES).fit(x, y)
    found = {(g.adjacency, g.view): (g.epsilon, g.delta) for g in fitted.contract_.guarantees}
    assert {adjacency for adjacency, _ in found} == {Adjacency.RECORD}
    assert found[Adjacency.RECORD, View.COMMUNICATION] == (4.0, 1e-6)
    assert fitted.plan_.request.record is not None
    assert fitted.plan_.request.padded == 32_768
    assert fitted.model_.private
    assert fitted.predict(CENTERS).tolist() == list(NAMES)
    assert fitted.summary().startswith(
        "(4, 1e-6)-differential privacy for a whole record: features and label, in one collection of 300 users.\n"
    )


@pytest.mark.parametrize("model", ["auto", "mean", "density"])
def test_every_model_tells_clouds_apart(model: str) -> None:
    """Fixed seed; chance is ⅓, and centers are many deviations of noise apart."""
    fitted = classifier(model=model).fit(X, Y)
    queries, truth = clouds(150, 2)
    assert fitted.score(queries, truth) > 0.95
    assert fitted.plan_.request.model == {"auto": "discriminant"}.get(model, model)
    assert fitted.n_features_in_ == DIM
    assert list(fitted.class_sizes_.values()) == pytest.approx([300.0] * 3, abs=6 * fitted.model_.size_deviation())


def test_another_kernel_is_asked_for_by_name() -> None:
    fitted = classifier(**BLOCKS).fit(X, Y)
    assert fitted.plan_.request.record is None
    assert fitted.plan_.request.kernel == "gaussian"
    assert fitted.score(X, Y) > 0.9


@pytest.mark.usefixtures("noise")
def test_scores_decisions_and_probabilities() -> None:
    fitted = classifier().fit(X, Y)
    scores = fitted.scores(X[:9])
    np.testing.assert_array_equal(fitted.decision_function(X[:9]), scores)
    np.testing.assert_allclose(fitted.predict_proba(X[:9]), softmax(scores, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X[:9]), fitted.classes_[scores.argmax(axis=1)])
    two = classifier(classes=("ant", "bee")).fit(X[Y != "cat"], Y[Y != "cat"])
    decision = two.decision_function(X[:9])
    assert decision.shape == (9,)
    np.testing.assert_array_equal(two.classes_[(decision > 0).astype(int)], two.predict(X[:9]))
    proba = two.predict_proba(X[:9])
    np.testing.assert_allclose(np.log(proba[:, 1] / proba[:, 0]), decision, rtol=1e-6)


@pytest.mark.usefixtures("noise")
def test_densities_are_no_probabilities() -> None:
    assert hasattr(classifier(), "predict_proba")
    assert not hasattr(classifier(model="density"), "predict_proba")
    assert hasattr(classifier(epsilon=None, model="mean"), "predict_proba")
    for plain in ({"kernel": "gaussian"}, {"delta": 0.0, "bitsum": "pure"}, {"accountant": "pld"}, {"kernel": "none"}):
        assert not hasattr(classifier(**plain), "predict_proba"), plain
    fitted = classifier(model="density").fit(X, Y)
    np.testing.assert_array_equal(fitted.decision_function(X), fitted.model_.densities(X))
    assert not hasattr(fitted.set_params(model="auto"), "predict_proba"), "what was fitted decides"


@pytest.mark.usefixtures("noise")
def test_the_linear_rule_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = classifier().fit(X, Y)

    def again(_: DensityModel) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(DensityModel, "linear_rule", again)
    assert fitted.predict(CENTERS).tolist() == list(NAMES)
    assert "discriminant" in fitted.summary()


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"model": "mean"}, BLOCKS], ids=str)
@pytest.mark.parametrize("seed", [None, 1])
def test_a_loaded_classifier_predicts_and_promises_the_same(
    changes: dict[str, Any], seed: int | None, tmp_path: Path
) -> None:
    fitted = classifier(**{"insecure_seed": seed} | changes)
    fitted.fit(X, Y).save(tmp_path / "model")
    loaded = PrivateClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(X), fitted.decision_function(X))
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert (loaded.contract_, loaded.summary()) == (fitted.contract_, fitted.summary())
    assert str(loaded.contract_) == str(fitted.contract_)
    chosen = {"model": fitted.plan_.request.model, "public_seed": loaded.public_seed, "insecure_seed": None}
    kept = {"repetitions": fitted.plan_.request.repetitions}
    assert loaded.get_params() == fitted.get_params() | chosen | kept
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.scores(X), fitted.scores(X))


@pytest.mark.usefixtures("noise")
def test_a_loaded_classifier_can_be_changed_and_fitted_again(tmp_path: Path) -> None:
    classifier().fit(X, Y).save(tmp_path / "model")
    loaded = PrivateClassifier.load(tmp_path / "model")
    loaded.set_params(epsilon=8.0, max_messages=200, insecure_seed=2, min_users=None)
    loaded.fit(X[:600], Y[:600])
    assert (loaded.plan_.request.epsilon, loaded.plan_.request.padded) == (8.0, 200)
    assert loaded.plan_.request.record is not None
    assert loaded.plan_.request.bound == pytest.approx(loaded.plan_.request.record.planned_bound)
    assert loaded.predict(CENTERS).tolist() == list(NAMES)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    joint, separate, density = (tmp_path / name for name in ("joint", "separate", "density"))
    classifier().fit(X, Y).save(joint)
    asked: dict[str, Any] = {"repetitions": 4, "epsilon": 50.0, "accountant": "basic", "insecure_seed": 1}
    PrivateKDEClassifier(classes=NAMES, **asked).fit(X, Y).save(separate)
    PrivateKDE(**asked).fit(X).save(density)
    for path, load, name in (
        (separate, PrivateClassifier.load, "PrivateKDEClassifier"),
        (density, PrivateClassifier.load, "PrivateKDE"),
        (joint, PrivateKDEClassifier.load, "PrivateClassifier"),
        (joint, PrivateKDE.load, "PrivateClassifier"),
        (separate, PrivateKDE.load, "PrivateKDEClassifier"),
    ):
        with pytest.raises(InvalidInputError, match=rf"load it with {name}\."):
            load(path)


# --- noise that wins --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("noise")
def test_all_declared_classes_stay_predictable() -> None:
    """Nobody has the fourth: its size is noise, and a linear model says so and goes on."""
    with pytest.warns(
        FaintClassesWarning, match=r"a class does not stand out .* users: 'dog' \(\d+\) .* predictions of it\."
    ):
        fitted = classifier(classes=(*NAMES, "dog")).fit(X, Y)
    assert fitted.classes_.tolist() == [*NAMES, "dog"]
    with pytest.warns(FaintClassesWarning, match=r"classes do not .* their size.* predictions of them\."):
        classifier(classes=(*NAMES, "dog", "eel")).fit(X, Y)
    assert fitted.predict_proba(X[:2]).shape == (2, 4)
    assert fitted.score(X, Y) > 0.95
    assert list(fitted.decode(CENTERS, ["a", "b", "c"], k=1)) == list(NAMES), "no density, no words"
    with pytest.raises(InfeasibleError, match="users: 'dog'"):
        classifier(classes=(*NAMES, "dog"), **BLOCKS).fit(X, Y)
    with pytest.warns(ExcludedClassWarning, match="excluded: .* users: 'dog'"):
        rest = classifier(classes=(*NAMES, "dog"), small_classes="exclude", **BLOCKS).fit(X, Y)
    assert rest.classes_.tolist() == list(NAMES)


def test_a_fit_that_drowns_says_so() -> None:
    """Labels that say nothing of the vectors, at a strict ε; the warning points at who called fit."""
    x = X[np.random.default_rng(5).permutation(USERS)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = classifier(epsilon=0.1).fit(x, Y)
    said = [one for one in caught if one.category is WeakSignalWarning]
    assert [one.filename for one in said] == [__file__]
    linear = fitted.ranking_.linear
    assert linear is not None
    assert str(said[0].message) == weakness(linear, USERS)
    faint = [one for one in caught if one.category is FaintClassesWarning]
    assert [one.filename for one in faint] == [__file__]
    with pytest.raises(InfeasibleError, match="no class stands out"):
        fitted.decode(CENTERS, NAMES)


def test_how_many_users_it_would_take() -> None:
    """Squared noise falls with n²: four times as much as the signal takes twice the users."""
    shape: dict[str, Any] = {"weights": np.zeros((2, 1)), "offsets": np.zeros(2)}
    assert "could be better; with about 2,000 users both would be equal" in weakness(
        LinearRule(signal=0.25, noise=1.0, **shape), 1_000
    )
    assert "nothing can be told" in weakness(LinearRule(signal=0.25, noise=1.0, sure=False, **shape), 1_000)
    short = LinearRule(signal=0.25, noise=1.0, squared_norm=(0.008, 0.01), **shape)
    assert "norms of at most about 0.1; scale them towards norm 1" in weakness(short, 1_000)


def test_a_number_of_classes_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInputError, match=r"classes=3 is a number; give the classes, for instance range\(3\)"):
        classifier(classes=3).fit(X, Y)


def test_the_documented_limit_on_messages_is_the_planners() -> None:
    assert f"Most messages of a user; {MOST_MESSAGES:,} if left out." in (inspect.getdoc(PrivateClassifier) or "")


@pytest.mark.usefixtures("noise")
def test_clear_fits_are_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier().fit(X, Y)


# --- plans, bases, parameters -----------------------------------------------------------------------------------------


def test_a_plan_made_before_decides() -> None:
    asked: dict[str, Any] = {"users": USERS, "epsilon": 20.0, "delta": 1e-7, "accountant": "basic", "repetitions": 4}
    plan = classifier().fit(X, Y).plan_
    fitted = PrivateClassifier(classes=NAMES, insecure_seed=1).fit(X, Y, plan=plan)
    assert fitted.plan_ == plan
    for other, told in (
        (plan_for(**asked, dim=DIM, classes=2, kernel="gaussian"), "the plan is for 2 classes and there are 3"),
        (plan_for(**asked, dim=5, classes=3, kernel="gaussian"), "vectors have 4 entries and the plan is for 5"),
        (plan_for(**asked, dim=DIM, classes=3, label_epsilon=5.0), "not for joint labels"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            classifier(epsilon=None).fit(X, Y, plan=other)
    with pytest.raises(InvalidInputError, match=r"epsilon=3\.0 and a plan for epsilon=4"):
        classifier(epsilon=3.0).fit(X, Y, plan=plan)


@pytest.mark.usefixtures("noise")
def test_a_public_basis_cuts_messages_and_is_kept(tmp_path: Path) -> None:
    """The three centers span all that tells the classes apart; any columns with that span are the same basis."""
    columns = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    fitted = classifier(basis=columns).fit(X, Y)
    assert fitted.plan_.request.dim == 3
    assert fitted.n_features_in_ == DIM
    assert fitted.score(X, Y) > 0.95
    basis = fitted.model_.basis
    assert basis is not None
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-12)
    outside = X + np.array([0.0, 0.0, 0.0, 7.0])
    np.testing.assert_allclose(fitted.scores(outside), fitted.scores(X), atol=1e-4)
    np.testing.assert_allclose(fitted.model_.densities(outside), fitted.model_.densities(X), atol=1e-5)
    assert fitted.decode(CENTERS, NAMES, k=1) == {name: [name] for name in NAMES}
    fitted.save(tmp_path / "model")
    loaded = PrivateClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.scores(X), fitted.scores(X))
    assert loaded.n_features_in_ == DIM
    assert loaded.set_params(insecure_seed=1, model="auto").fit(X, Y).plan_ == fitted.plan_
    with pytest.raises(InvalidInputError, match="3 features, but"):
        loaded.predict(X[:, :3])
    with pytest.raises(InvalidInputError, match=r"basis of shape \(3, 2\)"):
        classifier(basis=np.eye(3, 2)).fit(X, Y)


def test_long_vectors_without_second_moments() -> None:
    """A regression: the room that second moments would take was refused, for a model without them."""
    wide = PlanRequest(users=1_000, dim=18_000, classes=2, epsilon=1.0, delta=1e-6, model="mean")
    assert wide.record is not None
    assert wide.record.n_coordinates == 2 * 18_000 + 2
    chosen = PlanRequest(users=1_000, dim=18_000, classes=2, epsilon=1.0, delta=1e-6).model_choice()
    assert chosen is not None
    assert "model mean: second moments would take 162,045,002 messages" in chosen.reason
    with pytest.raises(InfeasibleError, match="model='discriminant' takes 162,045,002 messages per user"):
        PlanRequest(users=1_000, dim=18_000, classes=2, epsilon=1.0, delta=1e-6, model="discriminant").model_choice()


def test_parameters_are_documented() -> None:
    described = inspect.getdoc(PrivateClassifier) or ""
    missing = [name for name in PrivateClassifier().get_params() if f"{name} :" not in described]
    shared = {"dropout", "colluders", "bias", "bound", "radius", "noise_shape", "excess_error", "allow_useless"}
    assert {*missing} <= shared
    assert all(name in described for name in shared)


@pytest.mark.usefixtures("noise")
def test_classes_of_any_type_survive_a_file(tmp_path: Path) -> None:
    numbers = np.searchsorted(NAMES, Y)
    for classes in ([3, 7, 9], [-1.0, 0.0, 2.0], ["ü", "日本", "z"]):
        known = np.array(sorted(classes))
        fitted = classifier(classes=classes).fit(X, known[numbers])
        fitted.save(tmp_path / "model")
        loaded = PrivateClassifier.load(tmp_path / "model")
        assert loaded.classes_.tolist() == fitted.classes_.tolist() == known.tolist()
        assert loaded.classes_.dtype == fitted.classes_.dtype
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


@pytest.mark.extras
@pytest.mark.usefixtures("noise")
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_data(library: str, tmp_path: Path) -> None:
    frames = importlib.import_module(library)
    frame = frames.DataFrame({name: X[:, number] for number, name in enumerate("abcd")})
    fitted = classifier().fit(frame, frames.Series(Y.tolist()))
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(fitted.predict(frame), classifier().fit(X, Y).predict(X))
    fitted.save(tmp_path / "model")
    for one in (fitted, PrivateClassifier.load(tmp_path / "model")):
        with pytest.raises(InvalidInputError, match="feature names"):
            one.predict(frame[["b", "a", "c", "d"]])


@pytest.mark.extras
def test_lazy_frames_hold_no_data() -> None:
    frame = importlib.import_module("polars").DataFrame({"a": [0.1, 0.2]}).lazy()
    with pytest.raises(InvalidInputError, match=r"LazyFrame, which holds no data yet; collect\(\) it first"):
        classifier().fit(frame, ["ant", "bee"])


@pytest.mark.usefixtures("noise")
def test_rows_outside_the_ball_are_refused_or_projected() -> None:
    with pytest.raises(InvalidInputError, match="row 0 has a norm above 1"):
        classifier().fit(9.0 * X, Y)
    assert math.isclose(classifier(outside="project").fit(9.0 * X, Y).score(9.0 * X, Y), 1.0, abs_tol=0.05)
