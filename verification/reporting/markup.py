"""Pieces of the page that people with a screen reader, a phone or a sheet of paper can use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from accounting import Contract


class Markup(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def safe(text: str) -> str:
    """Markup as it is, anything else escaped: a plan may come from anywhere."""
    return text if isinstance(text, Markup) else escape(text)


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "") -> Markup:
    """A table whose header is repeated on every sheet; on a phone each row becomes a card with its own labels.

    The first cell of a row is its header. A row may carry a class: its last item, if there is one more than columns.
    A row that is markup already is taken as it is.
    """
    head = "".join(f'<th scope="col">{safe(one)}</th>' for one in header)
    body = "\n".join(_row(header, row) for row in rows)
    return Markup(
        f'<table class="{escape(kind)}"><caption>{safe(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def _row(header: Sequence[str], row: Sequence[str]) -> str:
    if isinstance(row, Markup):
        return row
    kind = f' class="{escape(row[len(header)])}"' if len(row) > len(header) else ""
    first, *others = row[: len(header)]
    cells = "".join(
        f'<td data-label="{escape(str(name))}">{safe(cell)}</td>' for name, cell in zip(header[1:], others, strict=True)
    )
    return f'<tr{kind}><th scope="row">{safe(first)}</th>{cells}</tr>'


def listed(items: Iterable[str]) -> Markup:
    """A list."""
    return Markup("<ul>" + "".join(f"<li>{safe(one)}</li>" for one in items) + "</ul>")


def contract_tree(contract: Contract) -> Markup:
    """A contract and its parts as nested lists: promise, evidence, what was checked, what is assumed."""
    facts = [("promises", str(one)) for one in contract.guarantees]
    evidence = contract.evidence
    facts.append(("because", f"{evidence.kind}: {evidence.method} [{evidence.source}]"))
    facts += [("checked", one) for one in contract.checked] + [("assumed", one) for one in contract.assumed]
    lines = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    parts = "".join(f"<li>{contract_tree(part)}</li>" for part in contract.parts)
    nested = f'<p class="soft">It rests on:</p><ul class="tree">{parts}</ul>' if parts else ""
    return Markup(f'<div class="contract"><b>{escape(contract.component)}</b><dl>{lines}</dl></div>{nested}')
