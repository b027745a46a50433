"""The files of a report: what a machine reads, what a person reads, and that they agree."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from accounting import InvalidInputError
from tests.plans import plan_for
from tests.verification import stand_ins
from tests.verification.stand_ins import BROKEN, FLIPS
from tests.verification.test_audit import REQUEST, run, runner, tampered
from verification.reporting import page, pdf, registry
from verification.reporting.document import AuditReport
from verification.reporting.markup import Markup, table
from verification.reporting.wording import number, small
from verification.reporting.writing import OWN_FILES, SABOTEURS, write_report

NUMBER, TEXT = (int, float), str
CHECK: dict[str, Any] = {
    "name": TEXT,
    "layer": TEXT,
    "about": TEXT,
    "claim": (str, type(None)),
    "verdict": TEXT,
    "alpha": (*NUMBER, type(None)),
    "power": (*NUMBER, type(None)),
    "smallest_detectable_defect": (*NUMBER, type(None)),
    "seed": int,
    "statistic": (*NUMBER, str, type(None)),
    "bound": (*NUMBER, str, type(None)),
    "seconds": NUMBER,
    "replay": TEXT,
}
SECTIONS = (
    "promise", "trust", "mechanism", "composition", "evidence", "utility", "checks", "saboteurs", "exposure", "limits",
    "repeat",
)  # fmt: skip
REGISTRY = ("basic", "dp_variant", "privacy_loss", "deployment_model", "accounting", "implementation")
MATRIX: dict[str, Any] = {
    "schema": "privkde.saboteurs/1",
    "effort": "quick",
    "checks": ["flips", "drawn"],
    "rows": [
        {
            "name": name,
            "honest": name == "honest",
            "story": f"the story of {name}",
            "plan": "rr",
            "refuted_by": found,
            "outcomes": {"flips": "refuted" if found else "not-refuted", "drawn": "not-applicable"},
        }
        for name, found in (("honest", []), ("<no noise>", ["flips"]), ("half noise", []))
    ],
}


@pytest.fixture(autouse=True)
def stood_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LAYER_MODULES", (stand_ins.__name__,))
    for module in (page, pdf):
        monkeypatch.setattr(module, "find_spec", lambda name: None)


@pytest.fixture
def with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second: only tests that look at them draw them."""
    for module in (page, pdf):
        monkeypatch.setattr(module, "find_spec", find_spec)


def refuted() -> AuditReport:
    return run(tampered(plan_for(**REQUEST), 0.01))


class Page(HTMLParser):
    """What a browser would see."""

    VOID = ("meta", "br", "img", "link", "hr", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_document_has_what_its_schema_says() -> None:
    report = run()
    document = json.loads(report.dumps())
    assert document["schema"] == "privkde.audit/1"
    assert document["verdict"] == "not-refuted"
    assert document["plan_sha256"] == report.plan_sha256
    assert document["plan"] == plan_for(**REQUEST).to_json()
    assert document["seed"] == 7
    assert document["environment"]["packages"]["numpy"]
    assert document["contract"][0] == plan_for(**REQUEST).contract.component
    assert len(document["checks"]) == 3
    for check in document["checks"]:
        for name, kind in CHECK.items():
            assert isinstance(check[name], kind), name


def test_numbers_that_are_not_finite_are_texts() -> None:
    endless = json.loads(run().dumps())["checks"][2]
    assert endless["statistic"] == "-inf"
    assert float(endless["statistic"]) < endless["bound"]


def test_a_refutation_has_its_witness_and_its_replay() -> None:
    (check,) = [one for one in refuted().to_json()["checks"] if one["verdict"] == "refuted"]
    assert check["witness"]["numbers"]["flip_probability"] == 0.01
    assert check["replay"] == "privkde audit --plan plan.json --only flips --seed 7 --quick"


def test_a_check_that_stopped_has_the_type_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "CHECKS", (FLIPS, BROKEN))
    report = run()
    document = report.to_json()
    assert document["verdict"] == "could-not-run"
    assert document["checks"][1]["error"] == "ZeroDivisionError"
    assert document["checks"][1]["statistic"] is None
    text = Page(page.render(report)).text
    assert "Incomplete" in text
    assert "ZeroDivisionError" in text
    assert "secret" not in text


@pytest.mark.usefixtures("with_figures")
def test_the_page_stands_alone_and_is_well_formed() -> None:
    source = page.render(run())
    found = Page(source)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert [one for one in found.ids if one in SECTIONS] == list(SECTIONS)
    assert "http" not in source
    assert "$" not in found.text
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    figures = [attrs for tag, attrs in found.tags if tag == "svg"]
    assert len(figures) == 2
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in figures)
    targets = [str(attrs["href"])[1:] for tag, attrs in found.tags if tag == "a"]
    assert targets == list(SECTIONS)


def test_every_column_and_row_has_a_header() -> None:
    found = Page(page.render(run(), matrix=MATRIX))
    headers = [attrs for tag, attrs in found.tags if tag == "th"]
    assert headers
    assert all(attrs.get("scope") in ("col", "row") for attrs in headers)
    count = sum(tag == "table" for tag, _ in found.tags)
    assert count == sum(tag == "caption" for tag, _ in found.tags) == sum(tag == "thead" for tag, _ in found.tags)


def test_the_page_tells_promise_trust_and_what_was_tried() -> None:
    plan = plan_for(**REQUEST, min_users=300)
    report = run(plan)
    text = Page(page.render(report)).text
    for expected in (
        "Not refuted",
        "ε = 1, δ = 10⁻⁶",
        "300 honest participants",
        "If the shuffler colludes",
        "A number <drawn> from the seed is below the modulus & above zero.",
        report.plan_sha256,
        "privkde audit --plan plan.json --seed 7 --quick",
        plan.contract.evidence.source,
        "privkde audit --saboteurs",
    ):
        assert expected in text
    for layer in ("Certified", "Statistical"):
        assert f"{layer}:" in text


def test_the_page_of_a_refuted_plan_leads_with_the_witness() -> None:
    report = refuted()
    text = Page(page.render(report)).text
    assert "Not refuted" not in text
    assert text.index("Refuted") < text.index("What is promised")
    assert "bits flip with probability 0.01, which is less than 0.05" in text
    assert report.replay(report.refuted[0]) in text


def test_a_partial_audit_says_so() -> None:
    assert "Not a whole audit" in page.render(run(only=["distinguisher-drawn"]))
    assert "Not a whole audit" not in page.render(run())


def test_a_hostile_plan_cannot_write_markup() -> None:
    document = plan_for(**REQUEST).to_json()
    document["contracts"][0]["component"] = "<script>alert(1)</script>"
    document["contracts"][0]["assumed"] = ["</dl><img src=x>", "$verdict_text"]
    document["reasons"] = ["<b>"]
    source = page.render(run(type(plan_for(**REQUEST)).from_json(document)))
    assert "<script>" not in source
    assert "<img" not in source
    assert "&lt;script&gt;" in source


def test_evidence_is_drawn_by_kind() -> None:
    evidence = page.gathered(run())
    assert evidence.below == {"flips": [(0.5, 1e-3), (0.9, 1e-6)]}
    assert evidence.above == {"flips": [(0.6, 1e-3), (1.1, 1e-6)]}
    assert evidence.attacked == {"distinguisher-drawn": [(0.4, 1e-6)]}
    assert evidence.errors == {
        "bound": 3.0,
        "planned, at most": 0.5,
        "predicted for the worst query found": 0.45,
        "measured there": 0.46,
    }


def test_without_a_bound_every_point_of_errors_is_a_query() -> None:
    assert page._measured([(0.3, 0.2), (0.4, 0.5)], bounded=False) == {
        "predicted for the worst query found": 0.4,
        "measured there": 0.5,
    }


def test_the_checks_whose_curves_are_drawn_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = [check.name for _, check in runner.collected()]
    assert page.ERRORS in names
    assert any(name.startswith(page.ATTACKS) for name in names)


@pytest.mark.usefixtures("with_figures")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"classes": 2, "label_epsilon": 1.0},
        {"kernel": "inner-product", "repetitions": None, "accountant": "geometric", "classes": 2, "labels": "joint"},
        {"bitsum": "pure", "delta": 0.0, "accountant": "basic", "epsilon": 20.0},
        {"bitsum": "3nb"},
    ],
)
def test_every_kind_of_plan_has_a_page_and_an_entry(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "CHECKS", (stand_ins.DRAWN, stand_ins.ENDLESS))
    plan = plan_for(**(REQUEST | more), allow_useless=True)
    report = run(plan)
    text = Page(page.render(report)).text
    assert f"{plan.request.users:,} people" in text
    entry = registry.entry(report)
    assert entry["dp_variant"]["name"] == ("Pure DP" if plan.bitsum == "pure" else "Approximate DP")
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] >= plan.request.epsilon


def test_without_matplotlib_the_page_says_what_is_missing() -> None:
    source = page.render(run())
    assert "<svg" not in source
    assert "privkde[report]" in source


def test_the_registry_entry_has_the_registry_s_sections() -> None:
    report = run(plan_for(**REQUEST, classes=2, label_epsilon=1.0))
    entry = yaml.safe_load(registry.dumps(report))
    assert [name for name in entry if name in REGISTRY] == list(REGISTRY)
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0, "delta": 1e-6}
    assert entry["deployment_model"]["model_name"] == "Shuffle"
    assert entry["implementation"]["audit"]["verdict"] == "not-refuted"
    assert entry["basic"]["data_curators"] is None


def test_without_pyyaml_the_entry_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run()
    expected = yaml.safe_load(registry.dumps(report))
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    text = registry.dumps(report)
    assert text.splitlines()[2] == "{"
    assert yaml.safe_load(text) == expected


def test_the_folder_is_written_whole(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    write_report(run(), folder)
    assert {"report.html", "report.json", "registry.yaml"} <= {one.name for one in folder.iterdir()} <= {*OWN_FILES}
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["verdict"] == "not-refuted"
    write_report(refuted(), folder)
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["verdict"] == "refuted"
    assert [one.name for one in tmp_path.iterdir()] == ["report"]


def test_what_somebody_else_wrote_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match=r"thesis\.txt"):
        write_report(run(), tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_matrix_in_the_folder_is_kept_and_shown(tmp_path: Path) -> None:
    (tmp_path / SABOTEURS).write_text(json.dumps(MATRIX))
    write_report(run(), tmp_path)
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "1 of 2 planted faults were refuted" in text
    assert "<no noise>" in text
    assert json.loads((tmp_path / SABOTEURS).read_text()) == MATRIX


@pytest.mark.parametrize("text", ["[]", "{", '{"schema": "other/1"}'])
def test_a_matrix_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / SABOTEURS).write_text(text)
    with pytest.raises(InvalidInputError, match="no matrix"):
        write_report(run(), tmp_path)


def test_without_its_extra_the_pdf_is_left_out_with_a_note(tmp_path: Path) -> None:
    notes = write_report(run(), tmp_path / "without")
    assert "report.pdf" in notes[0]
    assert not (tmp_path / "without" / "report.pdf").exists()


@pytest.mark.usefixtures("with_figures")
def test_the_pdf_has_the_verdict(tmp_path: Path) -> None:
    pytest.importorskip("fpdf")
    assert write_report(refuted(), tmp_path / "with") == []
    content = (tmp_path / "with" / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type /Page\b", content)) >= 2
    assert content.rstrip().endswith(b"%%EOF")


def test_tables_escape_what_is_no_markup() -> None:
    text = table("<i>", ["a", "b"], [[Markup("<b>x</b>"), "<y>"]])
    assert "<b>x</b>" in text
    assert "&lt;y&gt;" in text
    assert "&lt;i&gt;" in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "—"), (float("inf"), "∞"), (float("nan"), "not a number"), (1e-6, "10⁻⁶"), (2.5e-9, "2.5·10⁻⁹"),
     (0.0, "0"), (30000.0, "30,000"), (0.25, "0.25"), (-3.0, "−3")],
)  # fmt: skip
def test_numbers_for_people(value: float | None, expected: str) -> None:
    assert number(value) == expected


def test_powers_of_ten() -> None:
    assert small(1e-12) == "10⁻¹²"
