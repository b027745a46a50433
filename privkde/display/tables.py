"""Plans, models, their answers and budgets as tables for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import OverflowMethod
from rich.markup import escape
from rich.table import Table

from accounting import Plan
from accounting.comparing import Outcome
from accounting.errors import printable
from accounting.kernels import KERNELS
from privkde.learning.scoring import Accuracy

if TYPE_CHECKING:
    from privkde.learning.decoding import Term
    from privkde.learning.kernel_merits import KernelMerits
    from privkde.ledger.records import Charge, Quote, Standing, Use
    from privkde.protocol.model import DensityModel
    from privkde.protocol.parties import Analyzer


def _shown(value: Any) -> str:
    """Text of others: neither markup nor anything else that a terminal would obey."""
    return escape(printable(str(value)))


def plan_table(plan: Plan) -> Table:
    """The decisions of one plan."""
    request = plan.request
    table = _facts("Plan")
    over, once = ("", "") if request.releases == 1 else (f" over {request.releases:,} releases", ", one release")
    table.add_row(f"promise{over}", "\n".join(str(g) for g in plan.guarantees))
    alone = plan.epsilon_of_one_release() if request.releases > 1 else None
    if alone is not None:
        of_what = " for the vector" if request.label_epsilon is not None else ""
        table.add_row("one release alone", f"ε = {alone:.4g} at the same δ{of_what}")
    facts = request.facts()
    table.add_row("kernel", f"{facts.name}, d = {facts.dim}, I = {facts.n_repetitions}, R = {facts.bound:.4g}")
    table.add_row("users", _users(plan))
    table.add_row("bitsum", plan.bitsum)
    table.add_row("parameters", "\n".join(f"{k} = {v:.6g}" for k, v in plan.parameters.items()))
    table.add_row("one instance", f"ε₀ = {plan.epsilon_0:.6g}, δ₀ = {plan.delta_0:.3g}")
    table.add_row(f"instances per user{over}", f"{plan.instances_per_user:,}")
    table.add_row(f"bitsum RMSE{once}", f"{plan.bitsum_rmse:.6g}")
    table.add_row(f"predicted error{once} ≤", f"{plan.error.total:.4g} (privacy part {plan.error.privacy:.3g})")
    if plan.sup_rmse_bound is not None:
        table.add_row(f"Theorem 3.2 bound{once}", f"{plan.sup_rmse_bound:.4g}")
    table.add_row(f"messages per user{once}", f"{plan.messages_per_user:,.6g} ({plan.bits_per_user:,.6g} bits)")
    for baseline in plan.baselines:
        table.add_row(f"{baseline.name} baseline{once}", f"predicted error {baseline.predicted_rmse:.4g}")
    return table


def _users(plan: Plan) -> str:
    request = plan.request
    text = f"{request.users:,}"
    if request.classes is not None:
        text += f" in {request.classes} classes" + (" with joint labels" if request.joint else "")
    if request.counted_users != request.users:
        text += f"; noise counts on {request.counted_users:,}" + (" per class" if request.n_protocols > 1 else "")
    if request.n_colluders:
        text += f", {request.least_packets:,} are waited for: {request.n_colluders:,} may collude"
    return text


def ladder_table(plan: Plan) -> Table:
    """What each rung proves at the plan's parameters."""
    table = Table(title="ε that each rung proves at these parameters", title_justify="left")
    for name in plan.ladder:
        table.add_column(f"{name} (used)" if name == plan.accountant else name, justify="right")
    table.add_row(*("—" if value is None else f"{value:.6g}" for value in plan.ladder.values()))
    return table


def compare_table(outcomes: Sequence[Outcome]) -> Table:
    """The same request calibrated by each rung."""
    table = Table(
        title="The same promise, calibrated by each rung (RMSE of one bitsum; noise of a sum of features; predicted"
        " error of a density; messages per user)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption=_refusals(outcomes),
        caption_justify="left",
    )
    table.add_column("accountant")
    for name in ("parameter", "value", "RMSE", "noise", "error", "messages"):
        table.add_column(name, justify="right", no_wrap=name != "parameter")
    for outcome in outcomes:
        rmse, error, messages = outcome.bitsum_rmse, outcome.error, outcome.messages_per_user
        if outcome.protocol is None or rmse is None or error is None or messages is None:
            table.add_row(outcome.name, "not possible", *("—" for _ in range(5)))
            continue
        parameters = {k: v for k, v in outcome.protocol.parameters().items() if not k.endswith("_per_user")}
        if KERNELS[outcome.request.kernel].takes_bound:
            parameters["bound"] = outcome.request.facts().bound
        table.add_row(
            outcome.name,
            "\n".join(parameters),
            "\n".join(f"{value:#.4g}" for value in parameters.values()),
            *(_number(x) for x in (rmse, outcome.noise, error.total, messages)),
        )
    return table


def _refusals(outcomes: Sequence[Outcome]) -> str | None:
    """Why some are not possible, one line each."""
    return "\n".join(f"{refused.name}: {refused.refusal}" for refused in outcomes if refused.protocol is None) or None


def models_table(outcomes: Sequence[Outcome], accuracies: Mapping[str, float]) -> Table:
    """Joint labels with each model: messages, noise and, where a labeled sample tells it, expected accuracy."""
    table = Table(
        title="Models: one collection of features and labels (norm of the noise of a mean, vectors having norm 1;"
        " spectral scale of the noise of second moments, in units of their mean eigenvalue)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption=_refusals(outcomes),
        caption_justify="left",
    )
    table.add_column("model")
    for name in ("messages", "noise of a mean", "of moments", *(["expected accuracy"] if accuracies else [])):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        record, messages = outcome.request.record, outcome.messages_per_user
        if record is None or messages is None or outcome.protocol is None:
            table.add_row(outcome.name, "not possible")
            continue
        size, n, bound = outcome.request.users_per_density, outcome.request.users, outcome.request.facts().bound
        noise = record.noise_deviation(bound, n, outcome.protocol.variance(n))
        of_moments = _number(record.noise_of_moments(noise, n)) if record.moment_weight else "—"
        accuracy = [f"{accuracies[outcome.name]:.1%}"] if outcome.name in accuracies else []
        table.add_row(
            outcome.name, f"{messages:,.0f}", _number(record.noise_of_mean(noise, size)), of_moments, *accuracy
        )
    return table


def kernels_table(outcomes: Sequence[Outcome], merits: Mapping[str, KernelMerits]) -> Table:
    """The same promise with each kernel: messages and, where a sample tells it, what users can judge."""
    lines = ["Predicted errors are of densities that differ with the kernel: compare them for one kernel only."]
    if merits:
        lines.append(
            "Wrong order: pairs of public rows whose published densities are not ordered as the exact ones. Outliers"
            " found: chance that a row has a larger density than a vector mixed of the coordinates of many rows (one"
            " half is guessing); in parentheses by exact densities. Bandwidth: median distance of two rows."
        )
    else:
        lines.append("--sample FILE of public vectors X adds what can be compared: order of densities, outliers found.")
    table = Table(
        title="Kernels: the same promise for a density",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption="\n".join([*lines, *filter(None, [_refusals(outcomes)])]),
        caption_justify="left",
    )
    table.add_column("kernel", no_wrap=True)
    judged = ("bandwidth", "wrong order", "outliers found") if merits else ()
    for name in ("messages", "predicted error", *judged):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        messages, error = outcome.messages_per_user, outcome.error
        if messages is None or error is None:
            table.add_row(outcome.name, "not possible")
            continue
        cells = [_number(messages), _number(error.total)]
        if outcome.name in merits:
            one = merits[outcome.name]
            cells += [
                "—" if one.bandwidth is None else _number(one.bandwidth),
                f"{one.wrong_order:.1%}",
                f"{one.outliers_found:.1%} ({one.outliers_found_exactly:.1%})",
            ]
        table.add_row(outcome.name, *cells)
    return table


def labels_table(outcomes: Sequence[Outcome]) -> Table:
    """Separate and joint labels for the same total ε, and which is recommended."""
    best = min(outcomes, key=lambda outcome: outcome.total_error)
    table = Table(title="Labels: the same total ε protected in two ways", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("labels")
    for name in ("ε of features", "ε of label", "error", "of it mislabeled", "messages"):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        request, error, messages = outcome.request, outcome.error, outcome.messages_per_user
        name = f"{outcome.name} ← recommended" if outcome is best else outcome.name
        times = "" if request.releases == 1 else f"{request.releases}·"
        label = "together" if request.label_epsilon is None else f"{times}{request.label_epsilon:g}"
        split = f"{request.kde_epsilon:g}", label
        if error is None or messages is None:
            table.add_row(name, *split, "—", "—", "—")
        else:
            table.add_row(name, *split, *(_number(x) for x in (error.total, error.labels, messages)))
    return table


def _number(value: float) -> str:
    return f"{value:.4g}" if value < 10_000 else f"{value:,.0f}"


def _facts(title: str, *, overflow: OverflowMethod = "ellipsis") -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow=overflow)
    return table


def model_table(model: DensityModel, reported: Mapping[Any, int], path: Path) -> Table:
    """A published model: what it promises, whom it speaks of and where it is."""
    table = _facts("Model")
    if not model.private:
        table.add_row("[red]not private[/red]", "[bold]not private[/bold]: the private draws came from a seed")
    first = model.plans[0]
    over = "" if first.request.releases == 1 else f" over {first.request.releases:,} releases"
    table.add_row(f"promise{over}", "\n".join(str(g) for g in model.contract.guarantees))
    facts = first.request.facts()
    table.add_row("kernel", f"{facts.name}, d = {facts.dim}, I = {facts.n_repetitions}, R = {facts.bound:.4g}")
    table.add_row("bitsum", f"{first.bitsum}, accounted for by {first.accountant}")
    table.add_row("users", f"{sum(model.n_users):,}")
    if model.labels:
        released = {str(label) for label in model.classes}
        counts = [f"{_shown(c)}: {n:,}{'' if str(c) in released else ' (excluded)'}" for c, n in reported.items()]
        table.add_row("classes", f"{len(released)} released")
        table.add_row("estimated sizes" if first.request.joint else "reported counts", "\n".join(counts))
    table.add_row("written", _shown(path))
    return table


def counts_table(analyzer: Analyzer, path: Path) -> Table:
    """Counts of packets: for whom, of how many, and where they are."""
    table = _facts("Counts")
    announcement = analyzer.announcement
    table.add_row("collection", announcement.collection().hex())
    table.add_row("users", f"{analyzer.n_users:,} of {announcement.plan.request.users:,} planned")
    table.add_row("refused packets", f"{analyzer.rejected:,}")
    table.add_row("repeated packets", f"{analyzer.repeated:,}")
    table.add_row("clients' draws", "marked secret" if analyzer.secret else "not all marked secret: not private")
    table.add_row("messages", f"{int(analyzer.tally.ones.sum() + analyzer.tally.zeros.sum()):,}")
    table.add_row("written", _shown(path))
    return table


def prediction_table(predicted: NDArray[Any], *, classes: bool, accuracy: Accuracy | None, path: Path | None) -> Table:
    """What was predicted, in short: how often each class, or how the densities spread."""
    table = _facts("Predictions")
    table.add_row("queries", f"{len(predicted):,}")
    if not classes:
        low, middle, high = np.quantile(predicted, [0.0, 0.5, 1.0])
        table.add_row("densities", f"{low:.4g} to {high:.4g}, median {middle:.4g}")
    else:
        counts = Counter(predicted.tolist())
        table.add_row("classes", "\n".join(f"{_shown(c)}: {n:,}" for c, n in sorted(counts.items())))
    if accuracy is not None:
        table.add_row("accuracy", str(accuracy))
    if path is not None:
        table.add_row("written", _shown(path))
    return table


def terms_table(terms: Sequence[tuple[Any, Sequence[Term]]], *, contrast: bool) -> Table:
    """The best terms of each class, best first, with their scores."""
    ranked = "density above the mean of the classes" if contrast else "density"
    table = Table(title=f"Terms of highest {ranked}", title_justify="left")
    table.add_column("class", style="bold")
    table.add_column("terms")
    for label, best in terms:
        table.add_row(_shown(label), ", ".join(f"{_shown(term.word)} ({term.score:.3g})" for term in best))
    return table


def standings_table(standings: Sequence[Standing]) -> Table:
    """What is spent of each budget: ε at its δ, and δ at its ε."""
    table = _table("Budgets (for replacing one record)")
    table.add_column("budget", style="bold", overflow="fold")
    for name in ("ε spent", "δ spent", "charges"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("view", no_wrap=True)
    table.add_column("composition")
    for standing in standings:
        budget = standing.budget
        table.add_row(
            budget.name,
            f"{standing.spent:.6g} of {budget.epsilon:.6g}",
            f"{_delta(standing.delta_spent)} of {budget.delta:.3g}",
            f"{standing.n_charges:,}",
            str(budget.view),
            f"{budget.composition}{' (sums)' if standing.by_sums else ''}",
        )
    if any(standing.budget.composition == "pld" for standing in standings):
        table.caption = "pld holds only if all releases were fixed before the first of them."
    return table


def standing_details(standing: Standing) -> list[Table]:
    """The cohorts and schedules of a budget, if it has any."""
    tables = []
    if standing.cohorts:
        cohorts = _table("Cohorts (releases about everybody included)")
        cohorts.add_column("cohort", style="bold", overflow="fold")
        cohorts.add_column("ε spent", justify="right", no_wrap=True)
        for cohort, epsilon in sorted(standing.cohorts.items()):
            cohorts.add_row(_shown(cohort), f"{epsilon:.6g} of {standing.budget.epsilon:.6g}")
        tables.append(cohorts)
    if standing.schedules:
        schedules = _table("Schedules")
        schedules.add_column("release", style="bold", overflow="fold")
        schedules.add_column("key", overflow="fold")
        schedules.add_column("used", justify="right", no_wrap=True)
        for schedule in standing.schedules:
            schedules.add_row(_shown(schedule.name), _shown(schedule.key), f"{schedule.used:,} of {schedule.times:,}")
        tables.append(schedules)
    return tables


def history_table(budget: str, charges: Sequence[Charge]) -> Table:
    """All charges of a budget, first to last."""
    table = _table(f"Charges of {_shown(budget)}")
    for name in ("№", "ε", "δ", "ε spent", "δ spent"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("release", "key"):
        table.add_column(name, overflow="fold")
    table.add_column("charged", no_wrap=True)
    for charge in charges:
        promise = charge.guarantee
        numbers = (f"{promise.epsilon:.6g}", f"{promise.delta:.3g}", f"{charge.spent_after:.6g}")
        created = _shown(charge.created[:16].replace("T", " "))
        name = _shown(charge.name) + _collections(charge)
        name += "" if charge.cohort is None else f" ({_shown(charge.cohort)})"
        name += "" if charge.certificate is None else f"\n{_shown(charge.certificate.headline)}"
        table.add_row(str(charge.number), *numbers, _delta(charge.after.at_budget), name, _shown(charge.key), created)
    return table


def uses_table(uses: Sequence[Use]) -> Table:
    """The collections of schedules that were used."""
    table = _table("Uses")
    for name in ("schedule", "№", "key", "used"):
        table.add_column(name, overflow="fold")
    for use in uses:
        table.add_row(
            _shown(use.schedule), str(use.number), _shown(use.key), _shown(use.created[:16].replace("T", " "))
        )
    return table


def charge_table(charge: Charge, standing: Standing) -> Table:
    """A charge, and what is left of its budget now."""
    table = _facts("Charged", overflow="fold")
    table.add_row("release", _shown(charge.name))
    table.add_row(
        "promise", f"{charge.guarantee}{'' if charge.release.times == 1 else f', {charge.release.times} times'}"
    )
    if charge.release.collections > 1:
        how = f"{charge.release.collections:,}; take each with `privkde budget use {charge.budget} {charge.key}`"
        table.add_row("collections", _shown(how))
    table.add_row("about", _shown(charge.cohort or "everybody"))
    table.add_row("key", _shown(charge.key))
    if charge.plan_sha256 is not None:
        table.add_row("certificate", "none" if charge.certificate is None else _shown(charge.certificate.headline))
    table.add_row("cost", _cost(charge.spent_before, charge.spent_after))
    table.add_row("budget", f"{standing.budget.name}: ε = {standing.budget.epsilon:g} at δ = {standing.budget.delta:g}")
    after = "1 charge" if standing.n_charges == 1 else f"{standing.n_charges:,} charges"
    table.add_row("left now", f"ε = {standing.remaining:.6g} after {after}")
    table.add_row(
        "δ spent", f"{_delta(standing.delta_spent)} of {standing.budget.delta:g} at ε = {standing.budget.epsilon:g}"
    )
    return table


def quote_table(quote: Quote) -> Table:
    """What a release would cost."""
    table = _facts("Would cost (nothing was charged)", overflow="fold")
    table.add_row("cost", _cost(quote.before.epsilon, quote.after.epsilon))
    table.add_row("left before", f"ε = {quote.remaining:.6g}")
    table.add_row("δ spent", f"{_delta(quote.before.at_budget)}, then {_delta(quote.after.at_budget)}")
    excess = (
        f" by ε = {quote.difference:.6g}" if math.isfinite(quote.difference) else ": δ does not suffice, whatever ε"
    )
    table.add_row("verdict", "fits" if quote.fits else f"exceeds the budget{excess}")
    return table


def _collections(charge: Charge) -> str:
    return "" if charge.release.collections == 1 else f", {charge.release.collections:,} collections"


def _delta(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.3g}"


def _cost(before: float, after: float) -> str:
    return f"ε = {after - before:.6g} (spent {before:.6g}, then {after:.6g})"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
