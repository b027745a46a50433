"""`privkde embed`: from texts in a file to the archive of vectors that `fit`, `predict` and `decode` read."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from accounting import InvalidInputError
from privkde import embedding
from privkde.cli.parsing import real, whole
from privkde.display.progress import tracked
from privkde.display.tables import embedding_table
from privkde.storage.datasets import write_arrays
from privkde.storage.files import require_writable

SEED = 0

Arrays = dict[str, NDArray[Any]]


def add_embed(embed: argparse.ArgumentParser) -> None:
    """Add the options of `embed`."""
    embed.add_argument(
        "texts", type=Path, metavar="TEXTS", help="one text per user: .csv with a header, .jsonl or .txt"
    )
    embed.add_argument("-o", "--output", type=Path, required=True, metavar="DATA", help=".npz archive for the vectors")
    embed.add_argument("--text", default="text", metavar="NAME", help="column of the texts (default: text)")
    labels = embed.add_mutually_exclusive_group()
    labels.add_argument("--label", metavar="NAME", help="column of the labels (default: label)")
    labels.add_argument("--unlabeled", action="store_true", help="leave labels out: for a density without classes")
    labels.add_argument("--vocabulary", action="store_true", help="public terms for `decode`: write X and words")
    test = embed.add_mutually_exclusive_group()
    test.add_argument("--test", type=Path, metavar="FILE", help="another file, with the texts for testing")
    test.add_argument("--split", metavar="NAME", help="column that says train or test")
    test.add_argument("--test-share", type=real, metavar="X", help="share of the rows to draw for testing")
    embed.add_argument("--seed", type=whole, metavar="N", help=f"what the test rows are drawn from (default: {SEED})")
    embed.add_argument(
        "--dtype", choices=embedding.DTYPES, default=embedding.DTYPES[0], help="digits kept (default: float32)"
    )
    embed.add_argument(
        "--max-tokens", type=whole, default=embedding.MAX_TOKENS, metavar="N", help="cut texts (default: 96)"
    )
    embed.add_argument("--model", type=Path, metavar="FOLDER", help="another sentence-transformers model, on this disk")
    embed.set_defaults(run=_embed)


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
    table = embedding_table(vectors, classes=classes, n_cut=cut, max_tokens=parsed.max_tokens, path=parsed.output)
    Console().print(table)


def _vocabulary(parsed: argparse.Namespace) -> tuple[dict[str, list[str]], Arrays]:
    """Terms are public, so they are stored beside their vectors; each once."""
    if (parsed.test, parsed.split, parsed.test_share) != (None, None, None):
        raise InvalidInputError("a vocabulary has no test rows; leave out --test, --split and --test-share.")
    words = [row.text for row in embedding.read_texts(parsed.texts, text=parsed.text)]
    repeated = len(words) - len(set(words))
    if repeated:
        raise InvalidInputError(f"{repeated} rows of {str(parsed.texts)!r} repeat an earlier term; leave them out.")
    return {"X": words}, {"words": np.array(words)}


def _data(parsed: argparse.Namespace) -> tuple[dict[str, list[str]], Arrays]:
    """Training rows and perhaps test rows: those of another file, those that a column names, or a drawn share."""
    columns = {"text": parsed.text, "label": None if parsed.unlabeled else parsed.label or "label"}
    rows = embedding.read_texts(parsed.texts, **columns, split=parsed.split)
    if parsed.test is not None:
        rows += [row._replace(part="test") for row in embedding.read_texts(parsed.test, **columns)]
    elif parsed.test_share is not None:
        rows = embedding.draw_test_rows(rows, parsed.test_share, parsed.seed or SEED)
    names = ["train"] if parsed.test is parsed.split is parsed.test_share is None else ["train", "test"]
    parts = {name: [row for row in rows if row.part == name] for name in names}
    for name, part in parts.items():
        if not part:
            raise InvalidInputError(f"no row of {str(parsed.texts)!r} is for {name}; choose some.")
    texts = {f"X_{name}": [row.text for row in part] for name, part in parts.items()}
    return texts, {} if parsed.unlabeled else _labels(parts)


def _labels(parts: dict[str, list[embedding.Row]]) -> Arrays:
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
