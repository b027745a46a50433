"""The sections of the page that speak of the plan: promise, trust, mechanism, composition, utility."""

from __future__ import annotations

from html import escape

import numpy as np

from accounting import Guarantee, Plan, View
from verification.reporting.document import AuditReport
from verification.reporting.evidence import separate_labels
from verification.reporting.markup import Markup, contract_tree, listed, table
from verification.reporting.wording import (
    ADJACENCIES,
    MECHANISMS,
    VIEWS,
    counted,
    in_words,
    number,
    numbers,
    ordered,
    promised,
    promised_parts,
    small,
)

Fields = dict[str, str]


def promise_fields(report: AuditReport) -> Fields:
    """Whose privacy, in which change, against whom, with which numbers."""
    plan = report.plan
    main, parts = promised(plan, View.COMMUNICATION), promised_parts(plan)
    return {
        "promise_table": _promise_table(plan),
        "main_numbers": numbers(main),
        "main_words": in_words(main),
        "main_adjacency": ADJACENCIES[main.adjacency],
        "main_parts": f"Of it: {parts}." if parts else "",
        "delta_chance": _chance(main.delta),
        "users": f"{plan.request.users:,}",
        "unit_labels": _unit(plan),
    }


def _promise_table(plan: Plan) -> str:
    """One row for each change, one column for each onlooker."""
    given = {(one.adjacency, one.view): one for one in plan.guarantees}
    views = [view for view in View if any(one.view is view for one in plan.guarantees)]
    rows = []
    for adjacency in dict.fromkeys(one.adjacency for one in ordered(plan)):
        cells = [given.get((adjacency, view)) for view in views]
        rows.append([f"if {ADJACENCIES[adjacency]}", *("—" if one is None else _cell(one) for one in cells)])
    return table("All promises of the plan", ["change", *(f"for {VIEWS[view]}" for view in views)], rows, kind="words")


def _cell(guarantee: Guarantee) -> Markup:
    return Markup(f"<b>{escape(numbers(guarantee))}</b><br>{escape(in_words(guarantee))}")


def _unit(plan: Plan) -> str:
    request = plan.request
    if request.classes is None:
        return "one vector"
    return f"one vector and one of {request.classes} labels"


def _chance(delta: float) -> str:
    if delta == 0.0:
        return "δ is 0: the factor holds for every event, however unlikely."
    return f"δ = {small(delta)} is what may be missing: the factor may fail for events that are that unlikely in all."


def trust_fields(report: AuditReport) -> Fields:
    """Who has to be trusted with what, and what is left if somebody does not deserve it."""
    plan = report.plan
    request, local = plan.request, promised(plan, View.LOCAL)
    where = " in every class" if request.n_protocols > 1 else ""
    dropouts = (
        f"The noise counts on {counted(request.counted_users, 'honest participant')}{where}"
        f" ({request.users_per_protocol:,} are planned). More only help. If fewer take part, the analyzer must not"
        " publish, and this library refuses to; what the shuffler has passed on by then protects less than promised."
        " People who take part but lie or collude count as missing."
    )
    rows = [
        [
            "The person's own device",
            "everything of that person",
            "It must follow the protocol and draw good randomness.",
        ],
        ["Shuffler", "who sends, and noisy messages", _shuffler(plan)],
        ["Analyzer", _analyzer_sees(plan), "Nothing more can be lost: the promise holds against the analyzer."],
        ["Everybody else", "what is published", "Any number of questions may be asked; none costs privacy."],
        ["Other participants", "their own records", "Those who collude count as missing (see dropouts)."],
    ]
    return {
        "trust_table": table(
            "Who sees what, and what is left if they misbehave",
            ["who", "sees", "if they misbehave"],
            rows,
            kind="words",
        ),
        "local_numbers": numbers(local),
        "local_words": in_words(local),
        "dropouts": dropouts,
    }


def _shuffler(plan: Plan) -> str:
    local = promised(plan, View.LOCAL)
    return f"If it colludes with the analyzer, each person is left with the local view: {numbers(local)}."


def _analyzer_sees(plan: Plan) -> str:
    if plan.request.label_response() is not None:
        return "each person's randomized label, and all messages in random order"
    return "all messages, in random order"


def mechanism_fields(report: AuditReport) -> Fields:
    """What every person's device does."""
    plan = report.plan
    request, facts = plan.request, plan.request.facts()
    settings = [
        ["kernel", f"{facts.name}, dimension {facts.dim:,}"],
        ["repetitions of the feature map", f"{facts.n_repetitions:,}"],
        ["bits that every person sends", f"{facts.n_instances:,}"],
        ["bits that one person's record can change", f"{plan.instances_per_user:,}"],
        ["one bit alone", f"ε₀ = {plan.epsilon_0:.4g}, δ₀ = {small(plan.delta_0)}"],
        *([name.replace("_", " "), f"{value:.8g}"] for name, value in plan.parameters.items()),
    ]
    if request.classes is not None:
        kind = "protected together with the vector" if request.joint else "by randomized response, once per person"
        settings.append(["labels", f"{request.classes} classes, {kind}"])
    return {
        "mechanism": MECHANISMS.get(plan.bitsum, plan.bitsum),
        "mechanism_table": table("The plan's parameters", ["what", "value"], settings, kind="facts"),
        "contract": contract_tree(plan.contract if report.model is None else report.model.contract),
    }


def composition_fields(report: AuditReport) -> Fields:
    """How the promises of single bits add up."""
    plan = report.plan
    rows = [
        [
            f"{name} (used)" if name == plan.accountant else name,
            "does not apply" if value is None else f"{value:.6g}",
            *(["own"] if name == plan.accountant else []),
        ]
        for name, value in plan.ladder.items()
    ]
    return {
        "ladder_table": table(
            f"ε that each way of adding up claims at δ = {small(plan.guarantees[0].delta)}",
            ["way", "ε"],
            rows,
            kind="short",
        ),
        "touched": counted(plan.instances_per_user, "bit"),
        "added_labels": _added_labels(plan),
        "accountant": escape(plan.accountant),
    }


def _added_labels(plan: Plan) -> str:
    """Where the label is protected by itself, the ways below add up the vector's bits only."""
    features, whole = plan.guarantees[0], promised(plan, View.COMMUNICATION)
    if not separate_labels(plan):
        return ""
    return (
        f"These ways add up the bits of the vector alone: {numbers(features)}. The label, which is randomized by"
        f" itself, comes on top: {numbers(whole)} for both."
    )


def utility_fields(report: AuditReport) -> Fields:
    """What is lost for privacy: error and messages."""
    plan = report.plan
    rows = [[name.removeprefix("part:").strip(), number(value)] for name, value in error_bars(plan).items()]
    rows += [[f"{one.name} privacy, for comparison: predicted", number(one.predicted_rmse)] for one in plan.baselines]
    return {
        "error_table": table(
            "Root-mean-square error of a density between 0 and 1", ["what", "error"], rows, kind="short"
        ),
        "messages": counted(plan.messages_per_user, "message"),
        "bits": counted(plan.bits_per_user, "bit"),
    }


def error_bars(plan: Plan) -> dict[str, float]:
    """Bound, prediction and its parts, by name."""
    parts = plan.error
    named = {"bias": parts.bias, "random features": parts.feature, "rounding": parts.rounding, "privacy": parts.privacy}
    named["labels"] = parts.labels
    bound = {} if plan.sup_rmse_bound is None else {"bound for every density (Theorem 3.2)": plan.sup_rmse_bound}
    shown = {f"part: of it, {name}": value for name, value in named.items() if value > 0.0}
    return {**bound, "predicted, at most": parts.total, **shown}


def model_fields(report: AuditReport) -> Fields:
    """The published model, if one was given."""
    model = report.model
    if model is None:
        text = "No published model was given, so the audit speaks of the plan and of the program that would run it."
        return {"model": Markup(f"<p>{text}</p>"), "banner": ""}
    users = np.array(model.n_users)
    facts = [
        f"people in it: {int(users.sum()):,}"
        + (f", the smallest class {int(users.min()):,}" if len(users) > 1 else ""),
        f"numbers published: {model.sums.size:,}",
        "private draws: secret" if model.private else "private draws: from a seed that somebody may know",
    ]
    banner = (
        '<p class="banner" role="alert"><b>This model is not private.</b> Its noise was drawn from a seed. Whoever'
        " knows the seed can remove the noise, so the promise below does not hold for this model.</p>"
    )
    return {"model": listed(facts), "banner": "" if model.private else banner}
