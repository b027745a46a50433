"""Hostile documents as a program: what it prints, and how it ends."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import __main__ as program
from benchmarks.fuzz.targets import Tally


def test_a_run_prints_what_became_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--inputs", "30", "--only", "packet"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (packet,) = [line for line in lines if line[:1] == ["packet"]]
    assert packet[1] == "30"
    assert int(packet[2]) + int(packet[3]) == 30
    assert packet[4] == "0"
    assert ["all", *packet[1:]] in lines


def test_a_finding_ends_the_program_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = Tally(inputs=1, findings=["7: KeyError '[a]'"])
    monkeypatch.setattr(program, "attack", lambda target, numbers, advance: found)
    assert program.main(["--inputs", "1", "--only", "packet"]) == 1
    assert "packet 7: KeyError '[a]'" in capsys.readouterr().out


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        program.main(["--only", "letters"])
    assert stopped.value.code == 2
    assert "no kind 'letters'" in capsys.readouterr().err
