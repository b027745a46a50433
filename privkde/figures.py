"""Pictures of a plan and of what was learned (extra `report`: matplotlib)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.curves import profile_curves

if TYPE_CHECKING:
    from accounting import Plan
    from accounting.comparing import Outcome
    from privkde.accuracy import Accuracy

FORMATS = (".svg", ".png", ".pdf")
INK = "#1b1f24"
"""Lines and letters; whoever puts a figure on a page may replace it by the page's own color."""
BLUE, ORANGE, GREEN, PURPLE, GRAY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c959f"
"""Okabe and Ito's colors, which people with any kind of color vision can tell apart, and a gray."""
STYLES: dict[str, tuple[str, Any]] = {
    "paper": (PURPLE, ":"),
    "basic": (GREEN, "--"),
    "advanced": (ORANGE, "-."),
    "pld": (BLUE, "-"),
    "geometric": (INK, (0, (6, 1.5))),
}
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # letters stay letters: smaller, searchable, readable aloud
    "svg.hashsalt": "privkde",  # the same figure is the same file
    "font.family": "sans-serif",
    "font.size": 11.0,
    "axes.titlesize": 11.0,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def require_drawable(path: Path) -> None:
    """Refuse a file name whose ending is no known picture format."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"plot file {path.name!r} must end in one of {', '.join(FORMATS)}; rename it.")


def require_matplotlib() -> None:
    """Refuse to draw without the extra, before any work is done for a picture."""
    if find_spec("matplotlib") is None:
        raise InvalidInputError("figures need matplotlib; install the extra with `pip install 'privkde[report]'`.")


@contextmanager
def figure_file(path: Path, width: float, height: float) -> Iterator[Any]:
    """A figure of this size in inches, written to `path` at the end."""
    require_drawable(path)
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None, dpi=150)


def plot_profile(plan: Plan, path: Path) -> None:
    """δ(ε) of every rung at the plan's parameters, with the promised point marked."""
    request, promise = plan.request, plan.guarantees[0]
    with figure_file(path, 5.4, 4.2) as figure:
        axes = figure.subplots()
        for name, curve in profile_curves(plan).items():
            color, style = STYLES[name]
            width = 2.6 if name == plan.accountant else 1.6
            axes.plot(*zip(*curve, strict=True), label=name, color=color, linestyle=style, linewidth=width)
        if promise.delta > 0.0:
            axes.plot([promise.epsilon], [promise.delta], "o", color=INK, zorder=5)
            axes.annotate(
                f"promise ({promise.epsilon:g}, {promise.delta:g})",
                (promise.epsilon, promise.delta),
                textcoords="offset points",
                xytext=(-10, 0),
                ha="right",
                va="center",
            )
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="ε",
            ylabel="δ(ε), upper bound",
            title=f"{plan.bitsum}, {request.kernel}, n = {request.users:,}, {plan.instances_per_user:,} bits per user",
        )
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.legend(title="what each rung proves", framealpha=0.0)


def plot_comparison(outcomes: Sequence[Outcome], path: Path) -> None:
    """Noise and predicted error (logarithmic scales) and messages of the same promise by each rung."""
    known = [one for one in outcomes if one.protocol is not None]
    if not known:
        raise InvalidInputError("no rung meets the request, so there is nothing to draw; raise epsilon or users.")
    panels: dict[str, list[float]] = {
        "noise of a sum of features": [one.noise for one in known],
        "predicted error of a density": [one.total_error for one in known],
        "messages per user": [one.messages_per_user or 0.0 for one in known],
    }
    names = [one.name for one in known]
    if known[0].request.kernel == "inner-product":
        names = [f"{one.request.accountant} (R = {one.request.facts().bound:.3g})" for one in known]
    with figure_file(path, 9.2, 0.42 * len(known) + 1.4) as figure:
        for axes, (title, values) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
            rows = range(len(known))
            axes.barh(rows, values, height=0.6, color=[STYLES[one.request.accountant][0] for one in known])
            for row, value in zip(rows, values, strict=True):
                text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
                axes.annotate(text, (value, row), xytext=(3, 0), textcoords="offset points", va="center")
            if title.startswith("messages"):
                axes.set(title=title, xlim=(0.0, 1.5 * max(values)))
            else:
                axes.set(xscale="log", title=title, xlim=(min(values) / 3.0, max(values) * 12.0))
            axes.set_yticks(rows, names)
            axes.tick_params(labelsize=9)
        figure.axes[0].invert_yaxis()
        refused = [one.name for one in outcomes if one.protocol is None]
        if refused:
            figure.supxlabel(f"not possible: {', '.join(refused)}", fontsize=9)


def plot_accuracies(accuracies: Mapping[str, Accuracy], path: Path, *, highlighted: str, chance: float) -> None:
    """One bar for each method with its interval, its name above it, and a line at guessing."""
    with figure_file(path, 4.9, 0.6 * len(accuracies) + 0.8) as figure:
        axes = figure.subplots()
        for row, (name, accuracy) in enumerate(accuracies.items()):
            color = BLUE if name == highlighted else GRAY
            axes.barh(row, accuracy.value, height=0.42, color=color)
            spread = [[accuracy.value - accuracy.low], [accuracy.high - accuracy.value]]
            axes.errorbar(accuracy.value, row, xerr=spread, color=INK, capsize=3.5, linewidth=1.3)
            weight = "bold" if name == highlighted else "normal"
            axes.text(0.0, row - 0.3, name, va="bottom", fontsize=10, fontweight=weight)
            axes.text(1.02, row, f"{accuracy.value:.1%}", va="center", fontweight=weight)
            axes.vlines(chance, row - 0.27, row + 0.27, color=ORANGE, linewidth=2.0)
        axes.text(chance, len(accuracies) - 0.7, "↑ guessing", color=ORANGE, va="top", fontsize=10)
        axes.set(xlim=(0.0, 1.17), ylim=(len(accuracies) - 0.15, -0.75), yticks=[], xlabel="accuracy")
        axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.spines["left"].set_visible(False)


def plot_confusion(counts: NDArray[np.int64], labels: Sequence[str], path: Path) -> None:
    """How often each class (rows) was taken for each class (columns)."""
    with figure_file(path, 5.0, 4.6) as figure:
        axes = figure.subplots()
        shown = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axes.pcolormesh(np.arange(len(labels)), np.arange(len(labels)), shown, cmap="cividis", vmin=0.0, vmax=1.0)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                ink = "#000000" if shown[row, column] > 0.55 else "#f8f8f8"
                axes.text(column, row, str(count), ha="center", va="center", color=ink, fontsize=10)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(labels)), labels)
        axes.set(xlabel="predicted", ylabel="written", aspect="equal")
        axes.invert_yaxis()


def plot_gallery(columns: Mapping[str, Sequence[tuple[NDArray[np.float64], bool]]], path: Path) -> None:
    """The pictures that stand for each class, best on top; those of another class get a frame and a cross."""
    deepest = max(len(pictures) for pictures in columns.values())
    with figure_file(path, 0.72 * len(columns), 0.78 * deepest + 0.3) as figure:
        grid = figure.subplots(deepest, len(columns), squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for column, (label, pictures) in enumerate(columns.items()):
            grid[0, column].set_title(label)
            for row, (picture, right) in enumerate(pictures):
                axes = grid[row, column]
                axes.imshow(picture, cmap="gray")
                if not right:
                    axes.set_axis_on()
                    axes.set(xticks=[], yticks=[])
                    axes.text(0.97, 0.97, "×", color=ORANGE, ha="right", va="top", transform=axes.transAxes)
                    for spine in axes.spines.values():
                        spine.set(visible=True, color=ORANGE, linewidth=2.5)
