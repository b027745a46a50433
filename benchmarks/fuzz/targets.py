"""One target for each kind of document that somebody else may have written, with honest documents of the library's own.

A reader of hostile bytes may do two things: return an object, which can be written and read again as the same object,
or raise a `PrivkdeError` whose message is one printable line. Everything else is a finding.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import random
import sqlite3
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Adjacency, Guarantee, Plan, PlanRequest, PrivkdeError, View, plan_budget
from accounting.fields import read
from accounting.releases.release import Release
from accounting.solving import SolveRequest
from benchmarks.fuzz.mutation import alter_values, mutated_bytes, mutated_json
from privkde.draws.randomness import private_randomness
from privkde.learning.estimators import PrivateKDE, PrivateKDEClassifier
from privkde.learning.private_classifier import PrivateClassifier
from privkde.ledger import Ledger
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, analyzed
from privkde.protocol.messages import WireFormat
from privkde.protocol.model import DensityModel
from privkde.protocol.parties import Analyzer, Randomizer
from privkde.service.jobs import release_of
from privkde.service.planning_routes import SEVERAL, SMALL, TARGET
from privkde.service.requests import (
    RELEASE,
    BudgetRequest,
    CertifyRequest,
    ChargeRequest,
    ComposeRequest,
    ProfileRequest,
    UseRequest,
)
from privkde.storage.columns import AVRO, PARQUET
from privkde.storage.container import DIGEST_BYTES, sealed
from privkde.storage.datasets import read_array, read_vectors, write_arrays
from privkde.storage.json_text import parsed_json
from privkde.storage.packets import read_packets, write_packets
from verification.certified.certificate import Certificate, recheck
from verification.reporting.report_writing import read_matrix, released_matrix

SEED = bytes(16).hex()
USERS, DIM, REPETITIONS = 40, 2, 3
ROTATED: dict[str, Any] = {"bitsum": "rr", "accountant": "geometric", "max_messages": 20.0}
"""A plan for whole records that are rotated."""
Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of document: honest ones, how they are mutated, and who reads them."""

    name: str
    weight: int
    """Its share of all inputs, relative to the others: less where an input takes long."""
    honest: Sequence[bytes]
    mutate: Mutate
    accept: Callable[[bytes], None]
    """Reads a document and uses what it holds; raises `AssertionError` if it does not come back as the same."""


@dataclass(slots=True)
class Tally:
    """What became of a target's inputs."""

    inputs: int = 0
    accepted: int = 0
    findings: list[str] = dataclasses.field(default_factory=list)
    """`number: error` of inputs that broke the rule."""

    @property
    def refused(self) -> int:
        """Inputs that ended in an error of the library."""
        return self.inputs - self.accepted - len(self.findings)


def attack(target: Target, numbers: range, advance: Callable[[int], None] = lambda _: None) -> Tally:
    """Send the inputs of these numbers to a target; an input depends on nothing but target and number."""
    tally = Tally()
    for number in numbers:
        chance = random.Random(f"{target.name} {number}")
        document = target.mutate(chance.choice(target.honest), chance)
        tally.inputs += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                target.accept(document)
                tally.accepted += 1
            except PrivkdeError as error:
                if not str(error) or not str(error).isprintable():
                    tally.findings.append(f"{number}: message {str(error)!r}")
            except Exception as error:
                tally.findings.append(f"{number}: {type(error).__name__} {str(error)[:200]!r}")
        advance(1)
    return tally


def targets(folder: Path) -> list[Target]:
    """All targets; those that read files use this folder."""
    listed = [
        Target(name="plan", weight=150, honest=_plans(), mutate=mutated_json, accept=_accept_plan),
        Target(name="plan, proved", weight=2, honest=_plans()[:1], mutate=_mutated_proof, accept=_accept_proof),
        Target(name="announcement", weight=50, honest=_announcements(), mutate=mutated_json, accept=_accept_announced),
        Target(name="release", weight=60, honest=_releases(), mutate=mutated_json, accept=_accept_release),
        Target(name="certificate", weight=60, honest=_certificates(), mutate=mutated_json, accept=_accept_certificate),
        *_bodies(),
        Target(
            name="matrix of saboteurs", weight=10, honest=[_matrix()], mutate=mutated_json, accept=_matrices(folder)
        ),
        Target(name="packet", weight=300, honest=_packets(), mutate=_mutated_packet, accept=_accept_packet),
        _counts(folder),
        _models(folder),
        _ledgers(folder),
        _vectors(folder),
        _packet_file(folder, ".packets", 60),
    ]
    if all(find_spec(module) for module in ("pyarrow", "fastavro")):
        listed += [_packet_file(folder, AVRO, 10), _packet_file(folder, PARQUET, 3)]
        listed.append(_parquet_vectors(folder))
    return listed


# JSON documents ------------------------------------------------------------------------------------------------------


@cache
def _made() -> tuple[Plan, ...]:
    """Plans for one density, two of joint labels, one for two releases, and a forecast for separate labels."""
    asked: dict[str, Any] = {"users": USERS, "dim": DIM, "repetitions": REPETITIONS, "epsilon": 4.0, "delta": 1e-3}
    asked |= {"bitsum": "poisson", "accountant": "basic", "allow_useless": True}
    further: tuple[dict[str, Any], ...] = (
        {},
        {"classes": 2, "labels": "joint", "kernel": "gaussian"},
        {"classes": 2, "repetitions": None, **ROTATED},
        {"bitsum": "rr", "releases": 2},
        {"classes": 2, "label_epsilon": 2.0},
    )
    return tuple(plan_budget(**(asked | more)) for more in further)


def _plans() -> list[bytes]:
    return [plan.dumps().encode() for plan in _made()]


def _accept_plan(text: bytes) -> None:
    plan = Plan.from_json(parsed_json(text))
    assert Plan.from_json(parsed_json(plan.dumps().encode())) == plan
    hash(plan)
    assert plan.explain()
    assert plan.contract.tree()
    assert len(plan.sha256()) == 64


def _mutated_proof(honest: bytes, chance: random.Random) -> bytes:
    """Alters what is proved, and not what is asked for: proofs of large requests take long, which is no finding."""
    document = json.loads(honest)
    alter_values(document[chance.choice(("instance", "contracts", "guarantees"))], chance)
    return json.dumps(document).encode()


def _accept_proof(text: bytes) -> None:
    plan = Plan.from_json(parsed_json(text))
    plan.verify()
    assert Plan.from_json(plan.to_json()) == plan


def _announced() -> list[Announcement]:
    return [Announcement(plan=plan, public_seed=SEED) for plan in _made() if plan.request.n_protocols == 1]


def _announcements() -> list[bytes]:
    return [json.dumps(announcement.to_json()).encode() for announcement in _announced()]


def _accept_announced(text: bytes) -> None:
    announcement = Announcement.from_json(parsed_json(text))
    again = Announcement.from_json(parsed_json(json.dumps(announcement.to_json()).encode()))
    assert again == announcement
    assert again.collection() == announcement.collection()


@cache
def _made_releases() -> tuple[Release, ...]:
    promise = Guarantee(epsilon=0.5, delta=1e-7, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)
    joint = _made()[1]
    return Release.of_guarantee("counts", promise, times=3), Release.of_plan("joint", joint)


def _releases() -> list[bytes]:
    return [release.dumps().encode() for release in _made_releases()]


def _accept_release(text: bytes) -> None:
    release = Release.from_json(parsed_json(text))
    assert Release.from_json(parsed_json(release.dumps().encode())) == release


@cache
def _certificates() -> list[bytes]:
    """With a witness and, of a plan without δ, without one."""
    pure = plan_budget(
        users=USERS, dim=DIM, repetitions=REPETITIONS, epsilon=4.0, delta=0.0, bitsum="pure", allow_useless=True
    )
    return [plan.certified().dumps().encode() for plan in (*_made(), pure)]


def _accept_certificate(text: bytes) -> None:
    certificate = Certificate.from_json(parsed_json(text))
    assert Certificate.from_json(parsed_json(certificate.dumps().encode())) == certificate
    assert certificate.headline.isprintable()
    assert not (certificate.proves and certificate.proved_epsilon is None)
    assert all(certificate.moves(which) for which in ("covered", "attained"))
    for sentence in recheck(_made()[0], certificate):  # most are of other plans by their hash
        assert sentence.isprintable()


def _bodies() -> list[Target]:
    """Bodies of requests, by the records that read them."""
    plan, release = (json.loads(document) for document in (_plans()[0], _releases()[0]))
    labels = {"classes": 3, "label_epsilon": 1.0, "dropout": 0.1}
    bodies: dict[Any, list[dict[str, Any]]] = {
        PlanRequest: [SMALL, SMALL | labels],
        SolveRequest: [TARGET],
        ProfileRequest: [{"plan": plan}],
        CertifyRequest: [{"plan": plan}],
        ComposeRequest: [SEVERAL, SEVERAL | {"charged": [{"name": "earlier", "release": release}]}],
        BudgetRequest: [{"name": "telemetry", "epsilon": 4.0, "delta": 1e-6}],
        ChargeRequest: [RELEASE, {"name": "x", "release": release, "cohort": "north"}, {"name": "y", "plan": plan}],
        UseRequest: [{"schedule": "example", "plan_sha256": "0" * 64}],
    }

    return [
        Target(
            name=f"body: {record.__name__}",
            weight=50,
            honest=[json.dumps(body).encode() for body in honest],
            mutate=mutated_json,
            accept=partial(_accept_body, record),
        )
        for record, honest in bodies.items()
    ]


def _accept_body(record: Any, text: bytes) -> None:
    request = read(record, parsed_json(text))
    assert read(record, dataclasses.asdict(request)) == request
    if record is ChargeRequest and request.plan is None:
        assert release_of(request).name == request.name


def _matrix() -> bytes:
    """Of the matrix that is part of the library, the first rows."""
    matrix = released_matrix()
    assert matrix is not None
    return json.dumps(dataclasses.replace(matrix, rows=matrix.rows[:3]).to_json()).encode()


def _matrices(folder: Path) -> Callable[[bytes], None]:
    place = folder / "saboteurs.json"

    def accept(text: bytes) -> None:
        place.write_bytes(text)
        matrix = read_matrix(place)
        assert matrix is not None
        assert matrix.summary()
        assert type(matrix).from_json(matrix.to_json()) == matrix

    return accept


# Packets -------------------------------------------------------------------------------------------------------------


@cache
def _sent() -> tuple[tuple[WireFormat, tuple[bytes, ...]], ...]:
    """The packets of some users of each collection, with the format that reads them."""
    chance = np.random.default_rng(0)
    sent = []
    for announcement in _announced():
        vectors = chance.normal(size=(USERS, DIM))
        classes = None if announcement.layout() is None else np.arange(USERS) % 2
        randomizer = Randomizer(announcement, stream=private_randomness(1), outside="project")
        sent.append((announcement.wire_format(), tuple(randomizer.packets(vectors, classes))))
    return tuple(sent)


def _packets() -> list[bytes]:
    return [packet for _, packets in _sent() for packet in packets[:5]]


def _mutated_packet(honest: bytes, chance: random.Random) -> bytes:
    """Half of them get the checksum that belongs to their bytes, and so get past it."""
    packet = mutated_bytes(honest, chance)
    return packet if chance.random() < 0.5 else packet[:-4] + struct.pack("<I", zlib.crc32(packet[:-4]))


def _accept_packet(packet: bytes) -> None:
    """A packet is of one collection at most; written again it holds the same, and counts are the same bytes."""
    refused: PrivkdeError | None = None
    for wire, _ in _sent():
        try:
            counted = wire.counts(packet)
        except PrivkdeError as error:
            refused = error
            continue
        again = wire.encode(counted)
        assert again == packet or not wire.dense
        assert str(wire.counts(again)) == str(counted)
        assert len(again) == len(packet)
        return
    assert refused is not None
    raise refused


def _packet_file(folder: Path, suffix: str, weight: int) -> Target:
    place = folder / f"honest{suffix}"
    held = list(_sent()[0][1][:10])
    write_packets(place, held)

    def accept(content: bytes) -> None:
        damaged = folder / f"damaged{suffix}"
        damaged.write_bytes(content)
        packets = list(read_packets(str(damaged), max(map(len, held))))
        assert all(isinstance(packet, bytes) for packet in packets)

    honest = [place.read_bytes()]
    return Target(name=f"packets in {suffix}", weight=weight, honest=honest, mutate=mutated_bytes, accept=accept)


# Containers: counts and models ---------------------------------------------------------------------------------------


def _mutated_container(honest: bytes, chance: random.Random) -> bytes:
    """Damaged bytes, damaged bytes with a digest that fits, or another document and other arrays in a whole file."""
    way = chance.random()
    if way < 0.6:
        with np.load(io.BytesIO(honest)) as stored:
            arrays = dict(stored)
        document = json.loads(arrays.pop("document").tobytes())
        alter_values(document, chance)
        if chance.random() < 0.3:
            name = chance.choice(sorted(arrays))
            arrays[name] = _mutated_array(arrays[name], chance)
        try:
            return sealed(document, arrays)
        except (ValueError, AttributeError):  # NaN and the like cannot be written
            way = 1.0
    damaged = mutated_bytes(honest, chance)
    if way < 0.8:
        return damaged
    body = damaged[:-DIGEST_BYTES]
    return body + hashlib.sha256(body).digest()


def _mutated_array(array: Any, chance: random.Random) -> Any:
    ways: tuple[Callable[[], Any], ...] = (
        lambda: array[..., :-1],
        lambda: array.T.copy()[None],
        lambda: array.astype(np.complex64),
        lambda: array.astype("U4"),
        lambda: array.astype(np.float16),
        lambda: np.where(array == array.flat[0], np.nan, array),
        lambda: -array - 1,
        lambda: array * 0 + 2**62,
        lambda: np.zeros((0, *array.shape[1:])),
        lambda: np.zeros((), np.int8),
    )
    return chance.choice(ways)()


def _container(name: str, folder: Path, load: Callable[[Path], Any], honest: list[bytes]) -> Target:
    place, copied = folder / f"{name}.damaged", folder / f"{name}.again"

    def accept(content: bytes) -> None:
        place.write_bytes(content)
        held = load(place)
        held.save(copied)
        load(copied).save(place)
        assert place.read_bytes() == copied.read_bytes()

    return Target(name=name, weight=20, honest=honest, mutate=_mutated_container, accept=accept)


def _counts(folder: Path) -> Target:
    honest = []
    for announcement, (_, packets) in zip(_announced(), _sent(), strict=True):
        analyzed(announcement, PacketCounter(announcement, seeded=True).of_all(packets)).save(folder / "counts")
        honest.append((folder / "counts").read_bytes())
    return _container("counts", folder, Analyzer.load, honest)


def _models(folder: Path) -> Target:
    chance = np.random.default_rng(0)
    numbers = np.arange(4 * USERS) % 2
    vectors, labels = chance.normal(size=(4 * USERS, DIM)), np.array(["a", "b"])[numbers]
    vectors[:, 0] += np.where(numbers, 4.0, -4.0)  # classes that stand apart
    options: dict[str, Any] = {"repetitions": REPETITIONS, "epsilon": 4.0, "delta": 1e-3, "bitsum": "poisson"}
    options |= {"accountant": "basic", "allow_useless": True, "insecure_seed": 1, "public_seed": SEED}
    fitted = [
        PrivateKDE(**options).fit(vectors),
        PrivateKDEClassifier(**options, classes=["a", "b"]).fit(vectors, labels),
        PrivateClassifier(**options, classes=["a", "b"], kernel="gaussian").fit(vectors, labels),
        PrivateClassifier(**options | ROTATED, outside="project", classes=["a", "b"]).fit(vectors, labels),
    ]
    honest = []
    for estimator in fitted:
        estimator.save(folder / "model")
        honest.append((folder / "model").read_bytes())
    dataclasses.replace(fitted[0].model_, feature_names=tuple(f"column {i}" for i in range(DIM))).save(folder / "model")
    honest.append((folder / "model").read_bytes())
    return _container("model", folder, DensityModel.load, honest)


# Ledgers and vectors -------------------------------------------------------------------------------------------------


def _ledgers(folder: Path) -> Target:
    place = folder / "ledger.sqlite"
    with Ledger.open(place) as ledger:
        for composition in ("adaptive", "pld"):
            ledger.create(composition, epsilon=4.0, delta=1e-5, composition=composition)
            for number, release in enumerate(_made_releases()[:1]):
                ledger.charge(composition, release, key=f"key {number}", cohort="north")
            ledger.use(composition, "key 0", key="first")

    def mutate(honest: bytes, chance: random.Random) -> bytes:
        """One cell holds something else, or bytes are damaged."""
        if chance.random() < 0.3:
            return mutated_bytes(honest, chance)
        place.write_bytes(honest)
        connection = sqlite3.connect(place)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = chance.choice(sorted(tables))
        column = chance.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
        held = connection.execute(f'SELECT "{column}" FROM "{table}"').fetchone()
        value: Any = chance.choice(
            (None, 0, -1, 2**62, 1e308, 0.5, "", "x", "\x1b[31m", b"\xff", "{}", "[1]", "9" * 5_000)
        )
        if isinstance(held[0], str) and held[0].startswith("{"):
            value = mutated_json(held[0].encode(), chance).decode("utf-8", "replace")
        try:
            connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
            connection.commit()
        except sqlite3.Error:  # a constraint forbids it
            connection.rollback()
        connection.close()
        return place.read_bytes()

    def accept(content: bytes) -> None:
        place.write_bytes(content)
        with Ledger.open(place, create=False) as ledger:
            for budget in ledger.budgets():
                standing, history, uses = (ask(budget.name) for ask in (ledger.standing, ledger.history, ledger.uses))
                documents = [standing, *history, *uses]  # type: ignore[misc]
                json.dumps([document.to_json() for document in documents], allow_nan=False)

    return Target(name="ledger", weight=3, honest=[place.read_bytes()], mutate=mutate, accept=accept)


def _file_of_vectors(place: Path, weight: int) -> Target:
    def accept(content: bytes) -> None:
        place.write_bytes(content)
        vectors, labels = read_vectors(place, "X"), read_array(place, "y")
        assert len(vectors.shape) == 2
        assert np.asarray(vectors[np.arange(vectors.shape[0])]).dtype.kind == "f"
        assert labels.dtype.kind != "O"

    name = f"vectors in {place.suffix}"
    return Target(name=name, weight=weight, honest=[place.read_bytes()], mutate=mutated_bytes, accept=accept)


def _vectors(folder: Path) -> Target:
    place = folder / "vectors.npz"
    x = np.random.default_rng(0).normal(size=(6, DIM)).astype(np.float32)
    write_arrays(place, {"X": x, "y": np.array(["a", "b"] * 3)})
    return _file_of_vectors(place, 30)


def _parquet_vectors(folder: Path) -> Target:
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = folder / "vectors.parquet"
    rows = np.random.default_rng(0).normal(size=(6, DIM)).tolist()
    pq.write_table(pa.table({"X": rows, "y": ["a", "b"] * 3}), place)
    return _file_of_vectors(place, 2)
