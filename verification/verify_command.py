"""`privkde verify`: prove what a plan promises, or prove a certificate of it again."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from accounting import InvalidInputError, Plan, PrivkdeError
from accounting.errors import printable
from privkde.cli.parsing import fail, read_plan
from privkde.display.progress import working
from privkde.storage.files import require_apart, require_writable, write_text
from privkde.storage.json_text import read_json
from verification.certified.certificate import Certificate, certify, recheck
from verification.commands import EXIT_REFUTED, READER_LEFT


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verify`."""
    parser.description = (
        "Prove what a plan promises in ball arithmetic, with laws of its own, or prove every number of a certificate"
        " again. Exit code: 0 proved, 1 refuted or not proved, 2 could not run."
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="plan written by `privkde plan --output`")
    parser.add_argument(
        "certificate",
        type=Path,
        nargs="?",
        metavar="CERTIFICATE",
        help="its certificate, written by `privkde plan --certify` (default: make a new one)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="without CERTIFICATE: write the new one")
    parser.set_defaults(run=_verify)


def _verify(parsed: argparse.Namespace) -> int:
    """The exit code; whatever goes wrong is 2, since 1, Python's own code of an error, would say: refuted."""
    try:
        return _verified(parsed)
    except (PrivkdeError, OSError, MemoryError):  # the command line reports these in one line, with exit code 2
        raise
    except Exception as error:
        fail(f"the proof could not run: {type(error).__name__} ({error}); nothing was proved, and nothing refuted.")


def _verified(parsed: argparse.Namespace) -> int:
    if parsed.certificate is not None and parsed.output is not None:
        raise InvalidInputError("--output has no effect with a certificate, which is not written again; leave it out.")
    if parsed.output is not None:
        require_writable(parsed.output)
        require_apart([parsed.output], [parsed.plan])
    plan = read_plan(parsed.plan)  # not verified: whatever it says is to be proved
    if parsed.certificate is not None:
        document = read_json(parsed.certificate, "write it with `privkde plan --certify`.")
        return _checked(plan, Certificate.from_json(document))
    with working("proving the plan in ball arithmetic"):
        certificate = certify(plan)
    _say(certificate.headline)
    _say_notes(certificate)
    if parsed.output is not None:
        write_text(parsed.output, certificate.dumps())
        _say(f"written: {printable(str(parsed.output))}")
    return 0 if certificate.proves else EXIT_REFUTED


def _checked(plan: Plan, certificate: Certificate) -> int:
    """Prove all that a certificate says; what does not follow is printed, sentence by sentence."""
    with working("proving the certificate again"):
        wrong = recheck(plan, certificate)
    for sentence in wrong:
        _say(sentence if sentence == certificate.headline else f"refuted: {sentence}")
    if not wrong:
        _say(f"{certificate.headline}; every number of the certificate was proved again")
        _say_notes(certificate)
    return EXIT_REFUTED if wrong else 0


def _say_notes(certificate: Certificate) -> None:
    """What a proof does not cover; of one that failed the headline names the reason."""
    for note in certificate.notes if certificate.proves else ():
        _say(f"note: {note}")


def _say(text: str) -> None:
    """One line, on the screen whole."""
    with suppress(*READER_LEFT):
        Console().print(text, highlight=False, markup=False, soft_wrap=True)
