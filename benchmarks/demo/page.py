"""`index.html`: one page that needs nothing but itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

import privkde
from accounting import View
from benchmarks.demo.summary import METHODS, SOURCE, Outcome
from verification.reporting.pages import inline_figure, render_page

PLANNER = "http://127.0.0.1:8000/"
"""Where `privkde serve` listens by default."""


def render(outcome: Outcome, folder: Path) -> str:
    """The page, with the figures that are in `folder`."""
    settings, model = outcome.settings, outcome.model

    def figure(name: str, description: str) -> Markup:
        return inline_figure((folder / f"{name}.svg").read_text(encoding="utf-8"), name, description)

    return render_page(
        "benchmarks.demo",
        "page.html",
        outcome=outcome,
        settings=settings,
        data=outcome.data,
        model=model,
        plan=model.plans[0],
        paper=outcome.paper,
        flips=[plan.parameters["flip_probability"] for plan in outcome.paper.plans],
        decoded=dict(zip(model.classes, outcome.decoded, strict=True)),
        right=[shows_class for _, pictures in outcome.gallery() for _, shows_class in pictures],
        record=outcome.promise(View.COMMUNICATION),
        local=outcome.promise(View.LOCAL),
        label=outcome.label_response,
        methods=METHODS,
        source=SOURCE,
        planner=f"{PLANNER}#{urlencode(_planner_state(outcome))}",
        version=privkde.__version__,
        figure=figure,
        power_of_ten=_power_of_ten,
        exp=math.exp,
    )


def _power_of_ten(value: float) -> str:
    """10⁻⁶ rather than 1e-06."""
    digits, _, power = f"{value:.3g}".partition("e")
    raised = str(int(power or 0)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return digits if not power else f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def _planner_state(outcome: Outcome) -> dict[str, Any]:
    """The demonstration's request as fields of the planner page (`privkde/service/page`)."""
    request = outcome.model.plans[0].request
    names = ("users", "dim", "kernel", "bitsum", "epsilon", "delta", "labels", "classes")
    return {name: getattr(request, name) for name in names}
