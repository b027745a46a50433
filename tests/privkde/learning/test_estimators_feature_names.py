"""Names of columns survive a file; names that no file can hold are refused before anybody answers."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import InvalidInputError
from privkde import PrivateClassifier, PrivateKDE, PrivateKDEClassifier
from privkde.protocol.model import LONGEST_NAME, SCHEMA, DensityModel, require_feature_names
from privkde.storage.container import DamagedFileError, read_container, write_container

NAMES = ("height", "größe", "日本")
Y = np.arange(60) % 2
X = 0.2 * np.random.default_rng(1).normal(size=(60, 3)) + np.where(Y, 0.2, -0.2)[:, None]
QUICK: dict[str, Any] = {
    "kernel": "gaussian",
    "repetitions": 4,
    "epsilon": 20.0,
    "accountant": "basic",
    "insecure_seed": 1,
    "allow_useless": True,
}
ESTIMATORS = [
    PrivateKDE(**QUICK),
    PrivateKDEClassifier(**QUICK, classes=[0, 1]),
    PrivateClassifier(**QUICK, classes=[0, 1], small_classes="exclude"),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_names_in_a_file_are_restored(estimator: Any, tmp_path: Path) -> None:
    fitted = estimator.fit(X, Y)
    assert fitted.model_.feature_names == ()
    fitted.save(tmp_path / "without")
    assert not hasattr(type(estimator).load(tmp_path / "without"), "feature_names_in_")
    dataclasses.replace(fitted.model_, feature_names=NAMES).save(tmp_path / "with")
    loaded = type(estimator).load(tmp_path / "with")
    assert loaded.feature_names_in_.tolist() == list(NAMES)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "with").read_bytes()


@pytest.mark.extras
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_names_of_a_data_frame_reach_the_file(estimator: Any, tmp_path: Path) -> None:
    frame = importlib.import_module("pandas").DataFrame(X, columns=list(NAMES))
    estimator.fit(frame, Y).save(tmp_path / "model")
    loaded = type(estimator).load(tmp_path / "model")
    query = loaded.density if isinstance(loaded, PrivateKDE) else loaded.predict
    assert len(query(frame)) == len(X)
    with pytest.raises(InvalidInputError, match="feature names"):
        query(frame[list(NAMES[::-1])])


def test_names_that_no_file_holds_are_refused() -> None:
    require_feature_names(NAMES, 3)
    for strange in ("x" * (LONGEST_NAME + 1), "\ud800"):
        with pytest.raises(InvalidInputError, match="Rename columns, or give an array"):
            require_feature_names(("a", "b", strange), 3)
    with pytest.raises(InvalidInputError, match="all together at most 1,048,576 bytes"):
        require_feature_names(["日" * LONGEST_NAME] * 2_000, 2_000)


@pytest.mark.parametrize(
    "forged",
    ["abc", {"a": 1, "b": 2, "c": 3}, None, 3, ["a", "b"], ["a", "b", "c", "d"], ["a", "b", 3], ["a", "b", "x" * 257]],
    ids=str,
)
def test_forged_names_are_refused(forged: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    dataclasses.replace(PrivateKDE(**QUICK).fit(X).model_, feature_names=NAMES).save(path)
    document, arrays = read_container(path, SCHEMA, ("sums",))
    assert document["feature_names"] == list(NAMES)
    write_container(path, document | {"feature_names": forged}, arrays)
    with pytest.raises(DamagedFileError, match="names"):
        DensityModel.load(path)
