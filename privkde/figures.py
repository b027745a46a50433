"""Pictures of a plan (extra `report`: matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accounting import InvalidInputError
from accounting.curves import profile_curves

if TYPE_CHECKING:
    from accounting import Plan

FORMATS = (".svg", ".png", ".pdf")


def require_drawable(path: Path) -> None:
    """Refuse a file name whose ending is no known picture format."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"plot file {path.name!r} must end in one of {', '.join(FORMATS)}; rename it.")


def plot_profile(plan: Plan, path: Path) -> None:
    """δ(ε) of every rung at the plan's parameters, with the promised point marked."""
    require_drawable(path)
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InvalidInputError(
            "--plot needs matplotlib; install the extra with `pip install privkde[report]`."
        ) from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.0, 4.6), layout="constrained")
    for name, curve in profile_curves(plan).items():
        epsilons = [epsilon for epsilon, _ in curve]
        deltas = [delta for _, delta in curve]
        axes.plot(epsilons, deltas, label=name, linewidth=2.4 if name == plan.accountant else 1.4)
    promise = plan.guarantees[0]
    if promise.delta > 0.0:
        axes.plot([promise.epsilon], [promise.delta], "o", color="black", zorder=5)
        axes.annotate(
            f"promise ({promise.epsilon:g}, {promise.delta:g})",
            (promise.epsilon, promise.delta),
            textcoords="offset points",
            xytext=(8, 6),
        )
    request = plan.request
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="ε",
        ylabel="δ(ε), upper bound",
        title=f"{plan.bitsum}, {request.kernel}, n = {request.users:,}, {plan.instances_per_user:,} instances per user",
    )
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(title="what each rung proves")
    figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    plt.close(figure)
