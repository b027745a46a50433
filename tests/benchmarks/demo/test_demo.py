"""The demonstration with few users and few classes: same story, same files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import benchmarks.demo.__main__
from accounting import InvalidInputError, Plan
from accounting.composition import LADDER
from benchmarks.demo import DemoSettings, run_demo
from benchmarks.demo.__main__ import DEFAULT_OUTPUT, main
from benchmarks.demo.data import simulate
from benchmarks.demo.run import OWN_FILES
from benchmarks.demo.summary import Outcome
from privkde import PrivateClassifier
from privkde.learning.scoring import clopper_pearson
from privkde.protocol.model import DensityModel
from privkde.storage.files import whole_folder
from tests.plans import made_once
from tests.privkde.cli import test_command_line

SMALL = DemoSettings(n_users=900, n_classes=3, n_test=60, n_gallery=30, epsilon=4.0, repetitions=64)
SEEDED = replace(SMALL, insecure_seed=11)
SECTIONS = (
    "promise", "views", "plan", "accuracy", "predictions", "confusion", "decoding", "profile", "timings", "contract",
    "reproduce",
)  # fmt: skip
NUMBER, WHOLE = (int, float), int
ACCURACY = {"accuracy": NUMBER, "correct": WHOLE, "total": WHOLE, "low": NUMBER, "high": NUMBER, "level": NUMBER}
PLAN = {
    "accountant": str,
    "flip_probability": NUMBER,
    "bitsum_rmse": NUMBER,
    "predicted_rmse": NUMBER,
    "messages_per_user": NUMBER,
    "ladder": dict.fromkeys(LADDER, (int, float, type(None))),
}
SCHEMA = {
    "schema": str,
    "version": str,
    "private": bool,
    "seeds": {"insecure_seed": (int, type(None)), "public_seed": str, "data_seed": str},
    "data": {
        "source": str,
        "simulated_users": WHOLE,
        "source_scans": WHOLE,
        "test_scans": WHOLE,
        "gallery_scans": WHOLE,
        "dim": WHOLE,
        "classes": WHOLE,
    },
    "promises": [{"epsilon": NUMBER, "delta": NUMBER, "adjacency": str, "view": str}],
    "plan": PLAN,
    "paper": {"bandwidth": NUMBER, "repetitions": WHOLE, "label_epsilon": NUMBER, "plans": [PLAN]},
    "accuracies": dict.fromkeys(("exact", "central", "shuffled", "paper", "local"), NUMBER),
    "methods": [{"name": str, "title": str, "protects": bool, **ACCURACY}],
    "classes": [{"class": WHOLE, "estimated_users": NUMBER, "terms": [{"word": str, "score": NUMBER}]}],
    "confusion": [[WHOLE]],
    "timings": dict,
    "files": [str],
}


def run(settings: DemoSettings, folder: Path) -> Outcome:
    return run_demo(settings, folder, console=Console(file=io.StringIO()))


@pytest.fixture(scope="module", autouse=True)
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "seeded"
    run(SEEDED, folder)
    return folder


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "secret"
    run(SMALL, folder)
    return folder


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    return test_command_line.refuse(capsys, *arguments, command=main)


def summary(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def fits(value: object, schema: Any) -> bool:
    """Whether a JSON value has exactly the described shape."""
    if isinstance(schema, dict):
        return (
            isinstance(value, dict) and value.keys() == schema.keys() and all(fits(value[k], schema[k]) for k in schema)
        )
    if isinstance(schema, list):
        return isinstance(value, list) and len(value) > 0 and all(fits(one, schema[0]) for one in value)
    return isinstance(value, schema) and (schema is bool or not isinstance(value, bool))


def test_summary_keeps_its_schema(seeded: Path) -> None:
    found = summary(seeded)
    assert fits(found, SCHEMA)
    assert not fits(found | {"private": 1}, SCHEMA)
    assert not fits(found | {"methods": []}, SCHEMA)
    assert found["schema"] == "privkde.demo/2"
    assert found["files"] == sorted(path.name for path in seeded.iterdir())
    assert [one["name"] for one in found["methods"]] == ["exact", "central", "shuffled", "paper", "local"]
    assert found["accuracies"] == {one["name"]: one["accuracy"] for one in found["methods"]}
    assert all(seconds >= 0.0 for seconds in found["timings"].values())
    assert np.sum(found["confusion"]) == SMALL.n_test
    for one in found["methods"]:
        assert one["accuracy"] == one["correct"] / one["total"]
        assert (one["low"], one["high"]) == clopper_pearson(one["correct"], one["total"], 0.95)


def test_results_come_from_the_saved_model(seeded: Path) -> None:
    """Recomputed from the files alone: accuracy, confusion, plans, terms, reported counts."""
    found = summary(seeded)
    classifier = PrivateClassifier.load(seeded / "model")
    with np.load(seeded / "public.npz") as public:
        predicted = classifier.predict(public["X_test"])
        terms = classifier.decode(public["X"], public["words"].tolist(), contrast=True)
        truth = public["y_test"]
    shuffled = next(one for one in found["methods"] if one["name"] == "shuffled")
    assert shuffled["correct"] == int(np.sum(predicted == truth))
    assert shuffled["correct"] > SMALL.n_test // 2
    counts = np.zeros((SMALL.n_classes,) * 2, int)
    np.add.at(counts, (truth, predicted), 1)
    assert found["confusion"] == counts.tolist()
    for one in found["classes"]:
        assert one["estimated_users"] == classifier.class_sizes_[one["class"]]
        assert [term["word"] for term in one["terms"]] == terms[one["class"]]
    written = Plan.from_json(json.loads((seeded / "plan.json").read_text(encoding="utf-8")))
    assert written.parameters == classifier.plan_.parameters
    assert found["plan"]["flip_probability"] == classifier.plan_.parameters["flip_probability"]


def test_one_total_for_all_that_protect(seeded: Path) -> None:
    """Scan and digit cost ε together here, and no more than ε in two parts in the paper's protocol."""
    found = summary(seeded)
    promised = {(one["epsilon"], one["delta"], one["adjacency"]) for one in found["promises"] if one["view"] != "local"}
    assert promised == {(SMALL.epsilon, SMALL.delta, "replace-one")}
    paper = found["paper"]
    assert 0.0 < paper["label_epsilon"] < SMALL.epsilon
    assert len(paper["plans"]) == SMALL.n_classes
    assert all(plan["accountant"] == "paper" for plan in paper["plans"])
    assert all(plan["flip_probability"] > found["plan"]["flip_probability"] for plan in paper["plans"])


class Page(HTMLParser):
    """What a page refers to, and what it is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.sections: list[str | None] = []
        self.identifiers: list[str] = []
        self.silent_pictures = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.references += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href", "srcset")]
        self.identifiers += [value for key, value in attrs if key == "id" and value]
        if tag == "section":
            self.sections.append(named.get("id"))
        self.silent_pictures += (tag == "img" and not named.get("alt")) or (
            tag == "svg" and not named.get("aria-label")
        )


@pytest.mark.parametrize("name", ["seeded", "secret"])
def test_page_needs_nothing_but_itself(request: pytest.FixtureRequest, name: str) -> None:
    text = (request.getfixturevalue(name) / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert tuple(page.sections) == SECTIONS
    assert page.references
    (planner,) = [one for one in page.references if not one.startswith(("data:image/png;base64,", "#"))]
    assert planner.startswith("http://127.0.0.1:8000/#users=")
    assert "&labels=joint&classes=" in planner
    assert text.count("http:") == 1  # a link to the reader's own machine
    assert "https:" not in text
    assert "@import" not in text
    assert {match for match in re.findall(r"url\(([^)]*)\)", text) if not match.startswith("#")} == set()
    assert len(page.identifiers) == len(set(page.identifiers))
    assert {target[1:] for target in re.findall(r"#[\w-]+(?=\))", text)} <= set(page.identifiers)
    assert page.silent_pictures == 0
    assert "The users are simulated" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"\{\{|\{%|NumPy|np\.", text.replace("import numpy as np", "").replace("np.load", ""))


def without_times(folder: Path) -> dict[str, Any]:
    """Every file of the folder, with the times taken out of the page and the summary."""
    content: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    content["summary.json"] = summary(folder) | {"timings": None}
    page = content["index.html"].decode()
    content["index.html"] = re.sub(r'<section id="timings">.*?</section>', "", page, flags=re.DOTALL)
    return content


def test_a_seeded_run_is_reproducible_and_marked(seeded: Path, tmp_path: Path) -> None:
    run(SEEDED, tmp_path / "again")
    assert without_times(tmp_path / "again") == without_times(seeded)
    found = summary(seeded)
    assert found["private"] is False
    assert found["seeds"]["insecure_seed"] == 11
    assert not DensityModel.load(seeded / "model").private
    assert "<b>Not private.</b>" in (seeded / "index.html").read_text(encoding="utf-8")


def test_a_secret_run_is_private_and_different(seeded: Path, secret: Path) -> None:
    found = summary(secret)
    assert found["private"] is True
    assert found["seeds"]["insecure_seed"] is None
    assert found["seeds"]["public_seed"] != summary(seeded)["seeds"]["public_seed"]
    model = DensityModel.load(secret / "model")
    assert model.private
    assert not np.array_equal(model.sums, DensityModel.load(seeded / "model").sums)
    assert "not private" not in (secret / "index.html").read_text(encoding="utf-8").lower()


def test_users_are_made_from_scans_that_are_not_held_out() -> None:
    data = simulate(SMALL)
    held_out = {*data.test.numbers.tolist(), *data.gallery.numbers.tolist()}
    assert len(held_out) == SMALL.n_test + SMALL.n_gallery
    assert held_out.isdisjoint(data.users.numbers.tolist())
    norms = np.linalg.norm(data.users.vectors(), axis=1)
    np.testing.assert_allclose(norms, 1.0, atol=1e-6)
    assert data.users.images.min() >= 0.0
    np.testing.assert_array_equal(simulate(SMALL).users.images, data.users.images)


def test_too_many_held_out_scans_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="hold out fewer"):
        simulate(replace(SMALL, n_test=1700))


def test_a_failed_run_leaves_everything_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    with whole_folder(target, OWN_FILES) as folder:
        (folder / "model").write_text("old")

    def fail() -> None:
        with whole_folder(target, OWN_FILES) as folder:
            (folder / "model").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (target / "model").read_text() == "old"
    with whole_folder(target, OWN_FILES) as folder:
        (folder / "summary.json").write_text("newer")
    assert [path.name for path in target.iterdir()] == ["summary.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_the_command_runs_the_default_story(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[DemoSettings, Path]] = []
    monkeypatch.setattr(benchmarks.demo.__main__, "run_demo", lambda settings, output: asked.append((settings, output)))
    assert main(["--output", str(tmp_path / "x"), "--insecure-seed", "4"]) == 0
    assert main([]) == 0
    assert asked == [
        (DemoSettings(insecure_seed=4), tmp_path / "x"),
        (DemoSettings(), DEFAULT_OUTPUT),
    ]


def test_folders_with_other_files_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine")
    assert "'diary.txt', which would be lost" in refuse(capsys, "--output", str(tmp_path))
    assert "is a file" in refuse(capsys, "--output", str(tmp_path / "diary.txt"))
    assert "does not exist" in refuse(capsys, "--output", str(tmp_path / "a" / "b"))
    assert "insecure_seed=-1" in refuse(capsys, "--output", str(tmp_path / "x"), "--insecure-seed", "-1")
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


def test_without_matplotlib_it_fails_before_any_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("privkde.display.figures.find_spec", lambda _: None)
    assert "pip install 'privkde[report]'" in refuse(capsys, "--output", str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []
