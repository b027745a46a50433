"""Figures of a report (extra `report`: matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accounting import Plan
from accounting.curves import Curve
from privkde.figures import BLUE, GRAY, GREEN, INK, ORANGE, STYLES, figure_file
from verification.reporting.evidence import Evidence, separate_labels

SMALLEST = 1e-18
"""Points below do not fit on a logarithmic axis."""


def draw_profile(plan: Plan, curves: Mapping[str, Curve], evidence: Evidence, path: Path) -> None:
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
        for curve in evidence.below.values():
            axes.plot(*_split(curve), "s", label="certified for two records: ≥", color=GREEN, markersize=6, zorder=4)
        for curve in evidence.above.values():
            axes.plot(
                *_split(curve), "s", label="certified for all records: ≤", color=GREEN, fillstyle="none", zorder=4
            )
        for attack in evidence.attacks:
            if attack.drawn:
                axes.plot(*_split(attack.curve), "^", label="attack: at least", color=ORANGE, markersize=6, zorder=4)
        if promise.delta > 0.0:
            label = "the promise for the vector" if separate_labels(plan) else "the promise"
            axes.plot([promise.epsilon], [promise.delta], "o", color=INK, zorder=5, label=label)
        axes.set(xscale="log", yscale="log", xlabel="ε", ylabel="δ(ε)")
        axes.grid(alpha=0.3, linewidth=0.5)
        _legend_without_repeats(axes)


def draw_errors(planned: Mapping[str, float], measured: Mapping[str, float], path: Path) -> None:
    """Bound, prediction and its parts; below, if there is one, a miniature with what was measured."""
    groups = [("this plan", planned), *([("measured on a miniature", measured)] if measured else [])]
    heights = [len(rows) + 1.0 for _, rows in groups]
    with figure_file(path, 5.4, 0.55 * sum(heights) + 0.6) as figure:
        panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
        for axes, (title, rows) in zip(panels[:, 0], groups, strict=True):
            _bars(axes, title, rows)


def _bars(axes: Any, title: str, rows: Mapping[str, float]) -> None:
    for row, (name, value) in enumerate(rows.items()):
        color = ORANGE if name.startswith("measured") else GRAY if name.startswith("part:") else BLUE
        axes.barh(row, value, height=0.42, color=color)
        axes.text(0.0, row - 0.28, name.removeprefix("part:").strip(), va="bottom", fontsize=10)
        axes.annotate(f"{value:.3g}", (value, row), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set(xlim=(0.0, 1.18 * max(rows.values())), ylim=(len(rows) - 0.3, -0.75), yticks=[])
    axes.set_xlabel("root-mean-square error of a density")
    axes.spines["left"].set_visible(False)


def _split(curve: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    shown = [(x, y) for x, y in curve if x > 0.0 and y > SMALLEST]
    return [x for x, _ in shown], [y for _, y in shown]


def _legend_without_repeats(axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), framealpha=0.0, fontsize=9.5)
