"""A shuffler that counts: partial counts of packets that add up in any order, over any number of machines.

What a uniformly random order leaves of messages is how many ones and zeros there are in each instance, so counts tell
exactly as much as shuffled messages do. Counting the packets of single users is therefore the *shuffler's* work:
whoever does it sees packets before they are mixed and is trusted like a shuffler. What it hands on is `released`, and
nothing is released for fewer users than the noise counts on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from accounting import InvalidInputError
from privkde.announcement import Announcement
from privkde.bitsum import Tally
from privkde.parties import Admission, Analyzer, counted, refuse_too_few


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """Why a part of the data cannot be counted, and where: of several, the first in order is reported."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCounts:
    """Counts of some of the packets; `+` is associative and commutative, and no counts are its neutral element."""

    tally: Tally
    n_users: int = 0
    rejected: int = 0
    complaint: Complaint | None = None

    def __add__(self, other: PartialCounts) -> PartialCounts:
        complaints = [one for one in (self.complaint, other.complaint) if one is not None]
        return PartialCounts(
            tally=self.tally + other.tally,
            n_users=self.n_users + other.n_users,
            rejected=self.rejected + other.rejected,
            complaint=min(complaints, default=None),
        )


class PacketCounter:
    """Takes and refuses packets exactly as `Shuffler` does, and keeps counts instead of messages."""

    def __init__(self, announcement: Announcement) -> None:
        self._admission = Admission(announcement)
        self._n_instances = announcement.n_instances
        zeros = np.zeros(self._n_instances, np.int64)
        self.nothing = PartialCounts(tally=Tally(zeros, zeros))
        self._refused = PartialCounts(tally=self.nothing.tally, rejected=1)

    def of(self, packet: bytes) -> PartialCounts:
        """The counts of one user's packet; a refused packet is counted in `rejected` and changes nothing else."""
        messages = self._admission.messages(packet)
        if messages is None:
            return self._refused
        return PartialCounts(tally=counted(messages, self._n_instances), n_users=1)

    def of_all(self, packets: Iterable[bytes]) -> PartialCounts:
        """The counts of many packets."""
        return sum((self.of(packet) for packet in packets), self.nothing)

    def complaining(self, place: int, reason: object) -> PartialCounts:
        """No counts, and why."""
        return PartialCounts(tally=self.nothing.tally, complaint=Complaint(place, str(reason)))


def withheld(announcement: Announcement, counts: PartialCounts) -> PartialCounts:
    """The counts; below the users that the noise counts on only how many there were, after a complaint only that.

    Counts of the parts that could be read would be a second release beside those of all, once the other is mended.
    """
    zeros = np.zeros(announcement.n_instances, np.int64)
    nothing = PartialCounts(tally=Tally(zeros, zeros), complaint=counts.complaint)
    if counts.complaint is not None:
        return nothing
    if counts.n_users < announcement.min_users:
        return replace(nothing, n_users=counts.n_users, rejected=counts.rejected)
    return counts


def released(announcement: Announcement, counts: PartialCounts) -> Analyzer:
    """The analyzer with these counts: what leaves the shuffler. Refused for too few users."""
    refuse_complaint(counts)
    refuse_too_few(counts.n_users, announcement.min_users, counts.rejected)
    return analyzed(announcement, counts)


def analyzed(announcement: Announcement, counts: PartialCounts) -> Analyzer:
    """An analyzer with these counts, however few users they are of: for simulations that have no shuffler."""
    analyzer = Analyzer(announcement)
    analyzer.add(counts.tally, counts.n_users)
    analyzer.rejected = counts.rejected
    return analyzer


def refuse_complaint(counts: PartialCounts) -> None:
    """Raise what a part of the data was not counted for."""
    if counts.complaint is not None:
        raise InvalidInputError(counts.complaint.reason)
