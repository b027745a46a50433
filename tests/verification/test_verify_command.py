"""`privkde verify` as a person or a script uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounting import Plan
from privkde.cli import main
from privkde.storage.json_text import LARGEST_FILE
from tests.accounting.test_checking import CHEAP
from tests.plans import plan_for
from tests.privkde.cli.test_command_line import refuse
from verification import verify_command
from verification.certified.balls import NotCertifiedError
from verification.certified.certificate import NOT_COVERED


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A plan and its certificate."""
    plan, certificate = tmp_path / "plan.json", tmp_path / "certificate.json"
    made = plan_for(**CHEAP)
    plan.write_text(made.dumps(), encoding="utf-8")
    certificate.write_text(made.certified().dumps(), encoding="utf-8")
    return plan, certificate


def altered(path: Path, *where: str | int, value: Any) -> Path:
    """The document in a file, with one value changed by hand."""
    document = json.loads(path.read_text(encoding="utf-8"))
    inner = document
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value(inner[where[-1]]) if callable(value) else value
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def verify(capsys: pytest.CaptureFixture[str], *paths: Path | str, code: int) -> list[str]:
    assert main(["verify", *map(str, paths)]) == code
    return capsys.readouterr().out.splitlines()


def test_a_certificate_is_proved_again(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    line, note = verify(capsys, *files, code=0)
    assert line.startswith("proved: ε ≤ 1.8")
    assert "proved again" in line
    assert note == f"note: {NOT_COVERED}"


def test_a_plan_that_makes_up_a_local_promise_is_not_proved(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads "proved" beside a document that promises ε = 0 to a single person would believe both."""
    plan, _ = files
    document = json.loads(plan.read_text(encoding="utf-8"))
    place = next(i for i, one in enumerate(document["guarantees"]) if one["view"] == "local")
    altered(plan, "guarantees", place, "delta", value=0.0)
    (line,) = verify(capsys, plan, code=1)
    assert line.startswith("not proved: the plan promises (0, 0)-DP")


def test_a_plan_alone_is_certified(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    plan, _ = files
    new = plan.parent / "new.json"
    first, note, last = verify(capsys, plan, "-o", new, code=0)
    assert first.startswith("proved: ε ≤ 1.8")
    assert note == f"note: {NOT_COVERED}"
    assert last == f"written: {new}"
    assert verify(capsys, plan, new, code=0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [  # of the plan or of its certificate
        ((0, ("request", "users"), 50), "another plan, or the plan was altered"),
        ((0, ("reasons",), ["none"]), "another plan, or the plan was altered"),
        ((1, ("plan_sha256",), "0" * 64), "another plan, or the plan was altered"),
        ((1, ("claim", "delta"), 0.01), "the certificate's claim is not the plan's"),
        ((1, ("neighbors", "instances"), 2), "what one record can move is not what the certificate says"),
        ((1, ("proved", "covered_epsilon"), lambda bound: bound * 1.01), "does not follow"),
        ((1, ("proved", "lower_epsilon"), lambda bound: bound * 1.01), "does not follow"),
    ],
)
def test_what_was_altered_is_refuted(
    files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    change: tuple[int, tuple[str, ...], Any],
    sentence: str,
) -> None:
    which, where, value = change
    altered(files[which], *where, value=value)
    (line,) = verify(capsys, *files, code=1)
    assert line.startswith("refuted: ")
    assert sentence in line


def test_a_better_bound_than_the_witness_proves_is_refuted(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(files[1].read_text(encoding="utf-8"))
    better = 0.99 * document["proved"]["upper_epsilon"]
    document["proved"] |= {"upper_epsilon": better, "epsilon": better}
    files[1].write_text(json.dumps(document), encoding="utf-8")
    (line,) = verify(capsys, *files, code=1)
    assert line == f"refuted: ε ≤ {better:.8g} does not follow at the certificate's witness"


def test_too_little_noise_is_refuted(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    plan = altered(files[0], "instance", "parameters", "total_mean", value=lambda mean: mean * 0.1)
    certificate = plan.parent / "weak.json"
    first, _ = verify(capsys, plan, "-o", certificate, code=1)
    assert first.startswith(("refuted: ", "not proved: "))
    *reasons, last = verify(capsys, plan, certificate, code=1)
    assert last == first
    assert all(reason.startswith("refuted: ") for reason in reasons)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b'{"a": 1, "a": 2}', "the same name twice"),
        (b" " * (LARGEST_FILE + 1), "bytes"),
        (b"[]", "schema"),
        (b'{"schema": "privkde.certificate/1"}', "malformed"),
    ],
)
def test_what_cannot_be_read_ends_with_2(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    files[1].write_bytes(content)
    assert message in refuse(capsys, "verify", *map(str, files))
    files[0].write_bytes(content)
    assert message in refuse(capsys, "verify", str(files[0])) or message == "malformed"


def test_what_cannot_be_done_ends_with_2(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    plan, certificate = map(str, files)
    assert "No such file" in refuse(capsys, "verify", "none.json")
    assert "No such file" in refuse(capsys, "verify", plan, "none.json")
    assert "--output has no effect" in refuse(capsys, "verify", plan, certificate, "-o", "new.json")
    assert "named for something else" in refuse(capsys, "verify", plan, "-o", plan)


@pytest.mark.parametrize("error", [NotCertifiedError("a law needs more masses"), KeyError("mass"), MemoryError()])
def test_a_proof_that_stops_is_no_refutation(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def stopped(plan: Plan) -> None:
        raise error

    monkeypatch.setattr(verify_command, "certify", stopped)
    refuse(capsys, "verify", str(files[0]))


def test_a_closed_pipe_does_not_change_the_verdict(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: Any, **__: Any) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("rich.console.Console.print", leave)
    assert main(["verify", *map(str, files)]) == 0
    altered(files[0], "request", "users", value=50)
    assert main(["verify", *map(str, files)]) == 1
