"""Pictures of plans (extra `report`: matplotlib)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting import InvalidInputError
from accounting.kernels import KERNELS
from accounting.releases.plan_curves import profile_curves

if TYPE_CHECKING:
    from accounting import Plan
    from accounting.comparing import Outcome

FORMATS = (".svg", ".png", ".pdf")
INK = "#1b1f24"
"""Lines and letters; whoever puts a figure on a page may replace it with the page's own color."""
BLUE, ORANGE, GREEN, PURPLE, GRAY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c959f"
"""Okabe and Ito's colors, which people with any kind of color vision can tell apart, and a gray."""
STYLES: Mapping[str, tuple[str, Any]] = defaultdict(
    lambda: (GRAY, "-"),
    paper=(PURPLE, ":"),
    basic=(GREEN, "--"),
    advanced=(ORANGE, "-."),
    pld=(BLUE, "-"),
    geometric=(INK, (0, (6, 1.5))),
)
"""Color and dashes of each rung; gray for one that is registered by others."""
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
    """Refuse a file name whose ending is not a known picture format."""
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
    possible = [outcome for outcome in outcomes if outcome.protocol is not None]
    if not possible:
        raise InvalidInputError("no rung meets the request, so there is nothing to draw; raise epsilon or users.")
    panels: dict[str, list[float]] = {
        "noise of a sum of features": [outcome.noise for outcome in possible],
        "predicted error of a density": [outcome.total_error for outcome in possible],
        "messages per user": [outcome.messages_per_user or 0.0 for outcome in possible],
    }
    names = [outcome.name for outcome in possible]
    if KERNELS[possible[0].request.kernel].takes_bound:
        names = [f"{outcome.request.accountant} (R = {outcome.request.facts().bound:.3g})" for outcome in possible]
    with figure_file(path, 9.2, 0.42 * len(possible) + 1.4) as figure:
        for axes, (title, values) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
            rows = range(len(possible))
            axes.barh(rows, values, height=0.6, color=[STYLES[outcome.request.accountant][0] for outcome in possible])
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
        refused = [outcome.name for outcome in outcomes if outcome.protocol is None]
        if refused:
            figure.supxlabel(f"not possible: {', '.join(refused)}", fontsize=9)
