"""A shuffler that counts: partial counts of packets that add up in any order, over any number of machines.

A uniformly random order leaves of messages only how many ones and zeros there are in each instance, so counts reveal
exactly as much as shuffled messages do. Counting the packets of single users is therefore the *shuffler's* work:
whoever does it sees packets before they are mixed and is trusted like a shuffler. Its result leaves through `released`,
which refuses fewer users than the noise counts on, and a report that left before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from accounting import InvalidInputError
from privkde.bitsum import Tally
from privkde.draws.randomness import private_randomness
from privkde.protocol.announcement import Announcement
from privkde.protocol.parties import Admission, Analyzer, new_ids, refuse_too_few, register_of
from privkde.storage.report_register import CountedRelease, ReportRegister


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """Why a part of the data cannot be counted, and where. The first of several complaints is reported."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCounts:
    """Counts of some of the packets; `+` is associative and commutative, and no counts are its neutral element."""

    tally: Tally
    n_users: int = 0
    rejected: int = 0
    repeated: int = 0
    secret: bool = True
    """Whether all that was counted was marked as drawn from secret randomness; nothing spoils no mark."""
    complaint: Complaint | None = None

    @staticmethod
    def nothing(announcement: Announcement) -> PartialCounts:
        """No counts."""
        return PartialCounts(tally=Tally.nothing((announcement.n_instances,)))

    def __add__(self, other: PartialCounts) -> PartialCounts:
        complaints = [part.complaint for part in (self, other) if part.complaint is not None]
        return PartialCounts(
            tally=self.tally + other.tally,
            n_users=self.n_users + other.n_users,
            rejected=self.rejected + other.rejected,
            repeated=self.repeated + other.repeated,
            secret=self.secret and other.secret,
            complaint=min(complaints, default=None),
        )


class PacketCounter:
    """Takes and refuses packets exactly as `Shuffler` does, and keeps counts instead of messages.

    Which reports were taken is for a register to know; without one, packets must be of different reports. Packets that
    are marked as drawn from a seed are taken only if `seeded` says so: for studies, whose counts are not private.
    """

    def __init__(self, announcement: Announcement, *, seeded: bool = False) -> None:
        self._admission = Admission(announcement, seeded=seeded)
        self.nothing = PartialCounts.nothing(announcement)
        self.longest = announcement.wire_format().longest
        """Bytes of the longest packet that is taken."""

    def of(self, packet: bytes, register: ReportRegister | None = None) -> PartialCounts:
        """The counts of one user's packet; a refused packet is counted in `rejected` and changes nothing else.

        Nor does one whose report the register holds: it is counted in `repeated`, whatever its mark says.
        """
        counted = self._admission.counts(packet)
        if counted is None:
            return replace(self.nothing, rejected=1)
        if register is not None and not register.add(counted.packet_id):
            return replace(self.nothing, repeated=1)
        return PartialCounts(tally=self.nothing.tally + counted.tally, n_users=1, secret=counted.secret)

    def of_all(self, packets: Iterable[bytes], register: ReportRegister | None = None) -> PartialCounts:
        """The counts of many packets; one that is refused costs no work for each instance."""
        counts, rejected, repeated = self.nothing, 0, 0
        for packet in packets:
            one = self.of(packet, register)
            if one.n_users:
                counts += one
            else:
                rejected, repeated = rejected + one.rejected, repeated + one.repeated
        return counts + replace(self.nothing, rejected=rejected, repeated=repeated)

    def complaining(self, place: int, reason: object) -> PartialCounts:
        """No counts, and why."""
        return replace(self.nothing, complaint=Complaint(place, str(reason)))


def withheld(announcement: Announcement, counts: PartialCounts) -> PartialCounts:
    """The counts. For too few users only how many there were; after a complaint only the complaint.

    Otherwise the counts of the parts that could be read would be released, and again, once the rest is repaired, as
    part of the counts of all.
    """
    nothing = PartialCounts.nothing(announcement)
    if counts.complaint is not None:
        return replace(nothing, complaint=counts.complaint)
    if counts.n_users < announcement.least_packets:
        return replace(nothing, n_users=counts.n_users, rejected=counts.rejected, repeated=counts.repeated)
    return counts


def released(
    announcement: Announcement,
    counts: PartialCounts,
    register: ReportRegister | None = None,
    *,
    most_users: int | None = None,
) -> Analyzer:
    """The analyzer with these counts, which leave the shuffler, and all that left it before; refused for too few users.

    Also for more than `most_users`: reports that left are spent, and their sum could not be published. The register
    knows of the release before anything leaves. If nothing is new, what left before is given again.
    """
    refuse_complaint(counts)
    kept = register_of(announcement, register)
    if most_users is not None and (n := counts.n_users + sum(one.n_users for one in kept.releases())) > most_users:
        raise InvalidInputError(
            f"{n:,} reports came and {most_users:,} users were planned for; nothing was counted. Leave out those of"
            " strangers, or plan for more users. Tokens keep strangers out (ReportRegister.issue)."
        )
    if counts.n_users or not kept.releases():
        refuse_too_few(counts.n_users, announcement.plan.request, counts.rejected, counts.repeated)
        (release_id,) = new_ids(1, private_randomness())
        ones, zeros = counts.tally.ones, counts.tally.zeros
        kept.release(
            CountedRelease(release_id=release_id, n_users=counts.n_users, secret=counts.secret, ones=ones, zeros=zeros)
        )
    analyzer = Analyzer(announcement)
    for one in kept.releases():
        analyzer.add(Tally(one.ones, one.zeros), one.n_users, secret=one.secret, releases=[one.release_id])
    analyzer.rejected, analyzer.repeated = counts.rejected, counts.repeated
    return analyzer


def analyzed(announcement: Announcement, counts: PartialCounts) -> Analyzer:
    """An analyzer with these counts of however few users: for simulations without a shuffler."""
    analyzer = Analyzer(announcement)
    analyzer.add(counts.tally, counts.n_users, secret=counts.secret)
    analyzer.rejected, analyzer.repeated = counts.rejected, counts.repeated
    return analyzer


def refuse_complaint(counts: PartialCounts) -> None:
    """Raise the complaint, if there is one."""
    if counts.complaint is not None:
        raise InvalidInputError(counts.complaint.reason)
