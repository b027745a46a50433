"""Ten thousand hostile documents: each is read as an object that comes back the same, or refused in one line.

`python -m benchmarks.fuzz` sends more of them, and prints how many were accepted and refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from accounting import InvalidInputError
from benchmarks.fuzz.mutation import mutated_bytes, mutated_json
from benchmarks.fuzz.targets import Target, attack, targets

INPUTS = {
    "plan": 1_500,
    "plan, proved": 20,
    "announcement": 500,
    "release": 600,
    "certificate": 600,
    "body: PlanRequest": 500,
    "body: SolveRequest": 500,
    "body: ProfileRequest": 500,
    "body: CertifyRequest": 100,
    "body: ComposeRequest": 500,
    "body: BudgetRequest": 500,
    "body: ChargeRequest": 500,
    "body: UseRequest": 500,
    "matrix of saboteurs": 100,
    "packet": 3_000,
    "counts": 200,
    "model": 150,
    "ledger": 30,
    "vectors in .npz": 300,
    "packets in .packets": 600,
}
FILE_FORMATS = {"packets in .parquet": 30, "packets in .avro": 150, "vectors in .parquet": 20}
"""These need the extra `beam`. Every file of Parquet is read by a process of its own, so there are fewer of them."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return {target.name: target for target in targets(tmp_path_factory.mktemp("documents"))}


def test_ten_thousand_documents_of_every_kind(known: dict[str, Target]) -> None:
    assert sum(INPUTS.values()) >= 10_000
    assert set(INPUTS) <= set(known) <= set(INPUTS | FILE_FORMATS)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [*INPUTS.items(), *(pytest.param(*item, marks=pytest.mark.extras) for item in FILE_FORMATS.items())],
)
def test_a_hostile_document_is_read_or_refused_in_one_line(known: dict[str, Target], name: str, inputs: int) -> None:
    target = known[name]
    for honest in target.honest:
        target.accept(honest)
    tally = attack(target, range(inputs))
    assert tally.findings == []
    assert tally.inputs == inputs
    assert tally.refused >= inputs // 10


def hostile(accept: Callable[[bytes], None]) -> Target:
    return Target(name="planted", weight=1, honest=[b'{"a": 1}'], mutate=mutated_json, accept=accept)


def test_a_planted_fault_is_found() -> None:
    def choke(text: bytes) -> None:
        raise KeyError("a")

    def forget(text: bytes) -> None:
        raise AssertionError

    def shout(text: bytes) -> None:
        error = InvalidInputError("red")
        error.args = ("\x1b[31mred",)
        raise error

    def refuse(text: bytes) -> None:
        raise InvalidInputError("no.")

    for fault in (choke, forget, shout):
        assert len(attack(hostile(fault), range(5)).findings) == 5
    assert attack(hostile(refuse), range(5)).refused == 5
    assert attack(hostile(lambda text: None), range(5)).accepted == 5


def test_an_input_depends_on_its_number_only() -> None:
    honest = b'{"a": [1, 2.5, "x"], "b": {"c": null}}'
    for mutate in (mutated_json, mutated_bytes):
        first, again = ([mutate(honest, random.Random(seed)) for seed in range(50)] for _ in range(2))
        assert first == again
        assert len({*first}) > 25
