"""Plans as tables for the terminal."""

from __future__ import annotations

from rich.table import Table

from accounting import Plan, PlanRequest, PrivkdeError
from accounting.choosing import prediction
from accounting.mechanisms import BitsumProtocol


def plan_table(plan: Plan) -> Table:
    """The decisions of one plan."""
    request = plan.request
    table = Table(title="Plan", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("promise", "\n".join(str(g) for g in plan.guarantees))
    table.add_row("kernel", f"{request.kernel}, d = {request.dim}, I = {request.facts().n_repetitions}")
    table.add_row("users", _users(plan))
    table.add_row("bitsum", plan.bitsum)
    table.add_row("parameters", "\n".join(f"{k} = {v:.6g}" for k, v in plan.parameters.items()))
    table.add_row("one instance", f"ε₀ = {plan.epsilon_0:.6g}, δ₀ = {plan.delta_0:.3g}")
    table.add_row("instances per user", f"{plan.instances_per_user:,}")
    table.add_row("bitsum RMSE", f"{plan.bitsum_rmse:.6g}")
    table.add_row("predicted error ≤", f"{plan.error.total:.4g} (privacy part {plan.error.privacy:.3g})")
    table.add_row("Theorem 3.2 bound", f"{plan.sup_rmse_bound:.4g}")
    table.add_row("messages per user", f"{plan.messages_per_user:,.6g} ({plan.bits_per_user:,.6g} bits)")
    for baseline in plan.baselines:
        table.add_row(f"{baseline.name} baseline", f"predicted error {baseline.predicted_rmse:.4g}")
    return table


def _users(plan: Plan) -> str:
    request = plan.request
    text = f"{request.users:,}"
    if request.classes is not None:
        text += f" in {request.classes} classes"
    if request.counted_users != request.users:
        text += f"; noise counts on {request.counted_users:,} per protocol"
    return text


def ladder_table(plan: Plan) -> Table:
    """What each rung proves at the plan's parameters."""
    table = Table(title="ε that each rung proves at these parameters", title_justify="left")
    for name in plan.ladder:
        table.add_column(f"{name} (used)" if name == plan.accountant else name, justify="right")
    table.add_row(*("—" if value is None else f"{value:.6g}" for value in plan.ladder.values()))
    return table


def compare_table(outcomes: list[tuple[str, PlanRequest, BitsumProtocol | PrivkdeError]]) -> Table:
    """The same request calibrated by each rung."""
    table = Table(
        title="The same promise, calibrated by each rung (RMSE of one bitsum, predicted error, messages per user)",
        title_justify="left",
    )
    table.add_column("accountant")
    for name in ("parameter", "value", "RMSE", "error", "messages"):
        table.add_column(name, justify="right", no_wrap=name != "parameter")
    for name, request, outcome in outcomes:
        if isinstance(outcome, PrivkdeError):
            table.add_row(name, f"[dim]{outcome}[/dim]", "—", "—", "—", "—")
            continue
        names = [key for key in outcome.parameters() if not key.endswith("_per_user")]
        values = [f"{outcome.parameters()[key]:#.4g}" for key in names]
        rmse = outcome.rmse(request.users_per_protocol)
        messages = request.facts().n_instances * outcome.messages_per_user()
        error = prediction(request, outcome).total
        table.add_row(name, "\n".join(names), "\n".join(values), *(_number(x) for x in (rmse, error, messages)))
    return table


def _number(value: float) -> str:
    return f"{value:.4g}" if value < 10_000 else f"{value:,.0f}"
