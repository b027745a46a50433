"""Scikit-learn's own checks of all estimators, and what people do with estimators.

The checks run on seeded estimators, which pass all of them but one: densities are computed in single precision, so a
query alone may differ from the same query among others by more than 1e-7 (`SINGLE_PRECISION`). An unseeded estimator is
private because two fits of the same data differ. So it cannot pass the checks that compare two fits:
`check_fit_idempotent`, `check_supervised_y_2d`, `check_classifier_data_not_an_array` and `check_pipeline_consistency`.
It says so by its tag `non_deterministic`, on which scikit-learn skips the last of these. The checks do not declare
classes, so each fit of a classifier warns.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_pipeline_consistency, parametrize_with_checks

from accounting import InvalidInputError
from privkde import PrivateClassifier, PrivateKDE, PrivateKDEClassifier
from tests.plans import made_once
from tests.privkde.unplanned import little_noise

NOISELESS: dict[str, Any] = {"bitsum": "poisson", "epsilon": 50.0, "accountant": "basic"}
NOISELESS |= {"insecure_seed": 0, "allow_useless": True}
"""Nearly: accuracy is asked of few users."""
CHEAP: dict[str, Any] = NOISELESS | {"repetitions": 16}
LABELED: dict[str, Any] = {"epsilon": 100.0, "label_epsilon": 50.0}
JOINT: dict[str, Any] = {"epsilon": 50.0, "insecure_seed": 0, "outside": "project", "max_messages": 1000}

SINGLE_PRECISION = {"check_methods_subset_invariance": "densities agree to 1e-5 and not to 1e-7"}


@pytest.fixture(autouse=True, scope="module")
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


@pytest.mark.parametrize("accountant", ["basic", pytest.param("auto", marks=pytest.mark.slow)])
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        PrivateKDE(repetitions=8, **NOISELESS),
        PrivateKDEClassifier(repetitions=64, **NOISELESS | LABELED),
    ],
    expected_failed_checks=lambda _: SINGLE_PRECISION,
)
@pytest.mark.filterwarnings("ignore:classes were not declared")
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None], accountant: str) -> None:
    check(estimator.set_params(accountant=accountant))


@parametrize_with_checks([PrivateClassifier(**JOINT)])  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("ignore:class")
def test_scikit_learns_checks_of_the_default(estimator: Any, check: Callable[[Any], None]) -> None:
    with little_noise():
        check(estimator)


@pytest.mark.parametrize("kind", [PrivateKDE, PrivateClassifier, PrivateKDEClassifier])
def test_an_unseeded_estimator_says_that_its_fits_differ(kind: type[Any]) -> None:
    assert get_tags(kind()).non_deterministic is True
    assert get_tags(kind(insecure_seed=3)).non_deterministic is False
    with pytest.raises(SkipTest, match="non deterministic"):
        check_pipeline_consistency(kind.__name__, kind())


@pytest.mark.parametrize("kind", [PrivateKDE, PrivateKDEClassifier])
def test_parameters_are_kept_as_they_were_given(kind: type[Any]) -> None:
    given = kind("laplacian", "3nb", epsilon=1.5, delta=1e-7, bias=0.1, verbose=True, min_users=7, public_seed="ab")
    copied = clone(given)
    assert copied is not given
    assert copied.get_params() == given.get_params()
    assert (copied.kernel, copied.bitsum, copied.epsilon, copied.bias) == ("laplacian", "3nb", 1.5, 0.1)
    for name, value in given.get_params().items():
        assert getattr(given, name) is value
        marked = object()
        assert kind(**{name: marked}).get_params()[name] is marked, name
        assert given.set_params(**{name: marked}).get_params()[name] is marked, name
    with pytest.raises(ValueError, match="surprise"):
        given.set_params(surprise=1)


def blobs(count: int = 90) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    random = np.random.default_rng(2)
    y = np.arange(count) % 3
    return random.normal(size=(count, 2)) * 0.2 + 2.0 * np.stack([y, -y], axis=1), y


def test_kinds_and_scores() -> None:
    x, y = blobs()
    fitted = PrivateKDEClassifier(classes=range(3), **CHEAP | LABELED).fit(x, y)
    assert is_classifier(fitted)
    assert not is_classifier(PrivateKDE())
    assert fitted.score(x, y) == np.mean(fitted.predict(x) == y)
    assert fitted.score(x, y) > 0.9


def test_a_query_alone_is_the_same_query_among_others() -> None:
    """In single precision: what scikit-learn's check asks for up to 1e-7."""
    x, y = blobs()
    density = PrivateKDE(**CHEAP).fit(x)
    fitted = PrivateKDEClassifier(classes=range(3), **CHEAP | LABELED).fit(x, y)
    for method in (density.density, fitted.decision_function):
        np.testing.assert_allclose(np.concatenate([method(row[None]) for row in x]), method(x), atol=1e-5)


def test_pipeline_cross_validation_and_grid_search() -> None:
    x, y = blobs()
    classifier = PrivateKDEClassifier(classes=range(3), bandwidth=0.5, **CHEAP | LABELED)
    pipeline = make_pipeline(StandardScaler(), classifier)
    assert pipeline.fit(x, y).score(x, y) > 0.9
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.8
    search = GridSearchCV(pipeline, {"privatekdeclassifier__bandwidth": [0.5, 100.0]}, cv=3).fit(x, y)
    assert search.best_params_ == {"privatekdeclassifier__bandwidth": 0.5}
    density = make_pipeline(StandardScaler(), PrivateKDE(**CHEAP)).fit(x)
    assert density[-1].density(density[:-1].transform(x)).shape == (90,)


def test_fitted_estimators_can_be_pickled() -> None:
    x, y = blobs()
    fitted = PrivateKDEClassifier(classes=range(3), **CHEAP | LABELED).fit(x, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.scores(x), fitted.scores(x))
    assert again.contract_ == fitted.contract_


def test_complaints_of_scikit_learn_are_ours() -> None:
    """One family of errors for callers; mistakes of type stay what they are."""
    x, y = blobs()
    with pytest.raises(InvalidInputError, match="Expected 2D array"):
        PrivateKDE(**CHEAP).fit(x[:, 0])
    for estimator in (PrivateKDE(**CHEAP), PrivateKDEClassifier(**CHEAP), PrivateClassifier(**JOINT)):
        with pytest.raises(InvalidInputError, match="vectors are sparse: every user sends as many messages"):
            estimator.fit(csr_array(x), y)
        with pytest.raises(InvalidInputError, match="sample_weight was given to fit: a person with a large weight"):
            estimator.fit(x, y, sample_weight=np.ones(len(x)))
        with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
            estimator.fit(x, y, weights=np.ones(len(x)))
        assert not hasattr(estimator, "model_")
    with pytest.raises(InvalidInputError, match="Unknown label type"):
        PrivateKDEClassifier(**CHEAP).fit(x, y + 0.5)
