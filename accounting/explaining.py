"""A plan in words and formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accounting.guarantee import Adjacency, Guarantee
from accounting.mechanisms import (
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)

if TYPE_CHECKING:
    from accounting.planning import Plan

_RANDOMIZERS = {
    RandomizedResponse.name: "each user reports each bit, flipped with probability p = flip_probability;"
    " the analyzer computes (count − n·p)/(1 − 2p)",
    ThreeNegativeBinomial.name: "each user sends b + ψ1 + ψ3 messages +1 and ψ2 + ψ3 messages −1, with"
    " ψ1, ψ2 ~ NB(noise_shape_per_user, continue_probability) and ψ3 ~ NB(flood_shape_per_user,"
    " flood_continue_probability); the analyzer computes (#+1) − (#−1)",
    PoissonNoise.name: "each user sends b + Poisson(mean_per_user) messages; the analyzer subtracts the mean",
    NegativeBinomialNoise.name: "each user sends b + NB(shape_per_user, continue_probability) messages;"
    " the analyzer subtracts the mean",
    Pure.name: "each user sends nothing with probability silence_probability, else base_messages pairs and its bit,"
    " plus noise and flood; the analyzer computes ((#+1) − (#−1))/(1 − silence_probability)",
}


def explain(plan: Plan) -> str:
    """The promise, the arithmetic that leads to it, the error, the cost and the hypotheses."""
    sections = [
        ("Promise", _promise(plan)),
        ("Randomizer", _randomizer(plan)),
        ("Accounting", _accounting(plan)),
        ("Error", _error(plan)),
        ("Communication", _communication(plan)),
        ("Why", list(plan.reasons)),
        ("Contract", plan.contract.tree().splitlines()),
    ]
    return "\n\n".join(title + "\n" + "\n".join("  " + line for line in lines) for title, lines in sections) + "\n"


def _promise(plan: Plan) -> list[str]:
    lines = [str(g) for g in plan.guarantees]
    main = plan.guarantees[0]
    lines.append(_in_words(main))
    return lines


def _in_words(main: Guarantee) -> str:
    plus = "" if main.delta == 0 else f" plus {main.delta:g}"
    what = "features and label are" if main.adjacency is Adjacency.RECORD else "features are"
    return (
        f"Whatever one person's {what} replaced by, the probability of anything that an observer of all"
        f" shuffled messages may see is at most e^{main.epsilon:g} times what it was{plus}."
    )


def _randomizer(plan: Plan) -> list[str]:
    numbers = ", ".join(f"{name} = {value:.6g}" for name, value in plan.parameters.items())
    counted = plan.request.counted_users
    return [
        f"{plan.bitsum}: {_RANDOMIZERS[plan.bitsum]}.",
        numbers,
        f"The noise counts on {counted} honest users; fewer must not be published, more only help.",
    ]


def _accounting(plan: Plan) -> list[str]:
    facts = plan.request.facts()
    formula = f"min(2S, Q)·I = min(2·{facts.sparsity}, {facts.n_coordinates})·{facts.n_repetitions}"
    if plan.request.joint:
        formula = f"2SI + 2 = 2·{facts.sparsity}·{facts.n_repetitions} + 2"
    lines = [
        f"One user touches {formula} = {plan.instances_per_user} bitsum instances.",
        f"One instance is ({plan.epsilon_0:.6g}, {plan.delta_0:.3g})-DP.",
    ]
    if plan.accountant in ("advanced", "paper") and plan.bitsum != Pure.name:
        lines.append("ε = ε₀(e^ε₀ − 1)·k + ε₀·sqrt(2k ln(1/δ')), δ = k·δ₀ + δ', δ' = δ/2 (Theorem 3.2).")
    elif plan.accountant == "basic" or plan.bitsum == Pure.name:
        lines.append("ε = k·ε₀, δ = k·δ₀ (basic composition).")
    elif plan.accountant == "geometric":
        lines.append(
            f"Squared shifts of one user's bits add up to at most Δ² = {facts.touched.shift_budget:.6g}; the bound on"
            " δ(ε) is computed from that (docs/proofs/geometric.md, which recomputes one plan by hand)."
        )
    else:
        lines.append("δ(ε) = E[(1 − e^{ε − L})₊] for the composed privacy loss L of a dominating pair (rounded up).")
    lines.append("What each rung proves at these parameters:")
    for name, epsilon in plan.ladder.items():
        mark = " ← used" if name == plan.accountant else ""
        lines.append(f"  {name:<9} ε = {'does not apply' if epsilon is None else f'{epsilon:.6g}'}{mark}")
    return lines


def _error(plan: Plan) -> list[str]:
    parts = plan.error
    lines = [
        f"Bitsum RMSE {plan.bitsum_rmse:.6g} out of {plan.request.users_per_protocol} users.",
        f"Predicted error of the density, at most: {parts.total:.4g} = sqrt((bias {parts.bias:.3g} + labels"
        f" {parts.labels:.3g})² + features {parts.feature:.3g}² + rounding {parts.rounding:.3g}² + privacy"
        f" {parts.privacy:.3g}²).",
    ]
    if plan.sup_rmse_bound is not None:
        lines.append(f"Theorem 3.2 guarantees supRMSE ≤ {plan.sup_rmse_bound:.4g}.")
    lines += [f"For comparison, {b.name} DP: predicted error {b.predicted_rmse:.4g}." for b in plan.baselines]
    return lines


def _communication(plan: Plan) -> list[str]:
    return [
        f"{plan.messages_per_user:.6g} messages, {plan.bits_per_user:.6g} bits per user in expectation"
        " (bits that are 1 half of the time)."
    ]
