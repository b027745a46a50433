"""Certificates that are kept with charges: what is refused, and that an altered one is found."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from accounting import Adjacency, Guarantee, InvalidInputError, View
from accounting.checking import read_proof
from accounting.releases.release import Release
from privkde.ledger import Charge, Ledger, LedgerAlteredError
from privkde.ledger.kept_proof import KeptProof
from tests.plans import plan_for

SMALL: dict[str, Any] = {
    "users": 500, "dim": 4, "repetitions": 2, "epsilon": 1.0, "delta": 1e-6, "bitsum": "poisson", "accountant": "pld"
}  # fmt: skip


def charged(where: str | Path, **changes: Any) -> Charge:
    """A charge with its plan's certificate in a new ledger."""
    plan = plan_for(**SMALL)
    options: dict[str, Any] = {
        "plan_sha256": plan.sha256(), "certificate": plan.certified(), "plan": plan
    } | changes  # fmt: skip
    with Ledger.open(where) as ledger:
        ledger.create("telemetry", epsilon=4.0, delta=1e-5)
        return ledger.charge("telemetry", Release.of_plan("week", plan), key="one", **options)


def test_a_certificate_is_kept_as_it_was(where: str) -> None:
    plan, charge = plan_for(**SMALL), charged(where)
    assert charge.certificate is not None
    assert charge.certificate.headline.startswith("proved: ε ≤ ")
    with Ledger.open(where, create=False) as ledger:
        assert ledger.history("telemetry") == (charge,)
        assert ledger.charge("telemetry", Release.of_plan("week", plan), key="one", plan_sha256=plan.sha256()) == charge
    assert read_proof(charge.to_json()["certificate"]["document"]).proves


def test_without_a_certificate_a_row_is_as_it_was(tmp_path: Path) -> None:
    """Ledgers of earlier versions keep their digests."""
    assert charged(tmp_path / "ledger.sqlite", certificate=None).certificate is None
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    ((release,),) = connection.execute("SELECT release FROM privkde_charges").fetchall()
    connection.close()
    assert json.loads(release) == Release.of_plan("week", plan_for(**SMALL)).to_json()


def test_a_release_that_promises_less_than_the_certified_plan_is_refused(tmp_path: Path) -> None:
    """The attack: 0.1 is charged, and the row shows the proof of a plan that costs 1."""
    plan = plan_for(**SMALL)
    stronger = Guarantee(epsilon=0.1, delta=0.0, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("telemetry", epsilon=4.0, delta=1e-5)
        with pytest.raises(InvalidInputError, match="promises less than the plan of its certificate"):
            ledger.charge(
                "telemetry",
                Release.of_guarantee("week", stronger),
                key="one",
                plan_sha256=plan.sha256(),
                certificate=plan.certified(),
                plan=plan,
            )
        assert ledger.history("telemetry") == ()


@pytest.mark.parametrize("member", ["headline", "document"])
def test_an_altered_certificate_is_found(tmp_path: Path, member: str) -> None:
    place = tmp_path / "ledger.sqlite"
    charged(place)
    connection = sqlite3.connect(place)
    ((text,),) = connection.execute("SELECT release FROM privkde_charges").fetchall()
    document = json.loads(text)
    kept = document["certificate"]
    if member == "headline":
        kept["headline"] = "proved: ε ≤ 0.1"
    else:
        kept["document"]["proved"]["epsilon"] = 0.1
    connection.execute("UPDATE privkde_charges SET release = ?", (json.dumps(document),))
    connection.commit()
    connection.close()
    with pytest.raises(LedgerAlteredError, match="row 2 "):
        Ledger.open(place, create=False)


def test_what_does_not_prove_the_plan_is_not_kept(tmp_path: Path) -> None:
    other = plan_for(**SMALL | {"users": 501}).certified()
    with pytest.raises(InvalidInputError, match="certificate is for plan"):
        charged(tmp_path / "one.sqlite", certificate=other)
    with pytest.raises(InvalidInputError, match="none is given"):
        charged(tmp_path / "two.sqlite", plan=None)
    with pytest.raises(InvalidInputError, match="not the hash of the plan"):
        charged(tmp_path / "three.sqlite", plan_sha256="0" * 64)


def test_a_forged_certificate_is_not_kept(tmp_path: Path) -> None:
    document = plan_for(**SMALL).certified().to_json()
    document["proved"] |= {"epsilon": 0.5, "upper_epsilon": 0.5}
    with pytest.raises(InvalidInputError, match=r"is false: ε ≤ 0\.5 does not follow"):
        charged(tmp_path / "one.sqlite", certificate=read_proof(document))


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"headline": "a"}, {"headline": "a\n", "document": {}}, {"headline": "a", "document": []},
     {"headline": "a", "document": {}, "more": 1}],
)  # fmt: skip
def test_what_was_never_written_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInputError):
        KeptProof.from_json(data)
