"""Packets in files: what is written is read again, and damage is refused."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from privkde.storage import columns, packets
from privkde.storage.container import DamagedFileError
from privkde.storage.datasets import read_vectors
from privkde.storage.packets import SUFFIXES, read_packets, write_packets
from tests.memory import MEGABYTE, peak

PACKETS = [b"pk", b"\0", b"\0\0\0\0", bytes(range(256)) * 40, b"privkde packets/1\n"]
LONGEST = 20_000
FORMATS = [suffix if suffix == ".packets" else pytest.param(suffix, marks=pytest.mark.extras) for suffix in SUFFIXES]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("held", [PACKETS, []], ids=["some", "none"])
def test_packets_come_back_in_order(suffix: str, held: list[bytes], tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    write_packets(target, iter(held))
    assert list(read_packets(str(target), LONGEST)) == held


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.integers(0, 400))
def test_every_truncation_of_a_delimited_file_is_found(held: list[bytes], cut: int) -> None:
    whole = packets.MAGIC + b"".join(len(one).to_bytes(4, "little") + one for one in held) + bytes(4)
    assert list(read_packets("a.packets", LONGEST, lambda _: io.BytesIO(whole))) == held
    with pytest.raises(DamagedFileError, match=r"'a\.packets' is truncated"):
        list(read_packets("a.packets", LONGEST, lambda _: io.BytesIO(whole[: cut % len(whole)])))
    with pytest.raises(DamagedFileError):
        list(read_packets("a.packets", LONGEST, lambda _: io.BytesIO(whole + b"\0")))


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    write_packets(target, PACKETS)
    whole = target.read_bytes()
    for damaged in (b"", b"nonsense", whole[:-5], whole[: len(whole) // 2]):
        target.write_bytes(damaged)
        with pytest.raises(InvalidInputError, match=f"part{suffix}' "):
            list(read_packets(str(target), LONGEST))


def test_other_formats_are_refused_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="must end in"):
        list(read_packets("packets.csv", LONGEST))
    with pytest.raises(InvalidInputError, match=r"\.parquet"):
        write_packets(tmp_path / "packets.csv", [])


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(columns, "find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match=r"privkde\[beam\]"):
        read_vectors(tmp_path / "x.parquet", "X")


@pytest.mark.parametrize("suffix", FORMATS)
def test_of_a_packet_that_is_too_long_just_enough_is_read_to_refuse_it(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    write_packets(target, [b"a" * 10, b"b" * 11, b"c" * 5000, b"d"])
    assert list(read_packets(str(target), 10)) == [b"a" * 10, b"b" * 11, b"c" * 11, b"d"]


def test_a_length_takes_no_memory() -> None:
    """40 MB in one packet, and 4 GB that are claimed and not there."""
    big, claimed = ((40 << 20).to_bytes(4, "little") + bytes(40 << 20) + bytes(4), b"\xff\xff\xff\xff" + bytes(100))
    file = io.BytesIO(packets.MAGIC + big)
    assert peak(lambda: list(read_packets("a.packets", 1000, lambda _: file))) < 3 * MEGABYTE

    def damaged() -> None:
        with pytest.raises(DamagedFileError, match="truncated"):
            list(read_packets("a.packets", 10**6, lambda _: io.BytesIO(packets.MAGIC + claimed)))

    assert peak(damaged) < 3 * MEGABYTE
