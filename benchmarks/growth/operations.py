"""What one operation costs, in a process of its own: a job comes as JSON on standard input, its cost leaves as JSON.

{"operation": "randomize", "setting": {"users": 8192, …}, "plan": {…}, "repeats": 3}

Time is what all threads together spent on a core, by repeats. BLAS should have one thread (whoever starts this process
says so), because the waiting of others would count as work. Memory is the peak of the process, inputs included. The
operation "idle" does nothing: its peak is that of the imports, to be subtracted.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting import Plan, plan_budget
from benchmarks.memory import RepeatedRows, peak_memory
from privkde.bitsum import Tally
from privkde.draws.randomness import private_randomness
from privkde.engines.local import collect
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, analyzed
from privkde.protocol.messages import ID_BYTES
from privkde.protocol.model import FeatureSums
from verification.auditing import LAYER_MODULES, audit, collected
from verification.sabotage.saboteur import forget
from verification.verdicts import Subject

SEED = 0
PUBLIC_SEED = "5a" * 16
DIFFERENT_ROWS = 256
QUERIES = 8192

Setting = dict[str, Any]
Work = Callable[[], Any]
"""What is timed; everything before it is preparation."""


def directions(count: int, dim: int) -> RepeatedRows:
    """Random directions that repeat."""
    x = np.random.default_rng(SEED).standard_normal((DIFFERENT_ROWS, dim), dtype=np.float32)
    return RepeatedRows(np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True)), (count, dim))


def announced(setting: Setting, document: Setting) -> list[Announcement]:
    """A plan with these sizes written into its request, for each separate class with an even share of the users.

    What it then promises is false, but to run it costs the same: no step depends on how likely a bit is flipped.
    """
    plan = Plan.from_json(document)
    joint = setting.get("labels") == "joint"
    sizes = {name: value for name, value in setting.items() if joint or name != "classes"}
    count = 1 if joint else setting.get("classes", 1)
    sizes["users"] = setting["users"] // count
    changed = dataclasses.replace(plan, request=dataclasses.replace(plan.request, **sizes))
    return [Announcement(plan=changed, public_seed=PUBLIC_SEED, group=str(group)) for group in range(count)]


def idle(_setting: Setting, _document: Setting) -> Work:
    """Nothing."""
    return lambda: None


def plan(setting: Setting, _document: Setting) -> Work:
    """Find the noise (`plan_budget`)."""
    return lambda: plan_budget(**setting).to_json()


def randomize(setting: Setting, document: Setting) -> Work:
    """One pass over the users: features, rounding, flips, counts (`collect`, as `fit` does it)."""
    groups = announced(setting, document)
    users = setting["users"] // len(groups)
    x, index = directions(users, setting["dim"]), np.arange(users)
    classes = index % setting["classes"] if setting.get("labels") == "joint" else None
    stream = private_randomness(SEED)

    def work() -> None:
        for group in groups:
            collect(group, x, index, classes, stream=stream)

    return work


def analyze(setting: Setting, document: Setting) -> Work:
    """Unpack and count everybody's packets (`PacketCounter`), and estimate sums (`Analyzer`)."""
    groups, packets = announced(setting, document), []
    users, rng = setting["users"] // len(groups), np.random.default_rng(SEED)
    for group in groups:
        bits = rng.integers(0, 2, (users, group.n_instances), dtype=np.uint8)
        ids = [number.to_bytes(ID_BYTES) for number in range(users)]
        packets.append(group.wire_format().encode_users(Tally(bits, 1 - bits), ids, secret=False))
    del bits

    def work() -> None:
        for group, sent in zip(groups, packets, strict=True):
            counts = PacketCounter(group, seeded=True).of_all(sent)
            if counts.rejected:
                raise AssertionError("a packet was refused: nothing was measured")
            analyzed(group, counts).sums()

    return work


def query(setting: Setting, document: Setting) -> Work:
    """Densities of all classes at `QUERIES` vectors (`FeatureSums.densities`)."""
    classes = setting.get("classes", 1)
    family = announced({**setting, "classes": 1}, document)[0].family()
    sums = np.random.default_rng(SEED).standard_normal((classes, family.facts.n_instances))
    found = FeatureSums(family=family, sums=sums, n_users=(setting["users"] / classes,) * classes)
    y = directions(QUERIES, setting["dim"])

    def work() -> None:
        found.densities(y)

    return work


def audited(setting: Setting, document: Setting) -> Work:
    """Try to refute a plan (`audit`) with the checks that `setting["only"]` names and that apply, or with all."""
    subject = Subject(plan=Plan.from_json(document))
    applicable = [check.name for _, check in collected(LAYER_MODULES) if check.applies(subject)]
    only = [name for name in applicable if setting["only"] is None or name in setting["only"]]

    def work() -> list[dict[str, Any]]:
        results = audit(subject.plan, seed=SEED, only=only, workers=1).results
        failed = [one.name for one in results if one.finding is None]
        if failed:
            raise AssertionError(f"{failed[0]} could not run: nothing was measured")
        return [{"check": one.name, "layer": str(one.layer), "seconds": one.seconds} for one in results]

    return work


OPERATIONS: dict[str, Callable[[Setting, Setting], Work]] = {
    "idle": idle,
    "plan": plan,
    "randomize": randomize,
    "analyze": analyze,
    "query": query,
    "audit": audited,
}
COLD = ("plan", "audit")
"""Operations that would find an earlier repeat's results in caches; these are emptied before each."""


def measured(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each repeat on cores and by the clock, the peak of this process, and what came out."""
    work = OPERATIONS[job["operation"]](job["setting"], job["plan"])
    core, clock, found = [], [], None
    for _ in range(job["repeats"]):
        if job["operation"] in COLD:
            forget()
        begin, begin_core = time.perf_counter(), time.process_time()
        found = work()
        core.append(time.process_time() - begin_core)
        clock.append(time.perf_counter() - begin)
    return {"core_seconds": core, "clock_seconds": clock, "peak_bytes": peak_memory(), "found": found}


if __name__ == "__main__":
    json.dump(measured(json.load(sys.stdin)), sys.stdout)
