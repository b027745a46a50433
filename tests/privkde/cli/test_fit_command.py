"""`privkde fit`, `predict` and `decode` on small files, as a person or a script uses them."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import Plan
from privkde import Announcement, PrivateClassifier, PrivateKDEClassifier, Randomizer
from privkde.cli import main
from privkde.cli.parsing import read_plan
from privkde.engines.local import LocalEngine
from privkde.learning.scoring import measured
from privkde.ledger import Ledger
from privkde.protocol.model import DensityModel
from privkde.storage.packets import write_packets
from tests.plans import made_once
from tests.privkde.cli.test_command_line import refuse

USERS, DIM = 600, 4
CENTERS = {"north": np.array([0.0, 0.8, 0.0, 0.0]), "south": np.array([0.0, -0.8, 0.0, 0.0])}
PLAN = [
    "plan", "--users", str(USERS), "--dim", str(DIM), "--repetitions", "24", "--epsilon", "4", "--delta", "1e-5",
    "--bitsum", "poisson", "--accountant", "pld",
]  # fmt: skip
CLASSES = ["--classes", "2", "--epsilon", "8", "--label-epsilon", "4"]

Arrays = dict[str, NDArray[Any]]
NOWHERE = np.full(USERS, 0x110005, "<u4").view("<U1")
"""Texts of a character that does not exist."""


def arrays(seed: int = 5) -> Arrays:
    """Two clouds of users, queries from the same clouds, and a vocabulary with one term in each."""
    rng = np.random.default_rng(seed)

    def drawn(count: int) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
        labels = np.array(list(CENTERS))[np.arange(count) % 2]
        points = np.stack([CENTERS[label] for label in labels]) + 0.05 * rng.normal(size=(count, DIM))
        return points.astype(np.float32), labels

    x_train, y_train = drawn(USERS)
    x_test, y_test = drawn(50)
    vocabulary = np.stack([*CENTERS.values(), np.array([5.0, 5.0, 5.0, 5.0])]).astype(np.float32)
    words = np.array(["up", "down", "nowhere"])
    return {
        "X_train": x_train, "y_train": y_train, "X_test": x_test, "y_test": y_test, "X": vocabulary, "words": words
    }  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a plan with and one without classes, and a model of each."""
    folder = tmp_path_factory.mktemp("shop")
    np.savez(folder / "data.npz", **arrays())  # type: ignore[arg-type]
    assert main([*PLAN, "--output", str(folder / "density.json")]) == 0
    assert main([*PLAN, *CLASSES, "--output", str(folder / "classes.json")]) == 0
    for name in ("density", "classes"):
        command = fit(folder / "data.npz", folder / f"{name}.json", folder / f"{name}.model", "--insecure-seed", "7")
        assert main(command) == 0
    return folder


@pytest.fixture
def changed(shop: Path, tmp_path: Path) -> Callable[..., Path]:
    """Data in which some arrays are replaced, or left out where None."""

    def write(**replaced: NDArray[Any] | None) -> Path:
        kept = {name: value for name, value in (arrays() | replaced).items() if value is not None}
        np.savez(tmp_path / "changed.npz", **kept)  # type: ignore[arg-type]
        return tmp_path / "changed.npz"

    return write


def out(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == 0
    return capsys.readouterr().out


def fit(data: Path, plan: Path, model: Path, *extra: str) -> list[str]:
    declared = ["--classes", "north,south"] if plan.name == "classes.json" else []
    return ["fit", str(data), "--plan", str(plan), "-o", str(model), *declared, *extra]


def test_classifier_from_file_to_words(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    model, data, table = shop / "classes.model", shop / "data.npz", tmp_path / "predictions.csv"
    text = out(capsys, "predict", model, data, "-o", table)
    with table.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["row", "prediction"]
    stored = arrays()
    accuracy = measured(np.array([row[1] for row in rows]), stored["y_test"])
    assert accuracy.value > 0.9
    assert str(accuracy) in text
    fitted = PrivateKDEClassifier.load(model)
    assert [row[1] for row in rows] == fitted.predict(stored["X_test"]).tolist()
    document = json.loads(out(capsys, "decode", model, data, "-k", "1", "--json"))
    found = {one["class"]: one["terms"][0]["word"] for one in document["classes"]}
    assert found == {"north": "up", "south": "down"}
    assert document["private"] is False
    assert "up" in out(capsys, "decode", model, data, "--contrast")


def test_predictions_as_arrays(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    model, target = shop / "classes.model", tmp_path / "predictions.npz"
    out(capsys, "predict", model, shop / "data.npz", "--rule", "mean", "-o", target)
    fitted = PrivateKDEClassifier.load(model).set_params(rule="mean")
    with np.load(target) as stored:
        np.testing.assert_array_equal(stored["scores"], fitted.scores(arrays()["X_test"]))
        np.testing.assert_array_equal(stored["classes"][stored["scores"].argmax(axis=1)], stored["prediction"])


def test_a_model_keeps_its_rule(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    fitted = PrivateKDEClassifier.load(shop / "classes.model").set_params(rule="mean")
    fitted.save(tmp_path / "model")
    out(capsys, "predict", tmp_path / "model", shop / "data.npz", "-o", tmp_path / "predictions.npz")
    with np.load(tmp_path / "predictions.npz") as stored:
        np.testing.assert_array_equal(stored["scores"], fitted.scores(arrays()["X_test"]))


def asked(shop: Path, model: Path, *options: str) -> list[str]:
    """A fit without a plan, of few messages."""
    command = ["fit", str(shop / "data.npz"), "-o", str(model), "--classes", "north,south", "--insecure-seed", "7"]
    return [*command, *options]


def test_without_a_plan_the_default_is_fitted(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    model, target = tmp_path / "model", tmp_path / "predictions.npz"
    text = out(capsys, *asked(shop, model, "--epsilon", "2", "--max-messages", "400"))
    assert "(2, 1e-6)-differential privacy for a whole record: features and label, in one collection of 600" in text
    assert "discriminant: second moments cost" in text
    assert text.endswith(f"written: {model}\n")
    assert "accuracy" in out(capsys, "predict", model, shop / "data.npz", "-o", target)
    fitted = PrivateClassifier.load(model)
    with np.load(target) as stored:
        np.testing.assert_array_equal(stored["scores"], fitted.scores(arrays()["X_test"]))
        assert np.mean(stored["prediction"] == arrays()["y_test"]) > 0.9
    document = json.loads(out(capsys, "decode", model, shop / "data.npz", "-k", "1", "--json"))
    assert {one["class"]: one["terms"][0]["word"] for one in document["classes"]} == {"north": "up", "south": "down"}
    refused = refuse(capsys, "predict", str(model), str(shop / "data.npz"), "--rule", "mean")
    assert "ranked by discriminant; leave it out" in refused


def test_a_plan_of_the_default_is_kept(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    plan, model = tmp_path / "plan.json", tmp_path / "model"
    request = ["--users", str(USERS), "--dim", str(DIM), "--classes", "2", "--epsilon", "2", "--delta", "1e-6"]
    out(capsys, "plan", *request, "--max-messages", "400", "--output", plan)
    out(capsys, *asked(shop, model, "--plan", str(plan)))
    published = DensityModel.load(model)
    assert published.plans[0].sha256() == Plan.from_json(json.loads(plan.read_text(encoding="utf-8"))).sha256()
    assert published.ranked_by == "discriminant"


def test_a_public_basis_from_a_file(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    plan, model, basis = tmp_path / "plan.json", tmp_path / "model", str(tmp_path / "public.npz")
    np.savez(basis, basis=np.eye(DIM)[:, 1:3], flat=np.ones(DIM))
    out(capsys, *asked(shop, model, "--epsilon", "2", "--max-messages", "400", "--basis", basis))
    assert "projected from 4 by a public basis" in out(capsys, *asked(shop, model, "--epsilon", "2", "--basis", basis))
    assert "accuracy" in out(capsys, "predict", model, shop / "data.npz")
    request = ["--users", str(USERS), "--classes", "2", "--epsilon", "2", "--delta", "1e-6", "--max-messages", "400"]
    out(capsys, "plan", *request, "--dim", "2", "--output", plan)
    out(capsys, *asked(shop, model, "--plan", str(plan), "--basis", basis))
    published = DensityModel.load(model)
    assert published.basis is not None
    assert (published.basis.shape, published.announcements[0].plan.request.dim) == ((DIM, 2), 2)
    assert "the plan is for dim=2" in refuse(capsys, *asked(shop, model, "--plan", str(plan)))
    out(capsys, "plan", *request, "--dim", str(DIM), "--output", plan)
    refused = refuse(capsys, *asked(shop, model, "--plan", str(plan), "--basis", basis))
    assert "projected on --basis, has dim=2" in refused
    for options, told in (
        (["--epsilon", "8", "--separate-labels"], "--basis belong to joint labels"),
        (["--plan", str(shop / "classes.json")], "--basis was given and the plan is not for joint labels"),
        (["--plan", str(shop / "density.json")], "--basis was given and the plan is not for joint labels"),
    ):
        assert told in refuse(capsys, *asked(shop, model, *options, "--basis", basis))
    assert "no array 'basis'" in refuse(
        capsys, *asked(shop, model, "--epsilon", "2", "--basis", str(shop / "data.npz"))
    )


@pytest.mark.parametrize("options", [["--separate-labels"], ["--label-epsilon", "4"]])
def test_the_papers_protocol_is_asked_for(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path, options: list[str]
) -> None:
    text = out(capsys, *asked(shop, tmp_path / "model", "--epsilon", "8", "--delta", "1e-5", *options))
    assert "(8, 1e-5)-differential privacy for a whole record: features and label, in a report of the label" in text
    assert PrivateKDEClassifier.load(tmp_path / "model").epsilon == 8.0
    joint = asked(shop, tmp_path / "other", "--epsilon", "8", "--model", "mean", *options)
    assert "belong to joint labels" in refuse(capsys, *joint)


def test_a_fit_needs_a_promise(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    assert "--epsilon --plan is required" in refuse(capsys, *asked(shop, tmp_path / "model"))
    assert "model='best'" in refuse(capsys, *asked(shop, tmp_path / "model", "--epsilon", "1", "--model", "best"))
    assert not (tmp_path / "model").exists()


def test_density_from_file_to_words(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    model, data, target = shop / "density.model", shop / "data.npz", tmp_path / "density.npz"
    text = out(capsys, "predict", model, data, "--vectors", "X", "-o", target)
    assert "accuracy" not in text
    with np.load(target) as stored:
        np.testing.assert_array_equal(stored["density"], DensityModel.load(model).densities(arrays()["X"])[:, 0])
        assert min(stored["density"][:2]) > stored["density"][2]
    document = json.loads(out(capsys, "decode", model, data, "--json"))
    assert {term["word"] for term in document["classes"][0]["terms"][:2]} == {"up", "down"}


def test_a_seed_is_reproducible_and_said_to_be_not_private(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path
) -> None:
    command = fit(shop / "data.npz", shop / "classes.json", tmp_path / "again.model", "--insecure-seed", "7")
    text = out(capsys, *command)
    assert text.startswith("NOT PRIVATE")
    assert "no protection" in text
    assert (tmp_path / "again.model").read_bytes() == (shop / "classes.model").read_bytes()


@pytest.mark.parametrize("name", ["density", "classes"])
def test_without_a_seed_the_promise_is_the_plans(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path, name: str
) -> None:
    text = out(capsys, *fit(shop / "data.npz", shop / f"{name}.json", tmp_path / "model", "--bandwidth", "0.9"))
    assert "NOT PRIVATE" not in text
    model = DensityModel.load(tmp_path / "model")
    assert model.private
    assert sum(model.n_users) == USERS
    assert model.announcements[0].bandwidth == 0.9
    if name == "density":
        assert text.startswith("(4, 1e-5)-differential privacy for a whole vector, in one collection of 600 users.")
        assert json.loads(model.plans[0].dumps()) == json.loads((shop / "density.json").read_text())
    else:
        assert [plan.request.users for plan in model.plans] == list(model.n_users)
        assert text.startswith("(8, 1e-5)-differential privacy for a whole record: features and label, in a report")


def test_one_release_of_a_schedule_has_its_plan(
    capsys: pytest.CaptureFixture[str], shop: Path, changed: Callable[..., Path], tmp_path: Path
) -> None:
    """Also in a week in which fewer came; with separate labels every week would have plans of its own."""
    weekly, model = tmp_path / "weekly.json", tmp_path / "week.model"
    joint = ["--classes", "2", "--kernel", "gaussian", "--labels", "joint", "--releases", "3", "--dropout", "10%"]
    assert main([*PLAN, *joint, "--output", str(weekly)]) == 0
    stored = arrays()
    few = changed(X_train=stored["X_train"][:560], y_train=stored["y_train"][:560])
    planned = Plan.from_json(json.loads(weekly.read_text(encoding="utf-8")))
    for data in (shop / "data.npz", few):
        out(capsys, *fit(data, weekly, model, "--insecure-seed", "7"))
        published = DensityModel.load(model)
        assert [plan.sha256() for plan in published.plans] == [planned.sha256()]
        assert "in each of 3 releases" in str(published.contract)
    assert main([*PLAN, *CLASSES, "--label-epsilon", "1", "--releases", "3", "--output", str(weekly)]) == 0
    capsys.readouterr()
    assert "plan with --labels joint" in refuse(capsys, *fit(shop / "data.npz", weekly, model))


def test_every_single_message_can_be_sent(capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path) -> None:
    command = fit(shop / "data.npz", shop / "density.json", tmp_path / "model", "--path", "faithful")
    out(capsys, *command, "--public-seed", "ab" * 16)
    assert DensityModel.load(tmp_path / "model").announcements[0].public_seed == "ab" * 16


def test_small_classes_are_refused_or_excluded(
    capsys: pytest.CaptureFixture[str], changed: Callable[..., Path], tmp_path: Path
) -> None:
    labels = arrays()["y_train"].copy()
    labels[:4] = "west"
    data, plan, model = changed(y_train=labels), tmp_path / "plan.json", tmp_path / "model"
    request = [
        *PLAN,
        "--classes",
        "3",
        "--epsilon",
        "12",
        "--label-epsilon",
        "8",
        "--min-users",
        "150",
        "--output",
        str(plan),
    ]
    assert main(request) == 0
    capsys.readouterr()
    command = fit(data, plan, model, "--insecure-seed", "3", "--classes", "north,south,west")
    assert "class 'west'" in refuse(capsys, *command)
    assert not model.exists()
    assert main([*command, "--small-classes", "exclude"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("privkde: warning: excluded: class 'west'")
    assert "west" not in captured.out
    assert DensityModel.load(model).labels == ("north", "south")


def test_classes_that_are_not_declared_are_said_to_be_read_off(
    capsys: pytest.CaptureFixture[str], shop: Path, changed: Callable[..., Path], tmp_path: Path
) -> None:
    plan, model = shop / "classes.json", tmp_path / "model"
    undeclared = ["fit", str(shop / "data.npz"), "--plan", str(plan), "-o", str(model)]
    assert main(undeclared) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("privkde: warning: classes were not declared (classes=, --classes)")
    assert not DensityModel.load(model).classes_declared
    undeclared[1] = str(changed(y_train=np.arange(USERS) % 3))
    assert "the plan is for 2 classes and the labels hold 3" in refuse(capsys, *undeclared)
    declared = fit(shop / "data.npz", plan, model)
    assert main(declared) == 0
    assert capsys.readouterr().err == ""
    assert DensityModel.load(model).classes_declared


@pytest.mark.parametrize(
    ("labels", "classes", "published"),
    [
        (np.arange(USERS) % 2, "2", (0, 1)),
        (np.zeros(USERS, np.int64), "2", (0, 1)),
        (np.where(np.arange(USERS) % 2, 7, -3), "7, -3", (-3, 7)),
        (np.where(np.arange(USERS) % 2, 0.5, 2.0).astype("U3"), "0.5,2.0", ("0.5", "2.0")),
        (np.zeros(USERS), "0,1", (0.0, 1.0)),
        (np.arange(USERS) % 2 == 0, "0,1", (0, 1)),
    ],
    ids=str,
)
def test_classes_are_declared_by_name_or_number(
    *, shop: Path, changed: Callable[..., Path], labels: NDArray[Any], classes: str, published: tuple[Any, ...]
) -> None:
    data = changed(y_train=labels)
    model = data.parent / "model"
    assert main([*fit(data, shop / "classes.json", model), f"--classes={classes}"]) == 0
    assert DensityModel.load(model).labels == published


def damaged_rows() -> NDArray[np.float32]:
    rows = arrays()["X_train"].copy()
    rows[17, 2] = np.nan
    return rows


@pytest.mark.parametrize(
    ("replaced", "plan", "words"),
    [
        ({"X_train": None}, "classes", "has no array 'X_train'"),
        ({"y_train": None}, "classes", "has no array 'y_train'"),
        ({"X_train": damaged_rows()}, "classes", "row 17 has an entry that is NaN"),
        ({"X_train": damaged_rows()}, "density", "row 17 has an entry that is NaN"),
        ({"X_train": arrays()["X_train"][:, :3]}, "classes", "the plan is for dim=4 and array 'X_train'"),
        ({"X_train": arrays()["X_train"][:90]}, "density", "the plan is for 600 users and array 'X_train'"),
        ({"X_train": np.zeros((USERS, DIM), np.int64)}, "density", "vectors are real"),
        ({"y_train": arrays()["y_train"][:90]}, "classes", "labels of shape (90,) for 600 users"),
        ({"y_train": np.arange(USERS) % 3}, "classes", "--classes holds texts and the labels are numbers"),
        ({"y_train": np.where(np.arange(USERS) == 9, "west", arrays()["y_train"])}, "classes", "the label of row 9 is"),
        ({"y_train": arrays()["y_train"].astype(object)}, "classes", "has type object; give numbers or texts"),
        ({"y_train": arrays()["y_train"].astype(bytes)}, "classes", "labels have type |S5; give texts"),
        ({"y_train": np.arange(USERS) + 0.123j}, "classes", "has type complex128; give numbers or texts"),
        ({"X_train": np.full((USERS, DIM), "secret")}, "density", "type <U6; vectors are real"),
    ],
)
def test_bad_data_are_named_and_nothing_is_written(
    *,
    capsys: pytest.CaptureFixture[str],
    shop: Path,
    changed: Callable[..., Path],
    replaced: dict[str, Any],
    plan: str,
    words: str,
) -> None:
    data = changed(**replaced)
    assert words in refuse(capsys, *fit(data, shop / f"{plan}.json", data.parent / "model"))
    assert [path.name for path in data.parent.iterdir()] == [data.name]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--plan", "missing.json"], "No such file"),
        (["--plan", "data.npz"], "is not JSON"),
        (["--plan", "density.model"], "is not JSON"),
        (["--output", "missing/model"], "does not exist"),
        (["--output", "."], "is a folder"),
        (["--bandwidth", "-1"], "bandwidth=-1.0"),
        (["--bandwidth", "wide"], "must be a number"),
        (["--projection", "5"], "projection=5"),
        (["--public-seed", "12"], "public_seed='12'"),
        (["--insecure-seed", "-1"], "insecure_seed=-1"),
        (["--outside", "ignore"], "--outside"),
        (["--path", "short"], "--path"),
        (["--labels", "y_train"], "the plan has no classes"),
        (["--classes", "north,south"], "--classes declares 2 classes and the plan is for no classes"),
        (["--classes", "north"], "must be different names"),
        (["--classes", "north,"], "must be different names"),
        (["--classes", "north,south,north"], "must be different names"),
        (["--epsilon", "1"], "not allowed with argument --plan"),
        (["--delta", "1e-6"], "--delta was given beside --plan"),
        (["--separate-labels"], "--separate-labels was given beside --plan"),
        (["--vectors", "Y"], "has no array 'Y'; it has X_train"),
        (["--vektors", "Y"], "Did you mean --vectors"),
    ],
)
def test_bad_options_of_fit(
    capsys: pytest.CaptureFixture[str],
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(shop)
    before = sorted(shop.iterdir())
    assert words in refuse(capsys, "fit", "data.npz", "--plan", "density.json", "--output", "new.model", *extra)
    assert sorted(shop.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict missing.model data.npz", "No such file"),
        ("predict data.npz data.npz", "not a privkde file"),
        ("predict classes.model missing.npz", "No such file"),
        ("predict classes.model classes.json", "not an intact .npz archive"),
        ("predict classes.model data.npz --labels truth", "has no array 'truth'"),
        ("predict classes.model data.npz --labels y_train", "50 predictions for labels of shape (600,)"),
        ("predict classes.model data.npz --rule best", "--rule"),
        ("predict classes.model data.npz -o predictions.txt", "must end in .csv or .npz"),
        ("predict classes.model data.npz -o missing/predictions.csv", "does not exist"),
        ("predict classes.model data.npz -o data.npz", "is named for something else"),
        ("predict classes.model data.npz -o classes.model", "is named for something else"),
        ("predict density.model data.npz --rule mean", "has no classes"),
        ("decode classes.model data.npz -k 0", "k=0"),
        ("decode classes.model data.npz --words X", "give words"),
        ("decode classes.model data.npz --words y_test", "50 words for 3 vectors"),
        ("decode classes.model data.npz --vectors words", "vectors are real"),
    ],
)
def test_bad_options_of_predict_and_decode(
    capsys: pytest.CaptureFixture[str], shop: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: str
) -> None:
    monkeypatch.chdir(shop)
    before = sorted(shop.iterdir())
    assert words in refuse(capsys, *command.split())
    assert sorted(shop.iterdir()) == before


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"X_test": arrays()["X_test"][:, :3]}, "(50, 3)"),
        ({"X_test": arrays()["X_test"][:0]}, "has no rows"),
        ({"X_test": np.full((2, DIM), np.inf, np.float32)}, "row 0 has an entry"),
        ({"y_test": np.arange(50)}, "cannot be compared"),
        ({"y_test": np.zeros(50, "M8[D]")}, "give numbers or texts"),
        ({"y_test": NOWHERE[:50]}, "characters that do not exist"),
    ],
)
def test_bad_queries(
    capsys: pytest.CaptureFixture[str],
    shop: Path,
    changed: Callable[..., Path],
    replaced: dict[str, Any],
    words: str,
) -> None:
    data = changed(**replaced)
    target = data.parent / "predictions.csv"
    assert words in refuse(capsys, "predict", str(shop / "classes.model"), str(data), "-o", str(target))
    assert not target.exists()


def test_labels_are_optional(capsys: pytest.CaptureFixture[str], shop: Path, changed: Callable[..., Path]) -> None:
    text = out(capsys, "predict", shop / "classes.model", changed(y_test=None))
    assert "accuracy" not in text
    assert "north" in text


@pytest.mark.parametrize("command", ["predict", "decode"])
@pytest.mark.parametrize("damage", ["truncated", "tampered"])
def test_damaged_models_are_refused(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path, command: str, damage: str
) -> None:
    content = bytearray((shop / "classes.model").read_bytes())
    if damage == "truncated":
        del content[len(content) // 2 :]
    else:
        with np.load(shop / "classes.model") as stored:
            parts = dict(stored)
        parts["sums"] = parts["sums"] + 1.0
        np.savez(tmp_path / "tampered.npz", **parts)
        content = bytearray((tmp_path / "tampered.npz").read_bytes())
    (tmp_path / "model").write_bytes(content)
    assert "altered" in refuse(capsys, command, str(tmp_path / "model"), str(shop / "data.npz"))


# Spending is part of releasing ----------------------------------------------------------------------------------------


@pytest.fixture
def budgets(tmp_path: Path) -> Path:
    """A ledger with a budget that pays for one collection, and one that pays for none."""
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.create("enough", epsilon=4.0, delta=1e-5, composition="basic")
        ledger.create("little", epsilon=1.0, delta=1e-5)
    return tmp_path / "ledger"


def charged(path: Path, budget: str) -> int:
    with Ledger.open(path, create=False) as ledger:
        return len(ledger.history(budget))


def test_fit_charges_once_and_writes_nothing_without_budget(
    shop: Path, budgets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    command = fit(shop / "data.npz", shop / "density.json", model, "--ledger", str(budgets))
    before = sorted(tmp_path.iterdir())
    assert main([*command, "--budget", "little"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, sorted(tmp_path.iterdir())) == ("", before)
    assert captured.err.startswith("privkde: refused: budget 'little' is exceeded")
    assert main([*command, "--budget", "enough", "--key", "week 1"]) == 0
    first = model.read_bytes()
    for key in ("week 1", "week 2"):  # fresh noise for a charge that was used, and a charge that does not fit
        assert main([*command, "--budget", "enough", "--key", key]) == 1
    assert model.read_bytes() == first
    assert (charged(budgets, "enough"), charged(budgets, "little")) == (1, 0)
    capsys.readouterr()
    assert "no budget 'none'" in refuse(capsys, *command, "--budget", "none")
    assert "belong to --budget" in refuse(capsys, *command, "--key", "week 1")
    assert "NOT PRIVATE" in refuse(capsys, *command, "--budget", "enough", "--insecure-seed", "1")


def test_a_fit_that_ends_between_charge_and_publication_is_repeated_without_a_charge(
    shop: Path, budgets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    command = fit(shop / "data.npz", shop / "density.json", model, "--ledger", str(budgets))
    command += ["--budget", "enough", "--key", "week 1"]
    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "play", interrupted)
        assert main(command) == 130
    assert (charged(budgets, "enough"), model.exists()) == (1, False)
    assert main(command) == 0
    assert (charged(budgets, "enough"), model.exists()) == (1, True)


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_one_report_too_many_spends_nothing(
    shop: Path, budgets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The attack: a stranger's packet was counted and charged for, and then nothing could be published any more."""
    public = Announcement(plan=read_plan(shop / "density.json"), public_seed="0" * 32)
    (tmp_path / "a.json").write_text(json.dumps(public.to_json()), encoding="utf-8")
    for name, users in (("honest", USERS), ("stranger", 1)):
        write_packets(tmp_path / f"{name}.packets", Randomizer(public).packets(np.zeros((users, DIM))))
    count = ["--announcement", str(tmp_path / "a.json"), "-o", str(tmp_path / "model"), "--ledger", str(budgets)]
    count += ["--budget", "enough"]
    both = ["collect", str(tmp_path / "honest.packets"), str(tmp_path / "stranger.packets"), *count]
    assert "601 reports came and 600 users were planned for; nothing was counted" in refuse(capsys, *both)
    assert charged(budgets, "enough") == 0
    assert main(["collect", str(tmp_path / "honest.packets"), *count]) == 0
    capsys.readouterr()
    assert charged(budgets, "enough") == 1
    (tmp_path / "model").unlink()
    assert "601 reports came" in refuse(capsys, *both)


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_packets_take_no_place_of_the_ledger(
    shop: Path, budgets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    """A regression: the command made a folder in the place of its ledger's journal, and then refused the ledger."""
    command = ["collect", str(shop / "data.npz"), "--plan", str(shop / "density.json"), "-o", str(tmp_path / "model")]
    command += ["--packets", f"{budgets}{ending}", "--ledger", str(budgets), "--budget", "enough"]
    before = sorted(budgets.parent.iterdir())
    assert "is named for something else" in refuse(capsys, *command)
    assert sorted(budgets.parent.iterdir()) == before


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no such device")
def test_devices_are_not_read(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have no end."""
    zero = Path("/dev/zero")
    for command in (fit(zero, shop / "density.json", tmp_path / "model"), ["predict", str(zero), str(zero)]):
        assert "'/dev/zero' is a device, not a file; name a file." in refuse(capsys, *command)


@pytest.mark.parametrize("other", ["ledger", "data", "plan", "key"])
def test_a_model_takes_no_other_files_place(
    shop: Path, budgets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    """A regression: the model replaced the ledger that had paid for it."""
    named = {"ledger": budgets, "data": shop / "data.npz", "plan": shop / "density.json", "key": tmp_path / "key"}
    named["key"].write_text("k" * 40, encoding="utf-8")
    before = named[other].read_bytes()
    command = fit(named["data"], named["plan"], named[other], "--ledger", str(budgets), "--budget", "enough")
    assert "is named for something else" in refuse(capsys, *command, "--ledger-key", str(named["key"]))
    assert named[other].read_bytes() == before


def test_a_model_that_cannot_be_written_is_not_paid_for(
    shop: Path, budgets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", full)
    command = fit(shop / "data.npz", shop / "density.json", shop / "elsewhere", "--ledger", str(budgets))
    assert "takes no new files (Read-only file system)" in refuse(capsys, *command, "--budget", "enough")
    assert charged(budgets, "enough") == 0


def test_collect_charges_packets_once_and_writes_nothing_without_budget(
    shop: Path, budgets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect = ["collect", str(shop / "data.npz"), "--plan", str(shop / "density.json"), "--ledger", str(budgets)]
    collect += ["-o", str(tmp_path / "model"), "--packets", str(tmp_path / "sent")]
    before = sorted(tmp_path.iterdir())
    assert main([*collect, "--budget", "little"]) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert main(collect) == 0
    (tmp_path / "model").unlink()
    count = ["collect", str(tmp_path / "sent" / "0" / "*.packets"), "--announcement"]
    count += [str(tmp_path / "sent" / "0" / "announcement.json"), "--ledger", str(budgets)]
    keep = ["--counts", str(tmp_path / "counts"), "-o", str(tmp_path / "model")]
    before = sorted(tmp_path.iterdir())
    assert main([*count, *keep, "--budget", "little"]) == 1
    assert sorted(tmp_path.iterdir()) == before
    for _ in range(2):  # the same packets are the same result
        assert main([*count, *keep, "--budget", "enough"]) == 0
    assert charged(budgets, "enough") == 1
    capsys.readouterr()
    assert "add -o MODEL" in refuse(capsys, *count, "--counts", str(tmp_path / "counts"), "--budget", "enough")


def test_labels_of_a_terminal_are_shown_and_not_obeyed(
    capsys: pytest.CaptureFixture[str], shop: Path, changed: Callable[..., Path]
) -> None:
    """Class names may be anything; what they would do to a terminal is written out instead."""
    names = np.array(["\x1b[31mnorth", "south\n\x9b2J"])
    truth = {name: names[(arrays()[name] == "south").astype(int)] for name in ("y_train", "y_test")}
    data = changed(**truth)
    model = data.parent / "model"
    command = [*fit(data, shop / "classes.json", model)[:-2], "--insecure-seed", "7"]
    assert main(command) == 0
    assert DensityModel.load(model).labels == tuple(names.tolist())
    for arguments in (["predict"], ["decode"], ["decode", "--json"]):
        assert main([arguments[0], str(model), str(data), *arguments[1:]]) == 0
    shown = capsys.readouterr()
    assert all(line.isprintable() for line in (shown.out + shown.err).split("\n"))
    assert "\\x1b[31mnorth" in shown.out
    assert "\\u001b[31mnorth" in shown.out


@pytest.mark.parametrize("kept", [0, 10, 500, -30, -1])
def test_truncated_vectors_are_refused(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path, kept: int
) -> None:
    data = tmp_path / "cut.npz"
    data.write_bytes((shop / "data.npz").read_bytes()[:kept])
    assert "not an intact .npz archive" in refuse(capsys, *fit(data, shop / "density.json", tmp_path / "model"))


@pytest.mark.parametrize("target", ["0/announcement.json", "0/part-000000000000.packets", "0/charged-as.txt", "m.npz"])
def test_a_folder_of_answers_takes_no_model(
    *, shop: Path, budgets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    """The attack: the model took the place of what the folder is continued by, or was in its way."""
    sent = tmp_path / "sent"
    collect = ["collect", str(shop / "data.npz"), "--plan", str(shop / "density.json"), "--packets", str(sent)]
    collect += ["--ledger", str(budgets), "--budget", "enough", "-o"]
    assert "holds answers only" in refuse(capsys, *collect, str(sent / target))
    assert not sent.exists()
    assert charged(budgets, "enough") == 0


def test_labels_and_words_of_characters_that_do_not_exist(
    capsys: pytest.CaptureFixture[str], shop: Path, changed: Callable[..., Path], tmp_path: Path
) -> None:
    """A regression: they ended in a SystemError."""
    data = changed(y_train=NOWHERE, words=NOWHERE[:3])
    assert "do not exist" in refuse(capsys, "fit", str(data), "--epsilon", "8", "-o", str(tmp_path / "model"))
    assert "do not exist" in refuse(capsys, "decode", str(shop / "classes.model"), str(data))


def test_a_basis_that_is_none_is_refused_unread(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "basis.npz", basis=np.zeros((10**6, 1)))
    basis = ["--basis", str(tmp_path / "basis.npz"), "-o", str(tmp_path / "model")]
    monkeypatch.setattr("privkde.storage.datasets.read_plain", lambda _, info: arrays()[info.filename[:-4]])
    told = refuse(capsys, "fit", str(shop / "data.npz"), "--epsilon", "8", "--classes", "north,south", *basis)
    assert f"has shape (1000000, 1) and vectors have {DIM} entries" in told
