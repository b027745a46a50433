"""`privkde fit`, `predict` and `decode`: a collection from a file of vectors, and the answers of its model."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from accounting import InvalidInputError, Plan
from accounting.errors import printable
from accounting.registry import AUTO
from accounting.request import MODEL_CHOICES
from privkde.cli.ledger_options import add_paying_options, ledger_files, paying
from privkde.cli.parsing import class_names, read_plan, real, whole
from privkde.display.progress import tracked
from privkde.display.tables import prediction_table, terms_table
from privkde.draws.randomness import private_randomness, public_stream
from privkde.engines import PATHS, Collector
from privkde.kernels import KernelChoice
from privkde.learning.decoding import decode_classes
from privkde.learning.scoring import Accuracy, measured
from privkde.protocol.inputs import OUTSIDE, Rows
from privkde.protocol.model import RULES, DensityModel, require_queries
from privkde.protocol.rounds import SMALL_CLASSES
from privkde.storage.datasets import holds, read_array, read_basis, read_vectors, write_arrays
from privkde.storage.files import require_apart, require_writable, whole_file

if TYPE_CHECKING:  # scikit-learn is loaded when it is needed
    from privkde.learning.estimators import PrivateKDE, PrivateKDEClassifier
    from privkde.learning.private_classifier import PrivateClassifier

PREDICTION_FORMATS = (".csv", ".npz")
WITHOUT_PLAN = ("delta", "model", "max_messages", "label_epsilon", "separate_labels")
"""What the command line says of a classifier that is not planned before."""


def add_fit(fit: argparse.ArgumentParser) -> None:
    """Add the options of `fit`."""
    fit.add_argument("data", type=Path, metavar="DATA", help="one vector per user: .npz or .parquet")
    promised = fit.add_mutually_exclusive_group(required=True)
    promised.add_argument("--epsilon", type=real, metavar="X", help="ε for a whole record: features and label")
    promised.add_argument("--plan", type=Path, metavar="FILE", help="plan written by `privkde plan --output`")
    fit.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="file for the published model")
    classifier = fit.add_argument_group("with --epsilon")
    classifier.add_argument("--delta", type=real, metavar="X", help="δ of the same promise (default: 1e-6)")
    classifier.add_argument("--model", metavar="NAME", help=f"one of {', '.join(MODEL_CHOICES)} (default: {AUTO})")
    classifier.add_argument("--max-messages", type=real, metavar="N", help="most messages of a user (default: 400,000)")
    classifier.add_argument("--label-epsilon", type=real, metavar="X", help="part of ε for separate labels")
    classifier.add_argument(
        "--separate-labels",
        action="store_const",
        const=True,
        help="the paper's protocol: labels by randomized response, then a density for each class",
    )
    add_collection_options(fit)
    add_paying_options(fit)
    fit.set_defaults(run=fit_from_file)


def add_predict(predict: argparse.ArgumentParser) -> None:
    """Add the options of `predict`."""
    predict.add_argument("model", type=Path, metavar="MODEL", help="model written by `privkde fit` or `collect`")
    predict.add_argument("data", type=Path, metavar="DATA", help="the queries: .npz or .parquet")
    _add_arrays(predict, vectors="X_test", labels="y_test")
    predict.add_argument(
        "--rule", choices=RULES, help="models by density: highest density, or nearest mean (default: the model's own)"
    )
    predict.add_argument("-o", "--output", type=Path, metavar="FILE", help="write all predictions (.csv or .npz)")
    predict.set_defaults(run=_predict)


def add_decode(decode: argparse.ArgumentParser) -> None:
    """Add the options of `decode`."""
    decode.add_argument("model", type=Path, metavar="MODEL", help="model written by `privkde fit` or `collect`")
    decode.add_argument("vocabulary", type=Path, metavar="VOCABULARY", help=".npz archive with vectors and words")
    decode.add_argument("--vectors", default="X", metavar="NAME", help="array of the terms' vectors (default: X)")
    decode.add_argument("--words", default="words", metavar="NAME", help="array of the terms (default: words)")
    decode.add_argument("-k", type=whole, default=3, metavar="N", help="terms per class (default: 3)")
    decode.add_argument("--contrast", action="store_true", help="rank by what sets a class apart from the others")
    decode.add_argument("--json", action="store_true", help="print JSON (schema privkde.terms/1)")
    decode.set_defaults(run=_decode)


def add_collection_options(parser: argparse._ActionsContainer) -> None:
    """What is said of a collection besides its data, its plan and its model."""
    _add_arrays(parser, vectors="X_train", labels="y_train")
    parser.add_argument(
        "--classes",
        type=class_names,
        metavar="A,B,...",
        help="the public set of classes: all names, or a number K for 0 to K-1 (default: read off the labels, which"
        " publishes a class that only one user has)",
    )
    parser.add_argument(
        "--bandwidth", type=real, default=1.0, metavar="X", help="bandwidth h of the kernel (default: 1)"
    )
    parser.add_argument("--projection", type=whole, metavar="N", help="gaussian only: project to N dimensions first")
    parser.add_argument(
        "--basis",
        type=Path,
        metavar="FILE",
        help=".npz with an array basis (d, r) from public data: project vectors on its columns first; a plan is then"
        " for r dimensions",
    )
    parser.add_argument("--outside", choices=OUTSIDE, default=OUTSIDE[0], help="what to do with norms above 1")
    parser.add_argument("--small-classes", choices=SMALL_CLASSES, default=SMALL_CLASSES[0], help="for too few users")
    parser.add_argument("--path", choices=PATHS, default=PATHS[0], help="draw counts, or send every single message")
    parser.add_argument("--public-seed", metavar="HEX", help="32 hexadecimal digits (default: fresh ones)")
    parser.add_argument(
        "--insecure-seed", type=whole, metavar="N", help="reproducible and NOT PRIVATE: for studies only"
    )


def _add_arrays(parser: argparse._ActionsContainer, *, vectors: str, labels: str) -> None:
    parser.add_argument(
        "--vectors", default=vectors, metavar="NAME", help=f"array or column of vectors (default: {vectors})"
    )
    parser.add_argument("--labels", metavar="NAME", help=f"array or column of labels (default: {labels})")
    parser.set_defaults(default_labels=labels)


def fit_from_file(parsed: argparse.Namespace, engine: Collector | None = None) -> None:
    """Collect from one user per row of a file and publish a model; without an engine, in this process."""
    require_apart([parsed.output], [parsed.data, parsed.plan, parsed.basis, *ledger_files(parsed)])
    require_writable(parsed.output)
    plan = None if parsed.plan is None else _checked_plan(parsed)
    vectors = read_vectors(parsed.data, parsed.vectors)
    if plan is not None:
        _refuse_mismatch(plan, vectors, parsed)
    from privkde.learning.estimators import PrivateKDE

    with _shown_warnings(), paying(parsed) as account:
        estimator: PrivateKDE | PrivateClassifier | PrivateKDEClassifier
        if plan is not None and plan.request.classes is None:
            estimator = PrivateKDE(**_options(parsed), engine=engine).fit(vectors, plan=plan, budget=account)
        else:
            labels = read_array(parsed.data, parsed.labels or parsed.default_labels)
            classifier = _classifier(plan, vectors, labels, parsed, engine)
            planned = plan if plan is not None and plan.request.joint else None
            estimator = classifier.fit(vectors, labels, plan=planned, budget=account)
    estimator.save(parsed.output)
    print(estimator.summary())
    print(f"written: {printable(str(parsed.output))}")


def _checked_plan(parsed: argparse.Namespace) -> Plan:
    """The plan of the command line; options that it decides are refused."""
    given = [name for name in WITHOUT_PLAN if getattr(parsed, name, None) is not None]
    if given:
        raise InvalidInputError(
            f"--{given[0].replace('_', '-')} was given beside --plan, which decides it; plan again."
        )
    plan = read_plan(parsed.plan)
    plan.verify()
    _refuse_options(plan, parsed)
    return plan


def _refuse_options(plan: Plan, parsed: argparse.Namespace) -> None:
    """What would be refused later, refused before any work is done."""
    request = plan.request
    KernelChoice.planned(request, bandwidth=parsed.bandwidth, projection=parsed.projection)
    private_randomness(parsed.insecure_seed)
    if parsed.public_seed is not None:
        public_stream(parsed.public_seed)
    if parsed.basis is not None and not request.joint:
        raise InvalidInputError("--basis was given and the plan is not for joint labels; plan with --classes.")
    if request.classes is None and parsed.labels is not None:
        raise InvalidInputError("--labels was given and the plan has no classes; plan with --classes.")
    if parsed.classes is not None:
        declared = parsed.classes if isinstance(parsed.classes, int) else len(parsed.classes)
        if declared != request.classes:
            planned = "no" if request.classes is None else request.classes
            raise InvalidInputError(
                f"--classes declares {declared} classes and the plan is for {planned} classes; plan for that many."
            )


def _refuse_mismatch(plan: Plan, vectors: Rows, parsed: argparse.Namespace) -> None:
    """The plan must be for vectors of this length and for this many users, less those it allows to drop out."""
    users, dim = vectors.shape
    request, where = plan.request, f"array {parsed.vectors!r} of {str(parsed.data)!r}"
    if parsed.basis is not None:
        dim, where = read_basis(parsed.basis, dim).shape[1], f"{where}, projected on --basis,"
    if dim != request.dim:
        raise InvalidInputError(f"the plan is for dim={request.dim} and {where} has dim={dim}; plan for that.")
    few = request.users
    if request.least_packets < request.users_per_protocol:
        few = request.least_packets * request.n_protocols
    if not few <= users <= request.users:
        planned = f"{few:,}" if few == request.users else f"{few:,} to {request.users:,}"
        raise InvalidInputError(
            f"the plan is for {planned} users and {where} has {users:,} rows;"
            " plan for that many (--dropout or --min-users allow for fewer)."
        )


def _options(parsed: argparse.Namespace) -> dict[str, Any]:
    names = ("bandwidth", "projection", "outside", "path", "public_seed", "insecure_seed")
    return {name: getattr(parsed, name) for name in names} | {"verbose": sys.stderr.isatty()}


def _classifier(
    plan: Plan | None, vectors: Rows, labels: NDArray[Any], parsed: argparse.Namespace, engine: Collector | None
) -> PrivateClassifier | PrivateKDEClassifier:
    """Joint labels unless the plan or an option says separate; then one plan per class, from the reported counts."""
    from privkde.learning.estimators import PrivateKDEClassifier
    from privkde.learning.private_classifier import PrivateClassifier

    if labels.shape != (vectors.shape[0],):
        raise InvalidInputError(f"labels of shape {labels.shape} for {vectors.shape[0]} users; give one for each.")
    if plan is not None:
        _refuse_labels(plan, labels, parsed)
    classes = None if parsed.classes is None else _declared(parsed.classes, labels)
    options = _options(parsed) | {"small_classes": parsed.small_classes, "engine": engine, "classes": classes}
    basis = None if parsed.basis is None else read_basis(parsed.basis, vectors.shape[1])
    if plan is None:
        asked = {name: getattr(parsed, name) for name in WITHOUT_PLAN if getattr(parsed, name) is not None}
        separate = asked.pop("separate_labels", False) or "label_epsilon" in asked
        if not separate:
            return PrivateClassifier(epsilon=parsed.epsilon, basis=basis, **asked, **options)
        if basis is not None or asked.keys() & {"model", "max_messages"}:
            raise InvalidInputError("--model, --max-messages and --basis belong to joint labels; leave them out.")
        return PrivateKDEClassifier(epsilon=parsed.epsilon, **asked, **options)
    if plan.request.joint:
        return PrivateClassifier(basis=basis, **options)
    known = PrivateKDEClassifier().get_params().keys() & plan.request.to_json().keys() - {"classes"}
    return PrivateKDEClassifier(**{name: getattr(plan.request, name) for name in known}, **options)


def _refuse_labels(plan: Plan, labels: NDArray[Any], parsed: argparse.Namespace) -> None:
    """The plan must be for as many classes, and for one release if each class is planned again."""
    present = len(np.unique(labels))
    if parsed.classes is None and present != plan.request.classes:
        raise InvalidInputError(
            f"the plan is for {plan.request.classes} classes and the labels hold {present}; declare them (--classes)."
        )
    if plan.request.releases > 1 and not plan.request.joint:
        raise InvalidInputError(
            f"the plan is for {plan.request.releases} releases with separate labels: each class would be planned again"
            " for those who report it, and all releases need the same plan; plan with --labels joint."
        )


def _declared(classes: tuple[str, ...] | int, labels: NDArray[Any]) -> list[Any]:
    """The declared classes, as numbers if the labels are numbers."""
    if isinstance(classes, int):
        return list(range(classes))
    kind = {"b": int, "i": int, "u": int, "f": float}.get(labels.dtype.kind, str)
    try:
        return [kind(name) for name in classes]
    except ValueError:
        raise InvalidInputError("--classes holds texts and the labels are numbers; declare numbers.") from None


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Warnings of this library as one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:  # also if the work then fails
            for warning in caught:
                print(f"privkde: warning: {printable(str(warning.message))}", file=sys.stderr)


def _predict(parsed: argparse.Namespace) -> None:
    if parsed.output is not None:
        require_apart([parsed.output], [parsed.model, parsed.data])
        require_writable(parsed.output)
        if parsed.output.suffix not in PREDICTION_FORMATS:
            raise InvalidInputError(f"{parsed.output.name!r} must end in {' or '.join(PREDICTION_FORMATS)}; rename it.")
    vectors = read_vectors(parsed.data, parsed.vectors)
    if vectors.shape[0] == 0:
        raise InvalidInputError(f"array {parsed.vectors!r} of {str(parsed.data)!r} has no rows; give some queries.")
    columns, predicted = _predictions(parsed, vectors)
    classes = "classes" in columns
    accuracy = _accuracy(parsed, predicted) if classes else None
    if parsed.output is not None:
        _write_predictions(parsed.output, columns)
    Console().print(prediction_table(predicted, classes=classes, accuracy=accuracy, path=parsed.output))


def _predictions(parsed: argparse.Namespace, vectors: Rows) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """What is written, by name, and the prediction for each query: a class, or a density without classes."""
    from privkde.learning.ranking import Ranking

    model = DensityModel.load(parsed.model)
    if not model.labels and (parsed.rule is not None or parsed.labels is not None):
        raise InvalidInputError(f"{str(parsed.model)!r} has no classes; leave out --rule and --labels.")
    require_queries(vectors, model.dim)
    with _shown_warnings(), tracked(sys.stderr.isatty()) as tracker:
        progress = tracker.bar("querying", vectors.shape[0])
        if not model.labels:
            density = model.densities(vectors, progress=progress)[:, 0]
            return {"density": density}, density
        ranking = Ranking.of(model, parsed.rule)
        scores = ranking.scores(vectors, progress=progress)
    classes = np.array(ranking.classes)
    predicted = classes[np.argmax(scores, axis=1)]
    return {"prediction": predicted, "scores": scores, "classes": classes}, predicted


def _accuracy(parsed: argparse.Namespace, predicted: NDArray[Any]) -> Accuracy | None:
    """None without labels; labels that the command line names must be there."""
    if parsed.labels is None and not holds(parsed.data, parsed.default_labels):
        return None
    return measured(predicted, read_array(parsed.data, parsed.labels or parsed.default_labels))


def _write_predictions(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """`.npz`: all arrays; `.csv`: one line for each query."""
    if path.suffix == ".npz":
        write_arrays(path, columns)
        return
    name = next(iter(columns))
    with whole_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["row", name])
        lines.writerows(enumerate(columns[name].tolist()))


def _decode(parsed: argparse.Namespace) -> None:
    model = DensityModel.load(parsed.model)
    vectors = read_vectors(parsed.vocabulary, parsed.vectors)
    words = read_array(parsed.vocabulary, parsed.words)
    if words.ndim != 1 or words.dtype.kind != "U":
        raise InvalidInputError(f"array {parsed.words!r} has shape {words.shape} and type {words.dtype}; give words.")
    require_queries(vectors, model.dim)
    with tracked(sys.stderr.isatty()) as tracker:
        decoded = decode_classes(
            model.feature_sums(),
            vectors,
            words,  # not a list, which takes far more memory
            k=parsed.k,
            contrast=parsed.contrast,
            progress=tracker.bar("decoding", vectors.shape[0]),
        )
    terms = list(zip(model.classes or ("all users",), decoded, strict=True))
    if not parsed.json:
        Console().print(terms_table(terms, contrast=parsed.contrast))
        return
    document = {
        "schema": "privkde.terms/1",
        "contrast": parsed.contrast,
        "private": model.private,
        "classes": [
            {"class": label, "terms": [{"word": term.word, "score": term.score} for term in best]}
            for label, best in terms
        ],
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")  # in ASCII: words and labels may be anything
