"""`index.html`: one page that needs nothing but itself."""

from __future__ import annotations

import math
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import urlencode

import numpy as np

import privkde
from accounting import Adjacency, Guarantee, Plan, View
from accounting.mechanisms import LabelResponse
from privkde.demo.comparing import METHODS
from privkde.demo.markup import inline_figure, picture, table
from privkde.demo.outcome import SOURCE, Outcome

FIRST_SCANS = 12
MOST_MISTAKES = 8
WEAK_EPSILON = 10.0
"""From here on a factor of e^ε is no protection worth the name."""

Fields = dict[str, str]

PLANNER = "http://127.0.0.1:8000/"
"""Where `privkde serve` listens by default."""
PROGRAM = """import numpy as np
from privkde import PrivateKDEClassifier

public = np.load("public.npz")
classifier = PrivateKDEClassifier.load("model")
print(classifier.score(public["X_test"], public["y_test"]))
print(classifier.decode(public["X"], public["words"], contrast=True))"""


def render(outcome: Outcome, folder: Path) -> str:
    """The page, with the figures that are in `folder`."""
    template = files("privkde.demo").joinpath("page.html").read_text(encoding="utf-8")
    fields = (
        _headline(outcome)
        | _promise(outcome)
        | _figures(outcome, folder)
        | _tables(outcome)
        | _scans(outcome)
        | _gallery(outcome)
        | _ending(outcome)
    )
    return Template(template).substitute(fields)


def _headline(outcome: Outcome) -> Fields:
    settings, data, plan = outcome.settings, outcome.data, outcome.model.plans[0]
    banner = (
        '<p class="banner" role="alert"><b>Not private.</b> This run drew its noise from the seed'
        f" {settings.insecure_seed}. Whoever knows the seed can remove the noise, so nobody is protected.</p>"
    )
    return {
        "banner": "" if outcome.model.private else banner,
        "users": f"{len(data.users):,}",
        "n_sources": f"{data.n_sources:,}",
        "n_test": f"{len(data.test):,}",
        "n_gallery": f"{len(data.gallery):,}",
        "source": escape(SOURCE, quote=False),
        "accuracy": f"{outcome.accuracies['shuffled'].value:.1%}",
        "exact_accuracy": f"{outcome.accuracies['exact'].value:.1%}",
        "local_accuracy": f"{outcome.accuracies['local'].value:.1%}",
        "messages": f"{plan.messages_per_user:,.0f}",
        "instances": f"{plan.request.facts().n_instances:,}",
        "repetitions": f"{settings.repetitions:,}",
        "classes": str(settings.n_classes),
    }


def _promise(outcome: Outcome) -> Fields:
    settings = outcome.settings
    scan, record = outcome.promise(Adjacency.FEATURES), outcome.promise(Adjacency.RECORD)
    told = outcome.promise(Adjacency.FEATURES, View.LOCAL)
    label = LabelResponse(n_classes=settings.n_classes, label_epsilon=settings.label_epsilon)
    weak = ", which protects next to nothing" if told.epsilon > WEAK_EPSILON else ""
    remains = "nothing would remain" if told.is_empty else f"only ε = {told.epsilon:.3g} would remain{weak}"
    would = "<p>With secret randomness, this is what would hold; with the seed of this run, nothing does.</p>"
    return {
        "would": "" if outcome.model.private else would,
        "scan_promise": _numbers(scan),
        "scan_factor": _factor(scan.epsilon),
        "delta_words": f"{scan.delta:.12f}".rstrip("0"),
        "label_epsilon": f"{settings.label_epsilon:g}",
        "lie_probability": f"{1.0 - label.keep_probability:.0%}",
        "label_factor": _factor(settings.label_epsilon),
        "record_promise": _numbers(record),
        "record_factor": _factor(record.epsilon),
        "local_promise": remains,
    }


def _numbers(guarantee: Guarantee) -> str:
    return f"ε = {guarantee.epsilon:g}, δ = {_small(guarantee.delta)}"


def _small(value: float) -> str:
    """10⁻⁶ rather than 1e-06."""
    digits, _, power = f"{value:.3g}".partition("e")
    raised = str(int(power or 0)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return digits if not power else f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 20.0 else f"e^{epsilon:.3g}"


def _figures(outcome: Outcome, folder: Path) -> Fields:
    described = {
        "accuracy": "Bars of the accuracy of each method; the table below has the numbers.",
        "confusion": "Matrix of the numbers of test scans by written and predicted digit.",
        "profile": "Curves of delta against epsilon, one for each way of composing.",
    }
    plan = outcome.model.plans[0]
    return {
        f"{name}_figure": inline_figure((folder / f"{name}.svg").read_text(encoding="utf-8"), name, text)
        for name, text in described.items()
    } | {"first_class": str(outcome.model.labels[0]), "ladder": _ladder(plan), "accountant": plan.accountant}


def _ladder(plan: Plan) -> str:
    proved = [f"{name} ε = {value:.3g}" for name, value in plan.ladder.items() if value is not None]
    return f"At δ = {_small(plan.request.delta)} they prove: {', '.join(proved)}."


def _tables(outcome: Outcome) -> Fields:
    plans = [
        [
            str(label),
            f"{count:,}",
            f"{plan.parameters['flip_probability']:.3f}",
            f"{plan.bitsum_rmse:,.0f}",
            f"{plan.error.total:.3f}",
            f"{paper.parameters['flip_probability']:.4f}",
            f"{paper.ladder['pld'] or 0.0:.3g}",
        ]
        for label, count, plan, paper in zip(
            outcome.model.labels, outcome.reported_counts, outcome.model.plans, outcome.paper_plans, strict=True
        )
    ]
    header = ["class", "reported users", "flip probability", "error of a sum", "error of the density ≤"]
    found = [(one, outcome.accuracies[one.name]) for one in METHODS]
    accuracies = [
        [one.title, f"{accuracy.value:.1%}", f"{accuracy.low:.1%} to {accuracy.high:.1%}"] for one, accuracy in found
    ]
    own = next(number for number, one in enumerate(METHODS) if one.name == "shuffled")
    return {
        "plan_table": table([*header, "published: flips", "published: real ε"], plans),
        "accuracy_table": table(["method", "accuracy", "95 % interval"], accuracies, marked=own),
    }


def _scans(outcome: Outcome) -> Fields:
    wrong = np.flatnonzero(outcome.predicted != outcome.data.test.labels)[:MOST_MISTAKES]
    shown = "".join(_scan(outcome, int(number)) for number in wrong)
    return {
        "first_scans": "".join(_scan(outcome, number) for number in range(min(FIRST_SCANS, len(outcome.predicted)))),
        "mistakes": f'<p>And the first mistakes:</p>\n<ul class="scans">{shown}</ul>' if len(wrong) else "",
        "worst_confusion": _worst(outcome),
    }


def _scan(outcome: Outcome, number: int) -> str:
    test = outcome.data.test
    written, read = int(test.labels[number]), int(outcome.predicted[number])
    kind = "" if written == read else ' class="wrong"'
    return f"<li{kind}>{picture(test.images[number], f'scan of a {written}')}read <b>{read}</b><br>is {written}</li>"


def _worst(outcome: Outcome) -> str:
    counts = outcome.confusion()
    np.fill_diagonal(counts, 0)
    if not counts.any():
        return "No mistakes."
    written, read = np.unravel_index(int(np.argmax(counts)), counts.shape)
    return f"The most frequent mistake: {written} taken for {read}, {counts[written, read]} times."


def _gallery(outcome: Outcome) -> Fields:
    cards, pictures = [], outcome.pictures()
    for label, row in zip(outcome.model.labels, pictures, strict=True):
        shown = "".join(
            f"<span{'' if one.right else ' class=wrong'}>{picture(one.image, one.name)}{escape(one.name)}</span>"
            for one in row
        )
        cards.append(f'<div>Class <b>{escape(str(label))}</b><div class="row">{shown}</div></div>')
    everything = [one for row in pictures for one in row]
    return {
        "gallery": "\n".join(cards),
        "n_pictures": str(len(everything)),
        "n_right": str(sum(one.right for one in everything)),
    }


def _planner_state(outcome: Outcome) -> dict[str, str]:
    """The demonstration's request as fields of the planner page (`privkde/service/page`)."""
    request, label = outcome.model.plans[0].request, outcome.model.label_response()
    state = {
        "users": len(outcome.data.users),
        "dim": request.dim,
        "kernel": request.kernel,
        "repetitions": request.repetitions,
        "bitsum": request.bitsum,
        "epsilon": request.epsilon,
        "delta": request.delta,
    }
    if label is not None:
        state |= {"labels": "separate", "classes": label.n_classes, "label_epsilon": label.label_epsilon}
    return {name: str(value) for name, value in state.items() if value is not None}


def _ending(outcome: Outcome) -> Fields:
    settings, total = outcome.settings, sum(outcome.timings.values())
    seeded = "" if settings.insecure_seed is None else f" --insecure-seed {settings.insecure_seed}"
    commands = [
        f"privkde demo --output demo-output{seeded}",
        "cd demo-output",
        "privkde predict model public.npz   # the accuracy above",
        "privkde decode model public.npz --contrast   # the names of the pictures above",
    ]
    rows = [*outcome.timings.items(), ("all of these", total)]
    secret = "The noise is secret and new each time, so another run gives slightly different numbers."
    same = "With the same seed everything comes out the same, except the times."
    return {
        "timings": "".join(f"<tr><td>{escape(name)}</td><td>{seconds:.2f}</td></tr>" for name, seconds in rows),
        "contract": escape(outcome.model.contract.tree(), quote=False),
        "commands": escape("\n".join(commands), quote=False),
        "program": escape(PROGRAM, quote=False),
        "planner": escape(f"{PLANNER}#{urlencode(_planner_state(outcome))}"),
        "reproducible": secret if outcome.model.private else same,
        "version": privkde.__version__,
    }
