"""A plan in words and formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accounting.composition import LADDER
from accounting.guarantee import Adjacency, Guarantee
from accounting.mechanisms import BITSUMS

if TYPE_CHECKING:
    from accounting.plan import Plan


def explain(plan: Plan) -> str:
    """The promise, the arithmetic that leads to it, the error, the cost and the hypotheses."""
    sent = f"{plan.messages_per_user:.6g} messages, {plan.bits_per_user:.6g} bits per user"
    sections = [
        ("Promise", [*map(str, plan.guarantees), _in_words(plan.guarantees[0], plan.request.releases)]),
        ("Randomizer", _randomizer(plan)),
        ("Accounting", _accounting(plan)),
        ("Error", _error(plan)),
        ("Communication", [f"{sent} in expectation{_in_one(plan)} (bits that are 1 half of the time)."]),
        ("Why", list(plan.reasons)),
        ("Contract", plan.contract.tree().splitlines()),
    ]
    return "\n\n".join(title + "\n" + "\n".join("  " + line for line in lines) for title, lines in sections) + "\n"


def _in_words(main: Guarantee, n_releases: int) -> str:
    plus = "" if main.delta == 0 else f" plus {main.delta:g}"
    what = "features and label are" if main.adjacency is Adjacency.RECORD else "features are"
    where = "" if n_releases == 1 else f" in any or all of {n_releases} releases"
    return (
        f"Whatever one person's {what} replaced by{where}, the probability of anything that an observer of all"
        f" shuffled messages may see is at most e^{main.epsilon:g} times what it was{plus}."
    )


def _randomizer(plan: Plan) -> list[str]:
    request = plan.request
    lines = [
        f"{plan.bitsum}: {BITSUMS[plan.bitsum].randomizer}.",
        ", ".join(f"{name} = {value:.6g}" for name, value in plan.parameters.items()),
        f"The noise counts on {request.counted_users} honest users; fewer must not be published, more only help.",
    ]
    if request.n_colluders:
        lines.append(
            f"Up to {request.n_colluders} of those who take part may collude, so {request.least_packets} packets are"
            " waited for."
        )
    return lines


def _accounting(plan: Plan) -> list[str]:
    facts, rung = plan.request.facts(), LADDER[plan.accountant]
    formula = f"min(2S, Q)·I = min(2·{facts.sparsity}, {facts.n_coordinates})·{facts.n_repetitions}"
    if facts.record is not None:
        formula = f"all of {facts.record.n_coordinates} coordinates and zeros"
    elif plan.request.joint:
        formula = f"2SI + 2 = 2·{facts.sparsity}·{facts.n_repetitions} + 2"
    in_all = (
        "" if facts.n_releases == 1 else f" in each of {facts.n_releases} releases, {plan.instances_per_user} in all"
    )
    lines = [
        f"One user touches {formula} = {facts.touched_once.total} bitsum instances{in_all}.",
        f"One instance is ({plan.epsilon_0:.6g}, {plan.delta_0:.3g})-DP.",
        rung.formula(BITSUMS[plan.bitsum], rung.touched(facts)),
        "What each rung proves at these parameters:",
    ]
    for name, epsilon in plan.ladder.items():
        mark = " ← used" if name == plan.accountant else ""
        lines.append(f"  {name:<9} ε = {'does not apply' if epsilon is None else f'{epsilon:.6g}'}{mark}")
    return lines


def _error(plan: Plan) -> list[str]:
    parts = plan.error
    lines = [
        f"Bitsum RMSE {plan.bitsum_rmse:.6g} out of {plan.request.users_per_protocol} users{_in_one(plan)}.",
        f"Predicted error of the density, at most: {parts.total:.4g} = sqrt((bias {parts.bias:.3g} + labels"
        f" {parts.labels:.3g})² + features {parts.feature:.3g}² + rounding {parts.rounding:.3g}² + privacy"
        f" {parts.privacy:.3g}²).",
    ]
    if plan.sup_rmse_bound is not None:
        lines.append(f"Theorem 3.2 guarantees supRMSE ≤ {plan.sup_rmse_bound:.4g}.")
    lines += [f"For comparison, {b.name} DP: predicted error {b.predicted_rmse:.4g}." for b in plan.baselines]
    return lines


def _in_one(plan: Plan) -> str:
    """For what is said of a single release of several."""
    return "" if plan.request.releases == 1 else " in one release"
