"""What the demonstration promises, and to how many users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The defaults teach: privacy costs a few points of accuracy here, and doing it otherwise costs nearly all.

    `n_classes` keeps the digits below it only; tests use that to be quick.
    """

    n_users: int = 20_000
    n_classes: int = 10
    n_test: int = 500
    n_gallery: int = 300
    epsilon: float = 1.0
    delta: float = 1e-6
    label_epsilon: float = 3.0
    repetitions: int = 1024
    bandwidth: float = 0.45
    insecure_seed: int | None = None

    def request(self, dim: int, accountant: str = "auto") -> dict[str, Any]:
        """What each class's plan is asked for.

        A useless plan is accepted: for the published calibration, how useless it is here is the point.
        """
        return {
            "dim": dim,
            "kernel": "gaussian",
            "repetitions": self.repetitions,
            "bitsum": "rr",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": accountant,
            "allow_useless": True,
        }
