"""A public basis only shortens vectors, and what is no basis is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import InvalidInputError, PlanRequest
from accounting.mechanisms import RandomizedResponse
from privkde import Announcement, PrivateClassifier, Randomizer
from privkde.draws.randomness import ByteStream
from privkde.protocol import model as models
from privkde.protocol.basis import (
    ProjectedRows,
    fingerprint,
    on_basis,
    orthonormal,
    projected,
    require_announced,
    require_basis,
)
from privkde.protocol.model import DensityModel
from privkde.storage.container import DamagedFileError, read_container, write_container
from tests.privkde.unplanned import little_noise, unplanned

GIVEN = np.random.default_rng(6).normal(size=(7, 3))


def test_the_span_is_kept_and_lengths_only_fall() -> None:
    basis = orthonormal(GIVEN, 7)
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(basis @ basis.T @ GIVEN, GIVEN, atol=1e-12)
    x = np.random.default_rng(7).normal(size=(1000, 7))
    assert np.all(np.linalg.norm(x @ basis, axis=1) <= np.linalg.norm(x, axis=1) * (1.0 + 1e-12))
    require_basis(basis, 3)


def test_rows_are_projected_by_blocks() -> None:
    basis, x = orthonormal(GIVEN, 7), np.random.default_rng(8).normal(size=(9, 7)).astype(np.float32)
    rows = on_basis(x, basis)
    assert isinstance(rows, ProjectedRows)
    assert rows.shape == (9, 3)
    np.testing.assert_allclose(rows[np.array([4, 1])], x[[4, 1]].astype(np.float64) @ basis, atol=1e-12)
    assert on_basis(x, None) is x
    x[2, 5] = np.nan
    assert np.isnan(on_basis(x, basis)[np.array([2])]).all()


@pytest.mark.parametrize(
    ("basis", "told"),
    [
        (np.eye(6, 3), r"shape \(6, 3\) for vectors of 7 entries"),
        (np.ones((7, 8)), "1 ≤ r ≤ 7"),
        (np.ones((7, 0)), "1 ≤ r ≤ 7"),
        (np.ones(7), "shape"),
        (np.ones((7, 2)), "column 1 of basis depends on those before it"),
        (np.zeros((7, 1)), "depends"),
        (np.full((7, 1), np.nan), "NaN or infinite"),
        (np.full((7, 1), "x"), "basis is given as an array of type <U1; .* real numbers"),
        ([[1j]] * 7, "real numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_basis_is_refused(basis: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        orthonormal(basis, 7)


@pytest.mark.parametrize(
    "bent", [GIVEN, np.eye(7, 2), np.eye(7, 3, dtype=np.float32), np.full((7, 3), np.inf), np.eye(3)[0]]
)
def test_a_published_basis_is_checked(bent: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a matrix of 3 orthonormal columns"):
        require_basis(bent, 3)


def announced(basis_sha256: str | None) -> Announcement:
    """A small joint plan for vectors of three entries."""
    asked = PlanRequest(users=300, dim=3, classes=2, epsilon=9.0, delta=1e-6, max_messages=300).decided()
    plan = unplanned(RandomizedResponse(n_users=300, flip_probability=0.25), **dataclasses.asdict(asked))
    return Announcement(plan=plan, public_seed="01" * 16, basis_sha256=basis_sha256)


def test_a_client_projects_on_the_announced_basis() -> None:
    """Its packets are those of a client who gives projected vectors, bit by bit."""
    basis, x, classes = orthonormal(GIVEN, 7), np.random.default_rng(10).normal(size=(9, 7)) / 9.0, np.arange(9) % 2
    told = announced(fingerprint(basis))
    ours, theirs = ByteStream(bytes(32)), ByteStream(bytes(32))
    packets = Randomizer(told, basis=basis).packets(x, classes, stream=ours)
    assert packets == Randomizer(told).packets(projected(x, basis), classes, stream=theirs)
    with pytest.raises(InvalidInputError, match=r"shape \(9, 7\) were given; the plan is for \(users, 3\)"):
        Randomizer(told).packets(x, classes)
    with pytest.raises(InvalidInputError, match=r"shape \(9, 3\) were given; the basis is for \(users, 7\)"):
        Randomizer(told, basis=basis).packets(projected(x, basis), classes)
    with pytest.raises(InvalidInputError, match="row 4 has an entry that is NaN or infinite"):
        Randomizer(told, basis=basis).packets(np.where(np.arange(9)[:, None] == 4, np.nan, x), classes)


def test_the_announcement_decides_which_basis() -> None:
    basis = orthonormal(GIVEN, 7)
    told, plain = announced(fingerprint(basis)), announced(None)
    assert Announcement.from_json(told.to_json()) == told
    assert "basis_sha256" not in plain.to_json()
    assert told.collection() != plain.collection()
    for announcement, given, match in (
        (told, -basis, "names the basis .*…, and another was given"),
        (plain, basis, "the announcement names none; leave it out"),
        (told, GIVEN, "orthonormal"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            Randomizer(announcement, basis=given)
    listed: Any = [[1.0]]
    with pytest.raises(InvalidInputError, match="is a list; give a NumPy array"):
        Randomizer(told, basis=listed)
    with pytest.raises(InvalidInputError, match="give that matrix"):
        require_announced(None, told.basis_sha256)
    for forged in ("", "0" * 63, "G" * 64, "0" * 64 + "\n", 7, ["0" * 64]):
        with pytest.raises(InvalidInputError, match=r"64 hexadecimal digits|malformed"):
            Announcement.from_json(told.to_json() | {"basis_sha256": forged})


def test_equal_entries_in_another_shape_are_another_basis() -> None:
    assert fingerprint(np.eye(4)) != fingerprint(np.eye(4).reshape(2, 8))
    assert fingerprint(np.asfortranarray(GIVEN)) == fingerprint(GIVEN)


@pytest.mark.filterwarnings("ignore:class")
def test_models_of_the_first_schema_have_neither_rule_nor_basis(tmp_path: Path) -> None:
    x, path = np.random.default_rng(9).normal(size=(300, 7)) / 9.0, tmp_path / "model"
    with little_noise():
        fitted = PrivateClassifier(epsilon=9.0, max_messages=300, basis=GIVEN, insecure_seed=1).fit(
            x, np.arange(300) % 2
        )
    model = fitted.model_
    assert model.basis is not None
    model.save(path)
    np.testing.assert_array_equal(DensityModel.load(path).basis, model.basis)
    document, arrays = read_container(path, models.SCHEMA, ("sums", "basis"))
    assert document["rule"] == "density"
    bent = arrays | {"basis": 1.001 * arrays["basis"]}
    write_container(path, document, bent)
    with pytest.raises(DamagedFileError, match="orthonormal"):
        DensityModel.load(path)
    write_container(path, document, arrays | {"basis": -arrays["basis"]})
    with pytest.raises(DamagedFileError, match="another was given"):
        DensityModel.load(path)
    write_container(path, document, {"sums": arrays["sums"]})
    with pytest.raises(DamagedFileError, match="names the basis"):
        DensityModel.load(path)
    del document["rule"], arrays["basis"], document["announcements"][0]["basis_sha256"]
    write_container(path, document, arrays)
    with pytest.raises(DamagedFileError, match="rule"):
        DensityModel.load(path)
    write_container(path, document | {"schema": models.SCHEMA_1}, arrays)
    old = DensityModel.load(path)
    assert (old.rule, old.basis, old.sums.tolist()) == ("density", None, model.sums.tolist())
    with pytest.raises(InvalidInputError, match="rule='mean' belongs to separate labels"):
        dataclasses.replace(model, rule="mean")
