"""The noise of every cell: one calibration for each request, remembered in a file of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import privkde
from accounting import PrivkdeError
from accounting.accuracy.baselines import central, local
from accounting.choosing import choose
from accounting.mechanisms import BitsumProtocol, ThreeNegativeBinomial, rebuild
from accounting.request import PlanRequest
from benchmarks.paper.settings import PRESETS
from privkde.storage.files import write_text
from privkde.storage.json_text import read_json

DIGITS = 2
"""Noise counts on a class size rounded down to this many significant digits: few sizes, so few calibrations."""


ANY_USERS = 1000
"""For calibrations that do not depend on the number of users."""


def counted_users(size: int) -> int:
    """The users that noise counts on where `size` took part.

    >>> counted_users(14164), counted_users(2597), counted_users(57)
    (14000, 2500, 57)
    """
    unit: int = 10 ** max(0, len(str(size)) - DIGITS)
    return size // unit * unit


def shared(request: PlanRequest) -> PlanRequest:
    """The request whose calibration serves this one, too.

    The total noise of 3nb has one law whatever the number of users who share it: its parameters do not depend on n.
    """
    return dataclasses.replace(request, users=ANY_USERS) if request.bitsum == ThreeNegativeBinomial.name else request


def plan_request(
    preset: str, kernel: str, bitsum: str, epsilon: float, *, users: int, dim: int, delta: float, bound: float | None,
    repetitions: int | None,
) -> PlanRequest:  # fmt: skip
    """What is planned for a group of users; a plan that drowns every density is wanted, too."""
    inner = kernel == "inner-product"
    return PlanRequest(
        users=users,
        dim=dim,
        kernel=kernel,
        repetitions=None if inner else repetitions,
        bitsum=bitsum,
        epsilon=epsilon,
        delta=delta,
        accountant=PRESETS[preset].accountant,
        bound=bound if inner else None,
        noise_shape=1,  # the paper's
        allow_useless=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A protocol and the rung that proves it, or why there is none."""

    protocol: BitsumProtocol | None
    rung: str = ""
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        if self.protocol is None:
            return {"refused": self.refused}
        return {
            "bitsum": self.protocol.name,
            "rung": self.rung,
            "parameters": dict(self.protocol.parameters()),
        }

    @staticmethod
    def from_json(data: dict[str, Any], n_users: int) -> Calibration:
        """Inverse of `to_json`, for noise that counts on this many users."""
        if "refused" in data:
            return Calibration(protocol=None, refused=data["refused"])
        return Calibration(protocol=rebuild(data["bitsum"], n_users, data["parameters"]), rung=data["rung"])


@dataclass(frozen=True, slots=True)
class Calibrations:
    """A folder of calibrations, each made once."""

    folder: Path

    def place(self, request: PlanRequest) -> Path:
        """The file of this request, made by this version of the accountant."""
        key = json.dumps([privkde.__version__, request.to_json()], sort_keys=True)
        return self.folder / f"noise-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"

    def has(self, request: PlanRequest) -> bool:
        """Whether it was made already."""
        return self.place(shared(request)).exists()

    def make(self, request: PlanRequest) -> None:
        """Calibrate and remember; what is not possible is remembered with its reason."""
        try:
            protocol, rung, _ = choose(shared(request))
            calibration = Calibration(protocol=protocol, rung=rung.name)
        except PrivkdeError as error:
            calibration = Calibration(protocol=None, refused=str(error))
        write_text(self.place(shared(request)), json.dumps(calibration.to_json()) + "\n")

    def of(self, request: PlanRequest) -> Calibration:
        """The remembered calibration, its noise shared by the users that the request counts on."""
        made = shared(request)
        calibration = _remembered(self.place(made), made.users)
        if calibration.protocol is None or made.users == request.users:
            return calibration
        return dataclasses.replace(
            calibration, protocol=dataclasses.replace(calibration.protocol, n_users=request.users)
        )


@cache
def _remembered(place: Path, n_users: int) -> Calibration:
    """Read once: a pure protocol proves its privacy again whenever it is built, which takes a second."""
    return Calibration.from_json(read_json(place, "delete it, and it is made again."), n_users)


def central_deviation(request: PlanRequest) -> float:
    """Standard deviation of the Gaussian mechanism on sums of features, for the same promise."""
    baseline = central(request.facts(), request.users, epsilon=request.epsilon, delta=request.delta)
    return float(baseline.contract.parameters["standard_deviation"])


def local_flip(request: PlanRequest) -> float:
    """Flip probability of randomized response that protects each user alone, for the same promise."""
    baseline = local(request.facts(), request.users, epsilon=request.epsilon, delta=request.delta)
    return float(baseline.contract.parameters["flip_probability"])
