"""`privkde embed`: from texts in a file to the archive of vectors that `fit`, `predict` and `decode` read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from accounting import InvalidInputError
from privkde.blocks import Progress
from privkde.cli.parsing import real, whole
from privkde.datasets import RowBlocks, write_arrays
from privkde.embedding import DTYPES, MAX_TOKENS, Encoder, embedded, load_encoder, require_text_extra
from privkde.files import require_writable
from privkde.progress import tracked
from privkde.tables import embedding_table
from privkde.texts import PARTS, TextFile, TextPart, known_classes

SEED = 0

Arrays = dict[str, NDArray[np.str_]]


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `embed`."""
    embed = commands.add_parser("embed", help="turn texts in a file into vectors, for studies", allow_abbrev=False)
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
    embed.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="digits kept (default: float32)")
    embed.add_argument("--max-tokens", type=whole, default=MAX_TOKENS, metavar="N", help="cut texts (default: 96)")
    embed.add_argument("--model", type=Path, metavar="FOLDER", help="another sentence-transformers model, on this disk")
    embed.set_defaults(run=_embed)


def _embed(parsed: argparse.Namespace) -> None:
    require_writable(parsed.output)
    if parsed.output.suffix != ".npz":
        raise InvalidInputError(f"{parsed.output.name!r} must end in .npz; rename it.")
    _refuse_options(parsed)
    require_text_extra()
    parts, beside = _vocabulary(parsed) if parsed.vocabulary else _data(parsed)
    cut: list[int] = []
    with tracked(sys.stderr.isatty()) as tracker:
        tracker.step("loading the model")
        encoder = load_encoder(parsed.model, parsed.max_tokens)
        advance = tracker.bar("embedding", sum(part.n_rows for part in parts.values()))
        vectors: dict[str, NDArray[np.str_] | RowBlocks] = {
            name: RowBlocks(
                (part.n_rows, encoder.dim),
                np.dtype(parsed.dtype),
                _blocks(part, encoder, parsed.dtype, cut, advance),
            )
            for name, part in parts.items()
        }
        write_arrays(parsed.output, vectors | beside)
    shown = embedding_table(
        {name: part.n_rows for name, part in parts.items()},
        dim=encoder.dim,
        dtype=parsed.dtype,
        classes=beside["class_names"].tolist() if "class_names" in beside else [],
        n_cut=sum(cut),
        max_tokens=encoder.max_tokens,
        path=parsed.output,
    )
    Console().print(shown)


def _blocks(
    part: TextPart, encoder: Encoder, dtype: str, cut: list[int], progress: Progress | None
) -> Iterator[NDArray[np.floating]]:
    """The vectors of these rows; how many texts were cut is added to `cut`."""
    for block in embedded(part.texts(), encoder, dtype=dtype, progress=progress):
        cut.append(block.n_cut)
        yield block.vectors


def _refuse_options(parsed: argparse.Namespace) -> None:
    """What would contradict itself, or be ignored."""
    if parsed.vocabulary and any(one is not None for one in (parsed.test, parsed.split, parsed.test_share)):
        raise InvalidInputError("a vocabulary has no test rows; leave out --test, --split and --test-share.")
    if parsed.seed is not None and parsed.test_share is None:
        raise InvalidInputError("--seed was given and nothing is drawn; give --test-share, or leave it out.")


def _vocabulary(parsed: argparse.Namespace) -> tuple[dict[str, TextPart], Arrays]:
    """Terms are public, so they are stored beside their vectors; each once."""
    part = TextFile(path=parsed.texts, text=parsed.text).survey().part("train")
    words = np.array(list(part.texts()), dtype=np.str_)
    first = np.unique(words, return_index=True)[1]
    if len(first) < len(words):
        again = int(np.setdiff1d(np.arange(len(words)), first)[0]) + 1
        raise InvalidInputError(f"row {again} of {str(parsed.texts)!r} repeats an earlier term; leave it out.")
    return {"X": part}, {"words": words}


def _data(parsed: argparse.Namespace) -> tuple[dict[str, TextPart], Arrays]:
    """Training rows and, if asked for, test rows: of another file, by a column, or drawn."""
    label = None if parsed.unlabeled else parsed.label or "label"
    survey = TextFile(path=parsed.texts, text=parsed.text, label=label, split=parsed.split).survey()
    if parsed.test_share is not None:
        survey = survey.with_test_share(parsed.test_share, SEED if parsed.seed is None else parsed.seed)
    train, test = survey.part("train"), None
    if parsed.test is not None:
        test = TextFile(path=parsed.test, text=parsed.text, label=label).survey().part("train")
    elif parsed.split is not None or parsed.test_share is not None:
        test = survey.part("test")
    classes = known_classes(train, test)
    parts = {name: part for name, part in zip(PARTS, (train, test), strict=True) if part is not None}
    beside = {f"y_{name}": part.labels for name, part in parts.items() if part.labels is not None}
    if len(classes):
        beside["class_names"] = classes
    return {f"X_{name}": part for name, part in parts.items()}, beside
