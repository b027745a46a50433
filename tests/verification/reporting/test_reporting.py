"""The files of a report: what a machine reads, what a person reads, and that they agree."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import privkde
from accounting import Adjacency, Guarantee, InvalidInputError, View
from accounting.releases.composing import Spent
from privkde.ledger import Budget, Composition, Standing
from tests.plans import plan_for
from tests.verification import stand_ins
from tests.verification.stand_ins import BROKEN, FLIPS
from tests.verification.test_auditing import REQUEST, run, tampered
from verification import auditing as runner
from verification.certified.certified_checks import certified_bound
from verification.evidence import CertifiedBounds, MeasuredErrors, QueryError
from verification.reporting import deployment_registry as registry
from verification.reporting import report_figures, report_writing
from verification.reporting import report_writing as page
from verification.reporting.deployment import Deployment, assumptions, parties
from verification.reporting.document import AuditReport, Result
from verification.reporting.report_writing import EARLIER_FILES, FILES, PRINT, SABOTEURS, require_ready, write_report
from verification.reporting.shown_evidence import Kind, planned_errors, shown_evidence
from verification.reporting.wording import at_least, at_most, beside, counted, meaning, number, numbers, small
from verification.sabotage import Matrix, Outcome, Row
from verification.statistical.distinguishers.attacks import Attack, attack_finding
from verification.verdicts import QUICK, Finding, Layer, Subject, finding

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
MATRIX = Matrix(
    checks=("flips", "drawn"),
    rows=tuple(
        Row(
            name=name,
            story=f"the story of {name}",
            plan="rr",
            honest=name == "honest",
            outcomes={"flips": outcome, "drawn": Outcome.NOT_APPLICABLE},
            errors={},
            seconds=0.0,
        )
        for name, outcome in (
            ("honest", Outcome.NOT_REFUTED),
            ("<no noise>", Outcome.REFUTED),
            ("half noise", Outcome.NOT_REFUTED),
        )
    ),
    effort="quick",
    seconds=1.0,
    seed=5,
)
RELEASED_MATRIX = report_writing.released_matrix
JOINT: dict[str, Any] = {"kernel": "inner-product", "repetitions": None, "classes": 2, "labels": "joint"}
SEPARATE: dict[str, Any] = {"classes": 2, "label_epsilon": 3.0, "epsilon": 4.0}


@pytest.fixture(autouse=True)
def stood_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LAYER_MODULES", (stand_ins.__name__,))
    monkeypatch.setattr(report_writing, "released_matrix", lambda: None)
    monkeypatch.setattr(report_figures, "find_spec", lambda name: None)


@pytest.fixture
def with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second: only tests that look at them draw them."""
    monkeypatch.setattr(report_figures, "find_spec", find_spec)


@cache
def drawn_page() -> str:
    """With figures."""
    return page.render(run())


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
    source = drawn_page()
    found = Page(source)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert [one for one in found.ids if one in SECTIONS] == list(SECTIONS)
    assert "http" not in source
    assert not re.search(r"{[{%#]|[%#]}", found.text)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    figures = [attrs for tag, attrs in found.tags if tag == "svg"]
    assert len(figures) == 2
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in figures)
    targets = [str(attrs["href"])[1:] for tag, attrs in found.tags if tag == "a"]
    assert targets == ["assumed", *SECTIONS]


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
    document["contracts"][0]["assumed"] = ["</dl><img src=x>", "{{ verdict }}"]
    document["reasons"] = ["<b>"]
    source = page.render(run(type(plan_for(**REQUEST)).from_json(document)))
    assert "<script>" not in source
    assert "<img" not in source
    assert "&lt;script&gt;" in source
    assert "{{ verdict }}" in source, "a value is no template"


def test_evidence_is_shown_by_its_type() -> None:
    evidence = shown_evidence(run())
    assert evidence.certified == {"flips": stand_ins.BOUNDS}
    (shown,) = evidence.attacks
    assert (shown.check, shown.attack.promise.epsilon, shown.drawn) == ("distinguisher-drawn", 1e9, False)
    assert {bar.kind for bar in planned_errors(plan_for(**REQUEST))} == {Kind.CLAIMED, Kind.PART}


def test_the_document_names_the_evidence_of_each_check_and_keeps_its_points() -> None:
    flips, drawn, endless = json.loads(run().dumps())["checks"]
    assert flips["evidence"]["kind"] == "certified-bounds"
    assert flips["curve"] == flips["evidence"]["below"] + flips["evidence"]["above"]
    assert drawn["evidence"]["kind"] == "attack-bounds"
    assert drawn["evidence"]["closest"]["name"] == "draw"
    assert drawn["evidence"]["closest"]["promise"]["adjacency"] == "replace-one-features"
    assert drawn["curve"] == [[0.4, 1e-6]]
    assert endless["evidence"] == {
        "kind": "measured-errors",
        "bound": 3.0,
        "planned": 0.5,
        "queries": [{"predicted": 0.45, "measured": 0.46}, {"predicted": 0.2, "measured": 0.1}],
    }
    assert endless["curve"] == [[3.0, 0.5], [0.45, 0.46], [0.2, 0.1]]


def found_by(report: AuditReport, findings: dict[str, Finding]) -> AuditReport:
    """The report of an audit whose checks, by their names, found this."""
    layers = {"certified-bound": Layer.CERTIFIED}
    results = [
        Result(name=name, layer=layers.get(name, Layer.STATISTICAL), about="", seed=1, seconds=0.0, finding=one)
        for name, one in findings.items()
    ]
    return dataclasses.replace(report, results=tuple(results))


def attacked(shifts: dict[str, tuple[float, Guarantee]]) -> Finding:
    """What a check finds whose attacks see scores that are this far apart, each with the promise that it attacks."""
    scores = np.random.default_rng(0).normal(size=(2, 4000))
    attacks = [
        Attack(what=what, first=far + scores[0], second=scores[1], promise=promise)
        for what, (far, promise) in shifts.items()
    ]
    return attack_finding("no attack shows more", attacks, "A note; with more.")


def promise(adjacency: Adjacency, epsilon: float, delta: float) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, adjacency=adjacency, view=View.COMMUNICATION)


VECTOR, RECORD = promise(Adjacency.FEATURES, 1.0, 1e-6), promise(Adjacency.RECORD, 4.0, 1e-6)


def test_only_attacks_on_the_dot_s_promise_are_drawn_and_each_is_named_with_its_limit() -> None:
    report = run(plan_for(**(REQUEST | SEPARATE)))
    alone = promise(Adjacency.LABEL, 3.0, 0.0)
    messages = attacked({"ratio of messages": (1.0, VECTOR), "other": (0.1, VECTOR)})
    label = attacked({"record": (0.1, RECORD), "reported label alone": (3.0, alone)})
    report = found_by(report, {"distinguisher-communication": messages, "distinguisher-classifier": label})
    first, second = shown_evidence(report).attacks
    assert (first.attack.name, first.attack.promise, first.drawn) == ("ratio of messages", VECTOR, True)
    assert (second.attack.name, second.attack.promise, second.drawn) == ("reported label alone", alone, False)
    assert dict((delta, epsilon) for epsilon, delta in first.curve)[1e-6] == messages.statistic, "not another level"
    text = Page(page.render(report)).text
    assert "attack on a miniature: ratio of messages" in text
    assert f"ε = {number(label.statistic)}; not in the figure" in text


def test_an_attack_is_named_by_its_field_whatever_the_names_of_others_are() -> None:
    twin = {"a": (1.0, VECTOR), "b; a: ε ≥ 0 of 1 promised": (1.0, VECTOR), "c": (3.0, VECTOR)}
    (shown,) = shown_evidence(found_by(run(), {"distinguisher-model": attacked(twin)})).attacks
    assert shown.attack.name == "c"


def test_an_attack_on_another_change_is_not_drawn_even_if_its_limit_is_that_of_the_dot() -> None:
    label = attacked({"label alone": (1.0, promise(Adjacency.LABEL, 1.0, 0.0))})
    separate = found_by(
        run(plan_for(**(REQUEST | SEPARATE | {"label_epsilon": 1.0, "epsilon": 2.0}))),
        {"distinguisher-classifier": label},
    )
    assert not shown_evidence(separate).attacks[0].drawn


def certified(upper: float | None, **proved: Any) -> Finding:
    """What the check that certifies finds, at δ = 10⁻⁶ for a claim of ε = 1."""
    document = {"claim": {"epsilon": 1.0, "label_epsilon": 0.0}, "proved": {"epsilon": upper} | proved}
    bounds = CertifiedBounds(
        claimed=1.0,
        delta=1e-6,
        upper=upper,
        below=((0.5, 1e-4), (0.9, 1e-6)),
        above=() if upper is None else ((upper / 2, 1e-4), (upper, 1e-6)),
        certificate=document if proved else {},
    )
    return finding("", statistic=proved.get("covered_epsilon", 0.9), bound=1.0, found="", evidence=bounds)


@pytest.mark.parametrize(
    ("upper", "headline"),
    [
        (0.99876543, "proved: ε ≤ 0.99877 at δ = 10⁻⁶, in ball arithmetic; the plan promises 1"),
        (0.99999999, "proved: ε ≤ 1 at δ = 10⁻⁶, in ball arithmetic; the plan promises 1"),
        (1.00000001, "not proved: ε = 1 at δ = 10⁻⁶; what is proved is ε ≤ 1.0001"),
        (None, "not proved: ε = 1 at δ = 10⁻⁶; for these parameters no upper bound is certified"),
    ],
)
def test_the_page_leads_with_what_is_proved(upper: float | None, headline: str) -> None:
    report = found_by(run(), {"certified-bound": certified(upper)})
    assert report.proof.headline.startswith(headline)
    text = Page(page.render(report)).text
    first = headline[0].upper() + headline[1:]
    assert first in text[text.index("promise is false.") :][: len(headline) + 100], "the first thing after the lead"
    assert report.to_json()["proof"]["headline"] == report.proof.headline
    assert registry.entry(report)["accounting"]["proof"]["state"] == report.proof.state


def test_claimed_and_both_proved_bounds_are_in_one_table() -> None:
    report = found_by(run(), {"certified-bound": certified(0.99876543, lower_epsilon=0.5, covered_epsilon=0.98765499)})
    assert [one.cells for one in report.proof.brackets] == [
        ("a person's record", "1", "0.99877", "0.5"),
        ("the worst bits that the noise is planned for", "1", "0.99877", "0.98765"),
    ]
    assert "a person's record 1 0.99877 0.5" in Page(page.render(report)).text


def test_a_contradiction_is_the_headline_even_if_an_upper_bound_would_prove_the_claim() -> None:
    covered = found_by(run(), {"certified-bound": certified(0.99, lower_epsilon=0.5, covered_epsilon=1.1)}).proof
    assert covered.state == "refuted"
    assert covered.headline == (
        "refuted: bits that the proof must cover cost at least ε = 1.1 at δ = 10⁻⁶; the plan promises 1"
    )
    records = found_by(run(), {"certified-bound": certified(0.99, lower_epsilon=1.05, covered_epsilon=1.1)}).proof
    assert records.headline.startswith("refuted: two records cost at least ε = 1.05 at δ = 10⁻⁶")


def test_without_the_check_nothing_is_called_proved() -> None:
    report = run(only=["distinguisher-drawn"])
    assert report.proof.headline == (
        "not computed: ε = 1 at δ = 10⁻⁶; the check certified-bound did not run in this audit"
    )
    assert "Proved:" not in Page(page.render(report)).text


def test_the_headline_of_a_real_certificate_is_proved() -> None:
    found = certified_bound.run(Subject(plan=plan_for(**REQUEST)), QUICK, 1)
    proof = found_by(run(), {"certified-bound": found}).proof
    assert proof.state == "proved"
    assert proof.promise.upper is not None
    assert proof.promise.lower is not None
    assert 0.0 < proof.promise.lower < proof.promise.upper <= proof.promise.claimed == 1.0


def test_separate_labels_are_part_of_what_is_proved() -> None:
    plan = plan_for(**(REQUEST | SEPARATE))
    found = certified(0.99876543, lower_epsilon=0.5, covered_epsilon=0.9)
    assert isinstance(found.evidence, CertifiedBounds)
    found.evidence.certificate["claim"] |= {"epsilon": 4.0, "label_epsilon": 3.0}
    found.evidence.certificate["proved"] |= {"epsilon": 3.99876543, "holds": True}
    proof = found_by(run(plan), {"certified-bound": found}).proof
    assert proof.headline == "proved: ε ≤ 3.9988 at δ = 10⁻⁶, in ball arithmetic; the plan promises 4"
    assert [one.cells[:3] for one in proof.brackets[:2]] == [
        ("a person's whole record", "4", "3.9988"),
        ("the vector alone", "1", "0.99877"),
    ]


def test_who_promises_is_told_in_every_format_and_markup_in_it_is_text() -> None:
    budget = Budget(name="telemetry", epsilon=4.0, delta=1e-6, composition=Composition.BASIC, created="")
    ladder = Spent(delta=1e-6, basic=0.5, at_budget=0.0)
    standing = Standing(budget=budget, ladder=ladder, n_charges=3)
    told = Deployment(organisation="Health <e.V.>", purpose="open data", period="2026", standing=standing)
    report = dataclasses.replace(run(), deployment=told)
    source = page.render(report)
    assert "Health &lt;e.V.&gt;" in source
    spent = "ε = 0.5 of 4 at δ = 10⁻⁶, by 3 charges (budget “telemetry”)"
    assert spent in Page(source).text
    document = json.loads(report.dumps())
    assert document["deployment"]["organisation"] == "Health <e.V.>"
    assert document["deployment"]["standing"]["spent"] == 0.5
    entry = registry.entry(report)
    assert entry["basic"]["data_curators"] == "Health <e.V.>"
    assert (entry["basic"]["intended_use"], entry["basic"]["period"]) == ("open data", "2026")
    assert entry["accounting"]["spent_by_all_releases"] == spent
    assert "were not given" in Page(page.render(run())).text


def test_a_total_above_the_promise_is_explained() -> None:
    """One release of ε = 2 counts for 2.69 in a budget of the default kind, and a reader sees both numbers."""
    for composition, told in ((Composition.ADAPTIVE, True), (Composition.BASIC, False)):
        budget = Budget(name="telemetry", epsilon=4.0, delta=1e-5, composition=composition, created="")
        standing = Standing(budget=budget, ladder=Spent(delta=1e-5, basic=2.69, at_budget=0.0), n_charges=1)
        spent = Deployment(standing=standing).spent
        assert spent is not None
        assert ("may then cost more than its own ε" in spent) is told


def test_what_was_found_does_not_look_like_its_limit() -> None:
    """1.9958 beside 2 would be "2, refuted beyond 2"; a tight bound stays short."""
    assert [
        beside(*pair) for pair in ((1.995825, 2.0), (2.0, 2.0), (0.9999999989, 1.0), (0.5, 1.0), (1.9958, 2.0))
    ] == [
        "1.9958",
        "2",
        "1",
        "0.5",
        "1.9958",
    ]


@pytest.mark.parametrize("text", ["a\nb", "x" * 501, 3])
def test_words_of_an_organisation_are_one_line(text: Any) -> None:
    with pytest.raises(InvalidInputError, match="purpose"):
        Deployment(purpose=text)


def test_assumptions_and_trust_are_in_every_format() -> None:
    report = run()
    assumed = assumptions(report.contract)
    assert len(assumed) > 3
    assert "the shuffler outputs a uniformly random order and nothing else" in assumed
    text, document, entry = Page(page.render(report)).text, report.to_json(), registry.entry(report)
    assert document["assumed"] == entry["deployment_model"]["assumed"] == list(assumed)
    assert [one["who"] for one in document["trust"]] == [one["who"] for one in entry["deployment_model"]["parties"]]
    for words in (*assumed, *(party.misbehaves for party in parties(report.plan))):
        assert words in text


def test_no_power_of_e_is_sold_as_protection() -> None:
    weak = promise(Adjacency.FEATURES, 1140.0, 0.0)
    assert numbers(weak) == "no protection (ε = 1140, δ = 0)"
    assert meaning(weak) == "Nothing is hidden from whoever sees this."
    assert meaning(promise(Adjacency.FEATURES, 1.0, 1e-6)) == (
        "No probability changes by more than a factor of 2.72, plus at most 10⁻⁶."
    )
    assert meaning(promise(Adjacency.FEATURES, 12.0, 0.0)).endswith("This protects next to nothing.")
    assert "e^" not in Page(page.render(run())).text


def test_bounds_are_rounded_outwards() -> None:
    assert at_most(1.99984953) == "1.9999"
    assert at_most(1.99999953, 1.99999960) == "1.9999996"
    assert at_most(0.1, 0.1) == "0.1"
    assert at_least(1.99999953) == "1.9999"
    assert at_most(12345678.9) == "12346000"
    assert at_most(float("inf")) == "∞"


def test_separate_labels_lead_with_the_whole_record() -> None:
    report = run(plan_for(**(REQUEST | SEPARATE)))
    text = Page(page.render(report)).text
    parts = "Of it: ε = 1, δ = 10⁻⁶ for the vector alone; ε = 3, δ = 0 for the label alone."
    assert (
        f"ε = 4, δ = 10⁻⁶ promised, if one person's whole record (vector and label) is exchanged for any other. {parts}"
        in text
    )
    assert f"The main promise: ε = 4, δ = 10⁻⁶. {parts}" in text
    assert "comes on top: ε = 4, δ = 10⁻⁶ for both" in text
    entry = registry.entry(report)
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.0, "delta": 1e-6}
    assert entry["privacy_loss"]["all_guarantees"][0]["epsilon"] == 4.0
    assert "Of it" not in Page(page.render(run())).text


@pytest.mark.usefixtures("with_figures")
def test_the_page_says_whose_bounds_are_drawn_and_which_route_a_check_takes() -> None:
    text = Page(drawn_page()).text
    for expected in (
        "Full squares belong to two records that people may hold",
        "at least (proved for two records)",
        "at most (proved for all records)",
        "by the accountant that planned (plan-verifies)",
        "by a checker with laws of its own, in ball arithmetic (certified-bound)",
    ):
        assert expected in text


def test_where_a_density_is_discussed_no_error_of_a_miniature_is_shown() -> None:
    text = Page(page.render(run())).text
    cost = text[text.index("6. What privacy costs", text.index("Utility:") - 50) : text.index("7. Every attempt", 5000)]
    assert "predicted, at most" in cost
    assert "miniature" not in cost
    assert number(stand_ins.ERRORS.worst.measured) not in cost
    queries = (QueryError(predicted=0.3, measured=0.2), QueryError(predicted=0.4, measured=0.5))
    assert MeasuredErrors(bound=None, planned=0.6, queries=queries).curve == ((0.3, 0.2), (0.4, 0.5))


@pytest.mark.usefixtures("with_figures")
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"classes": 2, "label_epsilon": 1.0, "epsilon": 2.0},
        JOINT | {"bitsum": "poisson"},
        pytest.param(JOINT, marks=pytest.mark.slow),
        {"bitsum": "pure", "delta": 0.0, "accountant": "basic", "epsilon": 20.0},
        pytest.param({"bitsum": "3nb"}, marks=pytest.mark.slow),
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


def test_without_matplotlib_page_and_notes_say_what_is_missing(tmp_path: Path) -> None:
    source = page.render(run())
    assert "<svg" not in source
    assert "<figcaption" not in source
    assert Page(source).text.count("Figure left out. Figures need matplotlib: pip install 'privkde[report]'") == 2
    notes = write_report(run(), tmp_path / "report")
    assert "report.html has no figures; they need `pip install 'privkde[report]'`." in notes


@pytest.mark.usefixtures("with_figures")
def test_a_plan_without_a_protocol_has_a_report_without_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LAYER_MODULES", ("verification.certified.certified_checks",))
    report = run(tampered(plan_for(**REQUEST), 0.0))
    assert report.verdict == "refuted"
    note, _ = write_report(report, tmp_path / "report")
    assert "no curve" in note
    found = Page((tmp_path / "report" / "report.html").read_text(encoding="utf-8"))
    assert "Figure left out. No curve of δ against ε" in found.text
    assert sum(tag == "svg" for tag, _ in found.tags) == 1, "errors can be drawn"
    entry = yaml.safe_load((tmp_path / "report" / "registry.yaml").read_text(encoding="utf-8"))
    assert entry["implementation"]["parameters"] == {"flip_probability": 0.0}
    assert entry["implementation"]["audit"]["verdict"] == "refuted"


def test_checks_that_draw_nothing_have_no_false_alarms_and_one_check_is_no_checks() -> None:
    text = Page(page.render(run(only=["flips"]))).text
    assert "≤ 0" not in text
    assert "probability at most 0" not in text
    assert "these checks have no false alarms" in text
    assert "1 check tried" in text
    assert "1 checks" not in text
    assert "1 process " in text


def test_a_search_without_a_power_has_a_dash_and_an_explanation() -> None:
    report = run(only=["flips"])
    assert report.to_json()["checks"][0]["power"] is None
    source = page.render(report)
    assert '<td data-label="power">—</td>' in source
    assert "A dash under “power” means that no such probability is known" in Page(source).text


@pytest.mark.parametrize(
    ("total", "what", "expected"),
    [(1, "check", "1 check"), (0, "check", "0 checks"), (2, "process", "2 processes"), (1.0, "bit", "1 bit"),
     (1.25, "message", "1.25 messages"), (20000, "bit", "20,000 bits")],
)  # fmt: skip
def test_plurals(total: float, what: str, expected: str) -> None:
    assert counted(total, what) == expected


def test_the_registry_entry_has_the_registry_s_sections() -> None:
    report = run(plan_for(**(REQUEST | {"classes": 2, "label_epsilon": 1.0, "epsilon": 2.0})))
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
    assert {"report.html", "report.json", "registry.yaml"} <= {one.name for one in folder.iterdir()} <= {*FILES}
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
    (tmp_path / SABOTEURS).write_text(json.dumps(MATRIX.to_json()))
    write_report(run(), tmp_path)
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "1 of 2 planted faults refuted" in text
    assert "<no noise>" in text
    assert f"Made by privkde {privkde.__version__} on {MATRIX.date}: quick effort, seed 5" in text
    assert "This matrix is of" not in text
    assert json.loads((tmp_path / SABOTEURS).read_text()) == MATRIX.to_json()


def test_the_release_s_matrix_is_shown_unless_the_folder_has_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = dataclasses.replace(MATRIX, version="0.0.9", date="2020-02-02T00:00:00+00:00")
    monkeypatch.setattr(report_writing, "released_matrix", lambda: released)
    assert report_writing.shown_matrix(tmp_path) == released
    text = Page(page.render(run(), matrix=released)).text
    assert "Made by privkde 0.0.9 on 2020-02-02T00:00:00+00:00" in text
    assert "This matrix is of privkde 0.0.9." in text, "a warning"
    for date, shown in (("2020-02-01T00:00:00+00:00", released.date), ("2020-02-03T00:00:00+01:00",) * 2):
        own = dataclasses.replace(MATRIX, date=date)
        (tmp_path / SABOTEURS).write_text(json.dumps(own.to_json()))
        found = report_writing.shown_matrix(tmp_path)
        assert found is not None
        assert found.date == shown


def test_the_packaged_matrix_is_read_if_it_was_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writing, "released_matrix", RELEASED_MATRIX)
    monkeypatch.setattr(report_writing, "files", lambda package: tmp_path)
    assert report_writing.released_matrix() is None
    assert "No matrix of planted faults was shipped" in page.render(run())
    (tmp_path / SABOTEURS).write_text(json.dumps(MATRIX.to_json()))
    assert report_writing.released_matrix() == MATRIX


def test_the_shipped_matrix_is_whole() -> None:
    shipped = RELEASED_MATRIX()
    if shipped is None:
        pytest.skip("not made yet: `privkde audit --saboteurs`")
    assert shipped.complete


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in MATRIX.to_json().items() if key != name}


@pytest.mark.parametrize(
    "document",
    [
        [],
        "garbage",
        {"schema": "other/1"},
        {"schema": "privkde.saboteurs/1"},
        *(without(name) for name in MATRIX.to_json()),
        MATRIX.to_json() | {"complete": True},
        MATRIX.to_json() | {"date": "yesterday"},
        MATRIX.to_json() | {"date": "2020-02-02T00:00:00"},
        MATRIX.to_json() | {"checks": ["flips", "drawn", "third"]},
        MATRIX.to_json() | {"rows": [{"name": "x"}]},
    ],
)
def test_a_matrix_that_is_none_is_refused(tmp_path: Path, document: Any) -> None:
    (tmp_path / SABOTEURS).write_text(json.dumps(document))
    for refuse in (require_ready, lambda folder: write_report(run(), folder)):
        with pytest.raises(InvalidInputError, match=r"saboteurs\.json.* is not a whole matrix.*delete it"):
            refuse(tmp_path)


def test_a_matrix_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / SABOTEURS).write_bytes(b"\xff{")
    with pytest.raises(InvalidInputError, match="not a whole matrix"):
        require_ready(tmp_path)


@pytest.mark.usefixtures("with_figures")
def test_the_only_note_of_a_whole_report_says_how_to_get_a_pdf(tmp_path: Path) -> None:
    assert write_report(refuted(), tmp_path / "with") == [PRINT]


def test_the_pdf_of_an_earlier_version_goes_with_its_audit(tmp_path: Path) -> None:
    (tmp_path / EARLIER_FILES[0]).write_bytes(b"%PDF-1.3")
    require_ready(tmp_path)
    write_report(run(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.json", "registry.yaml"}


def test_on_paper_the_page_is_light_and_breaks_between_rows() -> None:
    source = page.render(run())
    assert "@media screen and (prefers-color-scheme: dark)" in source, "print keeps dark ink on white paper"
    printed = source[source.index("@media print") :]
    for rule in ("thead { display: table-header-group; }", "break-inside: avoid", "nav { display: none; }"):
        assert rule in printed


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "—"), (float("inf"), "∞"), (float("nan"), "not a number"), (1e-6, "10⁻⁶"), (2.5e-9, "2.5·10⁻⁹"),
     (0.0, "0"), (30000.0, "30,000"), (0.25, "0.25"), (-3.0, "−3")],
)  # fmt: skip
def test_numbers_for_people(value: float | None, expected: str) -> None:
    assert number(value) == expected


def test_powers_of_ten() -> None:
    assert small(1e-12) == "10⁻¹²"
