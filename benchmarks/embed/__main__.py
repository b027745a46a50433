"""`python -m benchmarks.embed`: from texts in a file to vectors that `fit`, `predict` and `decode` read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accounting import InvalidInputError
from benchmarks.embed.texts import Row, draw_test_rows, read_texts
from privkde import embedding
from privkde.cli import exit_code
from privkde.cli.parsing import Parser, real, whole
from privkde.display.progress import tracked
from privkde.storage.datasets import write_arrays
from privkde.storage.files import require_writable

SEED = 0

Arrays = dict[str, NDArray[Any]]


def _parser() -> Parser:
    parser = Parser(
        prog="python -m benchmarks.embed",
        description="Turn texts in a file into vectors of norm at most 1, for studies.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "texts", type=Path, metavar="TEXTS", help="one text per user: .csv with a header, .jsonl or .txt"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DATA", help=".npz archive for the vectors")
    parser.add_argument("--text", default="text", metavar="NAME", help="column of the texts (default: text)")
    labels = parser.add_mutually_exclusive_group()
    labels.add_argument("--label", metavar="NAME", help="column of the labels (default: label)")
    labels.add_argument("--unlabeled", action="store_true", help="leave labels out: for a density without classes")
    labels.add_argument("--vocabulary", action="store_true", help="public terms for `decode`: write X and words")
    test = parser.add_mutually_exclusive_group()
    test.add_argument("--test", type=Path, metavar="FILE", help="another file, with the texts for testing")
    test.add_argument("--split", metavar="NAME", help="column that says train or test")
    test.add_argument("--test-share", type=real, metavar="X", help="share of the rows to draw for testing")
    parser.add_argument("--seed", type=whole, metavar="N", help=f"what the test rows are drawn from (default: {SEED})")
    parser.add_argument(
        "--dtype", choices=embedding.DTYPES, default=embedding.DTYPES[0], help="digits kept (default: float32)"
    )
    parser.add_argument(
        "--max-tokens", type=whole, default=embedding.MAX_TOKENS, metavar="N", help="cut texts (default: 96)"
    )
    parser.add_argument(
        "--model", type=Path, metavar="FOLDER", help="another sentence-transformers model, on this disk"
    )
    parser.set_defaults(run=_embed)
    return parser


def _embed(parsed: argparse.Namespace) -> None:
    require_writable(parsed.output)
    if parsed.output.suffix != ".npz":
        raise InvalidInputError(f"{parsed.output.name!r} must end in .npz; rename it.")
    if parsed.seed is not None and parsed.test_share is None:
        raise InvalidInputError("--seed was given and nothing is drawn; give --test-share, or leave it out.")
    embedding.require_text_extra()
    texts, arrays = _vocabulary(parsed) if parsed.vocabulary else _data(parsed)
    options = {name: getattr(parsed, name) for name in ("model", "max_tokens", "dtype")}
    with tracked(sys.stderr.isatty()) as tracker:
        advance = tracker.bar("embedding", sum(map(len, texts.values())))
        vectors = {name: embedding.embed_texts(part, **options, progress=advance) for name, part in texts.items()}
    write_arrays(parsed.output, vectors | arrays)
    encoder = embedding.load_encoder(parsed.model, parsed.max_tokens)
    cut = sum(int(np.sum(embedding.token_counts(part, encoder) > parsed.max_tokens)) for part in texts.values())
    classes = arrays["class_names"].tolist() if "class_names" in arrays else []
    table = _table(vectors, classes=classes, n_cut=cut, max_tokens=parsed.max_tokens, path=parsed.output)
    Console().print(table)


def _vocabulary(parsed: argparse.Namespace) -> tuple[dict[str, list[str]], Arrays]:
    """Terms are public, so they are stored beside their vectors; each once."""
    if (parsed.test, parsed.split, parsed.test_share) != (None, None, None):
        raise InvalidInputError("a vocabulary has no test rows; leave out --test, --split and --test-share.")
    words = [row.text for row in read_texts(parsed.texts, text=parsed.text)]
    repeated = len(words) - len(set(words))
    if repeated:
        raise InvalidInputError(f"{repeated} rows of {str(parsed.texts)!r} repeat an earlier term; leave them out.")
    return {"X": words}, {"words": np.array(words)}


def _data(parsed: argparse.Namespace) -> tuple[dict[str, list[str]], Arrays]:
    """Training rows and perhaps test rows: those of another file, those that a column names, or a drawn share."""
    columns = {"text": parsed.text, "label": None if parsed.unlabeled else parsed.label or "label"}
    rows = read_texts(parsed.texts, **columns, split=parsed.split)
    if parsed.test is not None:
        rows += [row._replace(part="test") for row in read_texts(parsed.test, **columns)]
    elif parsed.test_share is not None:
        rows = draw_test_rows(rows, parsed.test_share, parsed.seed or SEED)
    names = ["train"] if parsed.test is parsed.split is parsed.test_share is None else ["train", "test"]
    parts = {name: [row for row in rows if row.part == name] for name in names}
    for name, part in parts.items():
        if not part:
            raise InvalidInputError(f"no row of {str(parsed.texts)!r} is for {name}; choose some.")
    texts = {f"X_{name}": [row.text for row in part] for name, part in parts.items()}
    return texts, {} if parsed.unlabeled else _labels(parts)


def _labels(parts: dict[str, list[Row]]) -> Arrays:
    labels = {f"y_{name}": np.array([row.label for row in part]) for name, part in parts.items()}
    classes = np.unique(labels["y_train"])
    if len(classes) < 2:
        raise InvalidInputError(
            "all training rows are of one class; two are needed to tell apart, or leave labels out (--unlabeled)."
        )
    unknown = np.count_nonzero(~np.isin(labels.get("y_test", classes), classes))
    if unknown:
        raise InvalidInputError(
            f"{unknown} rows for testing are of a class that no training row has; leave them out, or add users of"
            " that class."
        )
    return labels | {"class_names": classes}


def _table(
    vectors: Mapping[str, NDArray[Any]], *, classes: Sequence[str], n_cut: int, max_tokens: int, path: Path
) -> Table:
    """What was embedded, in short; no text and no vector."""
    first = next(iter(vectors.values()))
    table = Table(title="Embedding", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("texts", "\n".join(f"{name}: {len(rows):,}" for name, rows in vectors.items()))
    table.add_row("vectors", f"dim = {first.shape[1]}, {first.dtype}, norm at most 1")
    if classes:
        table.add_row(
            "classes", f"{len(classes)}: {escape(', '.join(classes[:20]))}" + (" …" if len(classes) > 20 else "")
        )
    table.add_row("cut", f"{n_cut:,} texts after {max_tokens} tokens")
    table.add_row("written", escape(str(path)))
    return table


def main(arguments: Sequence[str]) -> int:
    """Embed the texts that the command line names, and return the exit code."""
    return exit_code(_parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
