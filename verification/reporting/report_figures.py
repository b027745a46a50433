"""Figures of a report as parts of its page (extra `report`: matplotlib)."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from markupsafe import Markup

from accounting import Plan, PrivkdeError
from accounting.releases.plan_curves import profile_curves
from privkde.display.figures import BLUE, GRAY, GREEN, INK, ORANGE, STYLES, figure_file
from verification.reporting.document import AuditReport
from verification.reporting.pages import inline_figure
from verification.reporting.shown_evidence import (
    ErrorBar,
    Kind,
    ShownEvidence,
    planned_errors,
    shown_evidence,
)

SMALLEST = 1e-18
"""Points below do not fit on a logarithmic axis."""
COLORS = {Kind.CLAIMED: BLUE, Kind.PART: GRAY}
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a page; None for one that cannot be drawn."""

    drawable: bool
    """Whether the extra is installed."""
    profile: Markup | None = None
    errors: Markup | None = None


def draw_figures(report: AuditReport) -> Figures:
    """Both figures, as far as the plan's parameters allow."""
    if find_spec("matplotlib") is None:
        return Figures(drawable=False)
    plan, evidence, curves = report.plan, shown_evidence(report), _curves(report.plan)
    planned = [bar for bar in planned_errors(plan) if math.isfinite(bar.value)]
    profile = errors = None
    if curves:
        profile = _inline(
            "profile",
            "Curves of delta against epsilon: what each way of adding up claims, with the promise, recomputed bounds"
            " and what attacks reached; the table below has the numbers.",
            lambda path: draw_profile(plan, curves, evidence, path),
        )
    if any(bar.value for bar in planned):
        errors = _inline(
            "errors",
            "Bars of the error: bound and prediction with its parts; the table below has the numbers.",
            lambda path: draw_errors(planned, path),
        )
    return Figures(drawable=True, profile=profile, errors=errors)


def draw_profile(plan: Plan, curves: Mapping[str, Points], evidence: ShownEvidence, path: Path) -> None:
    """δ(ε): what each rung proves, the promise, what was recomputed, and what attacks reached."""
    promise = plan.guarantees[0]
    with figure_file(path, 5.6, 4.3) as figure:
        axes = figure.subplots()
        for name, curve in curves.items():
            color, style = STYLES[name]
            used = name == plan.accountant
            label = f"{name} (used)" if used else name
            width, alpha = (2.6, 1.0) if used else (1.3, 0.7)
            axes.plot(*_split(curve), label=label, color=color, linestyle=style, linewidth=width, alpha=alpha)
        whom = "all records" if plan.request.label_response() is None else "all vectors"
        square = {"marker": "s", "linestyle": "none", "color": GREEN, "zorder": 4}
        for curve in evidence.below.values():
            axes.plot(*_split(curve), label="proved for two records: ≥", markersize=6, **square)
        for curve in evidence.above.values():
            axes.plot(*_split(curve), label=f"proved for {whom}: ≤", fillstyle="none", **square)
        for shown in evidence.attacks:
            if shown.drawn:
                axes.plot(*_split(shown.curve), "^", label="attack: at least", color=ORANGE, markersize=6, zorder=4)
        if promise.delta > 0.0:
            label = "the promise" if plan.request.label_response() is None else "the promise for the vector"
            axes.plot([promise.epsilon], [promise.delta], "o", color=INK, zorder=5, label=label)
        axes.set(xscale="log", yscale="log", xlabel="ε", ylabel="δ(ε)")
        axes.grid(alpha=0.3, linewidth=0.5)
        _legend_without_repeats(axes)


def draw_errors(planned: Sequence[ErrorBar], path: Path) -> None:
    """Bound, prediction and its parts."""
    with figure_file(path, 5.4, 0.55 * (len(planned) + 1.0) + 0.6) as figure:
        _draw_bars(figure.subplots(), planned)


def _inline(name: str, description: str, draw: Callable[[Path], None]) -> Markup:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{name}.svg"
        draw(path)
        return inline_figure(path.read_text(encoding="utf-8"), name, description)


def _curves(plan: Plan) -> Mapping[str, Points]:
    """Empty if the plan's parameters are so far off that no curve can be computed: the report must still be written."""
    try:
        return profile_curves(plan)
    except (PrivkdeError, ArithmeticError, ValueError):
        return {}


def _draw_bars(axes: Any, bars: Sequence[ErrorBar]) -> None:
    for row, bar in enumerate(bars):
        axes.barh(row, bar.value, height=0.42, color=COLORS[bar.kind])
        axes.text(0.0, row - 0.28, bar.name, va="bottom", fontsize=10)
        axes.annotate(f"{bar.value:.3g}", (bar.value, row), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set(xlim=(0.0, 1.18 * max(bar.value for bar in bars)), ylim=(len(bars) - 0.3, -0.75), yticks=[])
    axes.set_xlabel("root-mean-square error of a density")
    axes.spines["left"].set_visible(False)


def _split(curve: Points) -> tuple[list[float], list[float]]:
    shown = [(x, y) for x, y in curve if x > 0.0 and y > SMALLEST]
    return [x for x, _ in shown], [y for _, y in shown]


def _legend_without_repeats(axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), framealpha=0.0, fontsize=9.5)
