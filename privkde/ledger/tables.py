"""Budgets and charges as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from privkde.ledger.records import Charge, Quote, Standing


def standings_table(standings: Sequence[Standing]) -> Table:
    """What is spent and what is left of each budget, in ε at its δ."""
    table = _table("Budgets (ε at the δ of each, for replacing one record)")
    table.add_column("budget", style="bold", overflow="fold")
    for name in ("ε", "δ", "spent", "left", "charges"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("view")
    table.add_column("adds by")
    for one in standings:
        budget = one.budget
        numbers = (f"{x:.6g}" for x in (budget.epsilon, budget.delta, one.spent, one.remaining))
        table.add_row(budget.name, *numbers, f"{one.n_charges:,}", str(budget.view), str(budget.composition))
    return table


def history_table(budget: str, charges: Sequence[Charge]) -> Table:
    """All charges of one budget, first to last."""
    table = _table(f"Charges of {budget}")
    for name in ("№", "ε", "δ", "spent after"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("release", "key"):
        table.add_column(name, overflow="fold")
    table.add_column("charged", no_wrap=True)
    for one in charges:
        promise = one.guarantee
        numbers = (f"{promise.epsilon:.6g}", f"{promise.delta:.3g}", f"{one.spent_after:.6g}")
        table.add_row(str(one.number), *numbers, escape(one.name), escape(one.key), one.created[:16].replace("T", " "))
    return table


def charge_table(charge: Charge, standing: Standing) -> Table:
    """One charge, and where the budget stands now."""
    table = _facts("Charged")
    table.add_row("release", escape(charge.name))
    table.add_row("promise", str(charge.guarantee))
    table.add_row("key", escape(charge.key))
    table.add_row("cost", _cost(charge.spent_before, charge.spent_after))
    table.add_row("budget", f"{standing.budget.name}: ε = {standing.budget.epsilon:g} at δ = {standing.budget.delta:g}")
    table.add_row("left now", f"ε = {standing.remaining:.6g} after {standing.n_charges:,} charges")
    return table


def quote_table(quote: Quote) -> Table:
    """What a release would cost."""
    table = _facts("Would cost (nothing was charged)")
    table.add_row("cost", _cost(quote.before.epsilon, quote.after.epsilon))
    table.add_row("left before", f"ε = {quote.remaining:.6g}")
    table.add_row("verdict", "fits" if quote.fits else f"exceeds the budget by ε = {quote.difference:.6g}")
    return table


def _cost(before: float, after: float) -> str:
    return f"ε = {after - before:.6g} (spent {before:.6g}, then {after:.6g})"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _facts(title: str) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table
