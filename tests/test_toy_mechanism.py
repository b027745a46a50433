"""A mechanism and a rung in one file each, and one registration: everything else knows them from then on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from accounting import InfeasibleError, InvalidInputError, Plan, plan_budget
from accounting.comparing import compare_bitsums, compare_rungs
from accounting.composition import LADDER, Basic, Target, Touched
from accounting.errors import require_real
from accounting.fields import read
from accounting.mechanisms import BITSUMS, BitsumProtocol
from accounting.mechanisms.single_noise import SingleNoise
from accounting.numerics.pmf import Pmf, binomial
from accounting.releases.release import Release
from accounting.request import read_request
from privkde.bitsum import EXECUTED, Tally
from privkde.bitsum.execution import PlannedBitsum, Shape
from privkde.display.figures import plot_profile
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import bernoulli
from privkde.learning.estimators import PrivateKDE
from privkde.service import create_app
from privkde.service.jobs import JOBS
from verification.auditing import audit

REQUEST: dict[str, Any] = {"users": 3000, "dim": 2, "repetitions": 2, "epsilon": 2.0, "delta": 1e-5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coins(SingleNoise):
    """Each user tosses a coin and sends one more message if it shows heads: Σν ~ Bin(n, q)."""

    name: ClassVar[str] = "coins"
    summary: ClassVar[str] = "each user adds a message with a certain probability"
    randomizer: ClassVar[str] = "each user sends b + Bernoulli(heads_probability) messages; the analyzer subtracts n·q"
    source: ClassVar[str] = "this test"
    noise_depends_on_users: ClassVar[bool] = True

    heads_probability: float

    def __post_init__(self) -> None:
        SingleNoise.__post_init__(self)
        require_real("heads_probability", self.heads_probability, low=0.0, high=0.5, low_open=False)

    @classmethod
    def with_rmse(cls, rmse: float, n_users: int) -> Self:
        """From n q(1 − q) = rmse²."""
        square = 1.0 - 4.0 * rmse * rmse / n_users
        if square < 0.0:
            raise InvalidInputError(f"rmse={rmse!r} is more than coins can give; use more users.")
        return cls(n_users=n_users, heads_probability=0.5 * (1.0 - math.sqrt(square)))

    @classmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """The least q. Noise is at most √n/2, which the error must say: `calibrate` advises a larger ε or δ only."""
        try:
            return target.calibrate(partial(cls.with_rmse, n_users=n_users), certified=certified)
        except InfeasibleError as error:
            raise InfeasibleError(f"users={n_users} coins have too little noise together; use more users.") from error

    def parameters(self) -> dict[str, float | int]:
        """The probability of heads."""
        return {"heads_probability": self.heads_probability}

    def noise(self) -> Pmf:
        """Bin(n, q)."""
        return binomial(self.n_users, self.heads_probability)

    def noise_mean(self) -> float:
        """Mean of that."""
        return self.n_users * self.heads_probability

    def share_moment(self, rate: float) -> float:
        """ln(1 + q(e^t − 1))."""
        return math.log1p(self.heads_probability * math.expm1(rate))

    def variance(self, n_present: int) -> float:
        """N q(1 − q)."""
        return n_present * self.heads_probability * (1.0 - self.heads_probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinsBitsum(PlannedBitsum[Coins]):
    """The coins as they are tossed."""

    name: ClassVar[str] = Coins.name

    def noise(self, n_users: int, shape: Shape, stream: ByteStream) -> Tally:
        tails = np.full((n_users, *shape), -1.0, dtype=np.float32)
        heads = bernoulli(tails, stream, flip=self.law.heads_probability).sum(axis=0, dtype=np.int64)
        return Tally(heads, np.zeros_like(heads))

    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        return np.asarray(tally.ones - n_users * self.law.heads_probability)


@dataclass(frozen=True, slots=True)
class Timid(Basic):
    """Basic composition that spends half of ε and δ only."""

    name: ClassVar[str] = "timid"
    auto_group: ClassVar[int | None] = None

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        achieved = Basic.achieved_epsilon(self, protocol, touched, delta / 2.0)
        return None if achieved is None else 2.0 * achieved

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        return Basic.instance_point(self, protocol, touched, epsilon / 2.0, delta / 2.0)

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        return "ε = 2k·ε₀, δ = 2k·δ₀ (timid composition)."


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    BITSUMS.register(Coins)
    EXECUTED.register(CoinsBitsum)
    LADDER.register(Timid())
    yield
    del BITSUMS[Coins.name], EXECUTED[Coins.name], LADDER[Timid.name]


@pytest.fixture
def toy() -> Plan:
    return planned()


@cache
def planned() -> Plan:
    return plan_budget(**REQUEST, bitsum="coins", accountant="timid")


def test_planning(toy: Plan) -> None:
    assert (toy.bitsum, toy.accountant) == ("coins", "timid")
    proved = {name: epsilon for name, epsilon in toy.ladder.items() if epsilon is not None}
    assert proved["timid"] == pytest.approx(2.0, rel=1e-2)
    assert proved["pld"] < proved["timid"]
    toy.verify()
    assert Plan.from_json(toy.to_json()) == toy
    assert toy == toy.recomputed()


def test_auto_tries_the_mechanism() -> None:
    plan = plan_budget(**{**REQUEST, "users": 60, "repetitions": 1}, bitsum="auto")
    assert any(reason.startswith("coins: predicted error") for reason in plan.reasons)
    assert plan.accountant != "timid", "which does not offer itself"


def test_comparisons_show_both(toy: Plan) -> None:
    assert "coins" in [outcome.name for outcome in compare_bitsums(read_request({**REQUEST, "accountant": "basic"}))]
    by_rung = {outcome.name: outcome for outcome in compare_rungs(toy.request)}
    assert by_rung["timid"].noise > by_rung["basic"].noise


def test_explaining(toy: Plan) -> None:
    text = toy.explain()
    assert f"coins: {Coins.randomizer}." in text
    assert "ε = 2k·ε₀, δ = 2k·δ₀ (timid composition)." in text
    assert "timid" in toy.reasons[0]


def test_a_collection_end_to_end(toy: Plan) -> None:
    """Densities within six standard errors of the exact ones (level below 1e-8 for each of the queries)."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3000, 2)) * 0.2
    settings = {name: value for name, value in REQUEST.items() if name not in ("users", "dim")}
    kde = PrivateKDE(bitsum="coins", accountant="timid", insecure_seed=1, path="faithful", **settings).fit(x)
    assert kde.plan_.parameters == toy.parameters
    family = kde.model_.announcements[0].family()
    y = np.zeros((1, 2))
    exact = float(np.mean(family.query_features(x).astype(float) @ family.query_features(y).astype(float).T) / 2)
    spread = math.hypot(toy.error.privacy, toy.error.rounding)
    assert abs(float(kde.density(y)[0]) - exact) < 6.0 * spread


def computed(job: str, body: dict[str, Any]) -> Any:
    """A worker's answer, in this process: the workers of a service are processes that never heard of the toy."""
    record, compute = JOBS[job]
    return compute(read(record, body))


def test_serving(toy: Plan) -> None:
    client = TestClient(create_app(), base_url="http://127.0.0.1")  # without its lifespan, so without workers
    facts = client.get("/v1/bitsums").json()
    assert {"name": "coins", "description": Coins.summary} in facts["bitsums"]
    assert "timid" in facts["accountants"]
    body = {**REQUEST, "bitsum": "coins", "accountant": "timid"}
    assert computed("plan", body) == toy.to_json()
    assert "timid" in computed("profile", {"plan": toy.to_json()})["curves"]


def test_releases_and_pictures(toy: Plan, tmp_path: Path) -> None:
    assert Release.of_plan("toy", toy).guarantee.epsilon == 2.0
    plot_profile(toy, tmp_path / "profile.svg")
    assert ">timid<" in (tmp_path / "profile.svg").read_text(encoding="utf-8")


OF_THE_PLAN = (
    "adaptive-budget", "plan-verifies", "kernel-means", "users-counted-once", "client-domain", "touched-instances",
    "central-sensitivity", "independent-draws",
)  # fmt: skip


@pytest.mark.parametrize("only", [OF_THE_PLAN, pytest.param(None, marks=pytest.mark.slow)], ids=["quick", "all"])
def test_auditing(toy: Plan, only: tuple[str, ...] | None) -> None:
    """All that apply, but by default without the order of the shuffler, to which mechanisms are the same."""
    report = audit(toy, only=only, workers=1, seed=1)
    assert {result.name for result in report.results} == {*OF_THE_PLAN, *(() if only else ("shuffler-order",))}
    assert {result.verdict for result in report.results} == {"not-refuted"}
    assert report.missing, "checks that need an independent definition of the mechanism say so"
    altered = {**toy.to_json(), "instance": {**toy.to_json()["instance"], "parameters": {"heads_probability": 1e-3}}}
    assert audit(Plan.from_json(altered), only=["plan-verifies"], workers=1).refuted


def test_names_are_registered_once() -> None:
    with pytest.raises(InvalidInputError, match="taken"):
        BITSUMS.register(Coins)


def test_bounded_noise_is_exact() -> None:
    """Three coins: total variation distance 3/8 between the law of the heads and that shifted by one."""
    assert Coins(n_users=3, heads_probability=0.5).delta(0.0) == pytest.approx(0.375, rel=1e-8)


def test_what_coins_cannot_do_is_said() -> None:
    with pytest.raises(InfeasibleError, match="use more users"):
        Coins.design(Target(rung=Basic(), touched=Touched(groups=1, per_group=1), epsilon=0.1, delta=1e-6), 20)
    with pytest.raises(InvalidInputError, match="heads_probability"):
        Coins(n_users=20, heads_probability=0.7)
