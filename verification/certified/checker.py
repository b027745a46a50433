"""The checker: what a plan's parameters cost, from above and from below, by theorems evaluated in ball arithmetic.

Only the plan's document is read: its request and its parameters. No law, no grid, no composition of `accounting` is
used, and what replacing one record can move is counted again. Source: docs/proofs/certificate.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import scipy
from flint import ctx

from accounting import Plan
from verification.certified.balls import GUARD_BITS, ONE, ZERO, Ball, exact, total
from verification.certified.complex_orders import Contour, contouring
from verification.certified.composed_loss import LowerProfile
from verification.certified.neighbors import Moves, Neighbors
from verification.certified.noise_laws import TwoLaws, binomial, shifted
from verification.certified.profiles import Loss, LossGrid, Table, composed, symmetric
from verification.certified.squared_shifts import (
    AnyData,
    Budget,
    Coins,
    Corners,
    UnitBall,
    any_data_cutting,
    coin_cutting,
)
from verification.certified.witness import FARTHEST, MOST_POINTS, Contouring, Grid, Witness
from verification.twins import mechanism_twin
from verification.twins.mechanism_twin import MechanismTwin

TAIL_SHARE = 1e-11
"""Share of δ that mass outside the windows may cost."""
POINTS_PER_DEVIATION, LEAST_POINTS = 32, 200
"""Points of a grid of losses in a standard deviation of one instance's loss, and at least."""
MOVED_POINTS_PER_DEVIATION = 64
"""The same for a bit that flips completely where bits move less: two grids lose a little each."""
HEAVY = 0.1
"""An outcome of so much mass has its loss on the grid, so that connecting the dots costs nothing there."""
FINEST_CELLS, WIDE = 1024, 16
"""Finest cells of the others' data, about; and how many of them make a wide one, which is tried first."""
LARGEST_WINDOWS = 4e6
"""Masses that all cells together may have."""
GROUPS = 8
"""Cells are joined into so many kinds."""
CERTAIN = 1e-8
"""Share of δ up to which a grid of losses may end too early."""
FIRST_STEP = 2e-3
"""A proved ε is lowered by such a share first, then by eight times as much."""
TRIMMED = 1e-9
"""Share of δ that may be trimmed after each product of losses."""

T = TypeVar("T")
Bound = Callable[[float], Ball]
"""δ(ε), from above or from below."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of the plan's mechanism."""

    twin: MechanismTwin
    tail: float
    all_zero: TwoLaws
    """The laws if all others are at 0."""

    @staticmethod
    def of(twin: MechanismTwin, tail: float) -> Instance:
        """With windows that end where masses are below `tail`."""
        return Instance(twin, tail, twin.certified_laws(tail))

    def laws(self, ones: int = 0, dropped: int = 0) -> TwoLaws:
        """The shuffled output for the target's bit 1 and 0; `ones` and `dropped` are about the others."""
        return self.twin.certified_laws(self.tail, ones=ones, dropped=dropped)

    def cells(self, finest: int, unsettled: Callable[[TwoLaws], T | None]) -> Iterator[tuple[int, T]]:
        """(the least number of ones, what is `unsettled` of the laws) for cells that cover all data of the others.

        By symmetry half of the others' data is enough; none is needed if the others only shift the counts. For all
        numbers of ones in [a, b], the reports of b − a others are given away. Wide cells are tried first, once.
        """
        highest = (self.twin.n_users - 1) // 2 if self.twin.depends_on_others else 0
        stack = [(1, highest, True)] if highest else []
        while stack:
            a, b, trying = stack.pop()
            if b - a <= (WIDE * max(finest, 1) if trying else finest):
                left = unsettled(self.laws(a, b - a))
                if left is None:
                    continue
                if b - a <= finest:
                    yield a, left
                    continue
                trying = False
            middle = (a + b) // 2
            stack += [(a, middle, trying), (middle + 1, b, trying)]


def finest_cell(instance: Instance) -> int:
    """About a 1024th of the users, wider where windows are long."""
    users = instance.twin.n_users
    if not instance.twin.depends_on_others:
        return 0
    cells = max(16.0, min(float(FINEST_CELLS), LARGEST_WINDOWS / len(instance.all_zero.one)))
    return int(users / cells)


def loss_grid(laws: TwoLaws, negligible: float, per_deviation: int = POINTS_PER_DEVIATION) -> Grid:
    """Fine enough for the deviation of the loss, and as far as losses of more than `negligible` mass go.

    If one outcome is heavy, its loss is a point of the grid.
    """
    sizes, deviation, weight = [], 0.0, 0.0
    for p, q in zip(laws.one, laws.zero, strict=True):
        one, zero = float(p), float(q)
        if one > 0.0 and zero > 0.0:
            size = abs(math.log(one / zero))
            sizes.append((size, max(one, zero)))
            deviation, weight = deviation + min(one, zero) * size * size, weight + min(one, zero)
    sizes.sort(reverse=True)
    beyond, end = 0.0, 0.0
    for size, mass in sizes:
        beyond += mass
        end = size
        if beyond > negligible:
            break
    if end <= 0.0:
        return Grid(step=1.0, points=1)
    end, deviation = min(end, 0.99 * FARTHEST), math.sqrt(deviation / weight)
    points = min(max(math.ceil(per_deviation * end / max(deviation, 1e-300)), LEAST_POINTS), MOST_POINTS)
    step = end * (1.0 + 1e-12) / points
    heaviest, mass = max(sizes, key=operator.itemgetter(1))
    if mass >= HEAVY and heaviest > step:
        step = heaviest / round(heaviest / step)
        points = min(math.ceil(end * (1.0 + 1e-12) / step), MOST_POINTS)
    return Grid(step=step, points=points)


def kinds(instance: Instance, grid: LossGrid, finest: int) -> list[Table]:
    """Tables such that every data of the others is dominated by one of them, in one direction or the other."""
    end = Table.of(instance.all_zero, grid)
    mirror = end.reversed()

    def unsettled(laws: TwoLaws) -> Table | None:
        table = Table.of(laws, grid)
        return None if table.certainly_below(end) or table.certainly_below(mirror) else table

    groups: dict[int, Table] = {}
    for ones, table in instance.cells(finest, unsettled):
        group = 2 * GROUPS * ones // instance.twin.n_users
        groups[group] = groups[group].joined(table) if group in groups else table
    return [end, *groups.values()]


@dataclass(frozen=True, slots=True)
class Upper:
    """A bound on δ(ε) for every ε, and the witness that it was computed at."""

    delta: Bound
    instance: Instance
    witness: Witness

    def epsilon(self, delta: float, guess: float) -> float:
        """About the least ε whose δ(ε) is surely at most `delta`, after few tries: each may take long."""

        def excess(epsilon: float) -> float:
            return math.log(max(float(self.delta(epsilon)), 1e-300)) - math.log(delta)

        def holds(epsilon: float) -> bool:
            return bool(self.delta(epsilon) <= exact(delta))

        low, high, step = 0.0, max(guess, 1e-9), FIRST_STEP
        while not holds(high):
            low, high = high, 2.0 * high
            if high > 1e4:
                return math.inf
        while low < high * (1.0 - step) and holds(nearer := high * (1.0 - step)):
            high, step = nearer, 8.0 * step
        low = max(low, high * (1.0 - step))
        if not excess(low) > 0.0 > excess(high):
            return high
        root = scipy.optimize.brentq(excess, low, high, xtol=1e-7 * high, rtol=1e-7)
        above_root = min(high, root * (1.0 + 1e-6))
        return above_root if holds(above_root) else high


def bits_for(delta: float, epsilon: float) -> int:
    """Precision at which masses far below δ are told from zero, even e^ε of them."""
    small = 2 * math.ceil(-math.log2(min(delta, 0.5))) if delta > 0.0 else GUARD_BITS
    return GUARD_BITS + small + math.ceil(1.45 * epsilon)


def tail_for(delta: float, instances: int) -> float:
    """Where windows of laws end, unless a witness says otherwise."""
    return max(TAIL_SHARE * delta / instances, 1e-290)


def upper(plan: Plan, reach: Neighbors, delta: float, given: Witness | None = None) -> Upper:
    """The bound on δ(ε) that theorems prove for a plan that spends δ, at a given witness or at one that is found here.

    Call it with the precision of the witness.
    """
    tail = given.tail if given else tail_for(delta, reach.instances)
    instance = Instance.of(mechanism_twin(plan), tail)
    cell = finest_cell(instance)  # finer ones would take longer than they may
    found = replace(given, cell=max(given.cell, cell)) if given else Witness(bits=ctx.prec, tail=tail, cell=cell)
    if reach.squared_shift is None and reach.instances == 1:
        return Upper(lambda epsilon: _one_instance(instance, found.cell, exact(epsilon).exp()), instance, found)
    negligible = CERTAIN * delta / reach.instances
    shift = exact(reach.largest_shift)
    equal = reach.squared_shift is not None and reach.squared_shift * 1000 >= shift * shift * reach.instances * 999
    finer = MOVED_POINTS_PER_DEVIATION if equal else POINTS_PER_DEVIATION
    found = replace(found, grid=found.grid or loss_grid(instance.all_zero, negligible, finer))
    assert found.grid is not None
    grid = LossGrid.of(found.grid)
    tables = kinds(instance, grid, found.cell)
    if reach.squared_shift is None:
        return Upper(composed(tables, grid, reach.instances, TRIMMED * delta).delta, instance, found)
    if equal:  # every bit may move as far as any
        moved = instance.all_zero.mixed(shift, ZERO)
        found = replace(found, moved_grid=found.moved_grid or loss_grid(moved, negligible))
        assert found.moved_grid is not None
        other = LossGrid.of(found.moved_grid)
        kinds_moved = [way.moved(shift, grid, other) for table in tables for way in (table, table.reversed())]
        return Upper(composed(kinds_moved, other, reach.instances, TRIMMED * delta).delta, instance, found)
    budget, corners = Budget(reach.squared_shift, reach.instances, reach.largest_shift), _corners(tables, grid)
    fixed = plan.request.releases == 1  # the shifts of a later release may depend on what an earlier one showed
    if fixed and (contour := _contour(corners, budget, delta, found)) is not None:
        return Upper(contour[0].delta, instance, replace(found, contour=contour[1]))
    found = replace(found, cutting=found.cutting or any_data_cutting(corners, budget, delta)[1])
    assert found.cutting is not None
    any_data, coins = AnyData.of(corners, budget, found.cutting), Coins.of(instance.twin.n_users)
    if not reach.unit_ball or coins.number < 1:
        return Upper(any_data.delta, instance, found)
    tossed = shifted(binomial(coins.number, ONE / 2, tail))
    found = replace(found, coin_grid=found.coin_grid or loss_grid(tossed, negligible))
    assert found.coin_grid is not None
    fine = LossGrid.of(found.coin_grid)
    of_coins = _corners([Table.of(tossed, fine)], fine)
    found = replace(found, coin_cutting=found.coin_cutting or coin_cutting(of_coins, budget, delta))
    assert found.coin_cutting is not None
    ball = UnitBall(corners, AnyData.of(of_coins, budget, found.coin_cutting), coins.failure)
    return Upper(lambda epsilon: any_data.delta(epsilon).min(ball.delta(epsilon)), instance, found)


def _contour(corners: Corners, budget: Budget, delta: float, found: Witness) -> tuple[Contour, Contouring] | None:
    """Theorem 3 where it is the witness's choice; or where it proves more than Theorem 1 may, and nothing is chosen."""
    if found.contour is not None:
        return Contour.of(corners, budget, found.contour), found.contour
    if found.cutting is not None or (chosen := contouring(corners, budget, delta)) is None:
        return None
    likely, where = chosen
    moments, _ = any_data_cutting(corners, budget, delta)
    if not likely < moments:
        return None
    contour = Contour.of(corners, budget, where)
    return (contour, where) if contour.epsilon(delta) < moments else None


def _corners(tables: list[Table], grid: LossGrid) -> Corners:
    both = symmetric(tables)
    return Corners.of(Loss.of(both, grid.step, grid.growth))


def _one_instance(instance: Instance, cell: int, growth: Ball) -> Ball:
    """Hockey sticks of one bit that may flip, over all data of the others, in both directions."""
    largest = _sticks(instance.all_zero, growth)

    def unsettled(laws: TwoLaws) -> Ball | None:
        return None if (sticks := _sticks(laws, growth)) <= largest else sticks

    for _, sticks in instance.cells(cell, unsettled):
        largest = largest.max(sticks)
    return largest


def _sticks(laws: TwoLaws, growth: Ball) -> Ball:
    """The larger hockey stick of both directions."""
    sides = [way.missing + total([(p - growth * q).max(ZERO) for p, q in zip(way.one, way.zero, strict=True)])
             for way in (laws, laws.reversed())]  # fmt: skip
    return sides[0].max(sides[1])


@dataclass(frozen=True, slots=True)
class Lower:
    """Bounds on δ(ε) from below, in both directions, for one dataset and bits that all move alike."""

    profiles: tuple[LowerProfile, ...]

    @staticmethod
    def of(twin: MechanismTwin, tail: float, moves: Moves) -> Lower:
        """For complete flips all others are at 0.

        Half: all others at 1, as if their records were x′, and the bit goes from a fair coin to 1, which is what a
        hashed feature does in the bucket of x′.
        """
        laws = twin.certified_laws_below(tail, ones=twin.n_users - 1 if moves.half else 0)
        if moves.half:
            laws = laws.mixed(ONE / 2, ONE)
        return Lower(tuple(LowerProfile.of(way, moves.bits) for way in (laws, laws.reversed())) if moves.bits else ())

    def delta(self, epsilon: float) -> Ball:
        """A number that δ(ε) is not below."""
        largest = ZERO
        for profile in self.profiles:
            largest = largest.max(profile.delta(epsilon))
        return largest

    def epsilon(self, delta: float) -> float:
        """About the largest ε whose δ(ε) is surely above `delta`."""
        return max((profile.epsilon(delta) for profile in self.profiles), default=0.0)
