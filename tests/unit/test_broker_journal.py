"""The journal: what was written comes back, half lines do not, and the file stays small."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from services.broker.core import Entry, Granted, Lease, LeaseKind, Ledger, Released, Renewed, Tier
from services.broker.journal import NAME, Journal, JournalError

LEASE = Lease("a", "llm/m", "cpu", LeaseKind.RESIDENT, Tier.SUB, 100, 0, 1000, 31_000, 30_000, "r")
HISTORY: list[Entry] = [
    Granted(1000, LEASE),
    Granted(1001, replace(LEASE, lease_id="b", holder='llm/"ü\n')),
    Renewed(2000, "a", 40, 32_000),
    Released(3000, "b"),
]


def written(path: Path, entries: list[Entry]) -> None:
    journal = Journal(path)
    for entry in entries:
        journal.append(entry)
    journal.close()


def reopened(path: Path) -> list[Entry]:
    journal = Journal(path)
    try:
        return journal.entries()
    finally:
        journal.close()


def test_what_was_written_comes_back_in_order(tmp_path: Path) -> None:
    written(tmp_path, HISTORY)
    assert reopened(tmp_path) == HISTORY


def test_begins_empty(tmp_path: Path) -> None:
    assert reopened(tmp_path / "new") == []
    assert (tmp_path / "new" / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, kept: int) -> None:
    written(tmp_path, HISTORY)
    path = tmp_path / NAME
    whole, last = path.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)
    path.write_bytes(whole + b"\n" + last[: kept if kept > 0 else len(last)])
    journal = Journal(tmp_path)
    assert journal.entries() == HISTORY[:-1]
    journal.append(HISTORY[-1])  # and the next line does not grow onto its stump
    journal.close()
    assert reopened(tmp_path) == HISTORY


UNREADABLE = [b"not json", b'{"grant":{}}', b"{}", b"\xff\xfe", b"", b"\0" * 4096]


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_torn_tail_of_whole_lines_is_cut_off_and_said(tmp_path: Path, line: bytes) -> None:
    written(tmp_path, HISTORY[:-1])
    path = tmp_path / NAME
    tail = b'{"renew":{"at\n' + line + b"\n\0\0"
    path.write_bytes(path.read_bytes() + tail)
    journal = Journal(tmp_path)
    with structlog.testing.capture_logs() as told:
        assert journal.entries() == HISTORY[:-1]
    assert [(x["log_level"], x["cut_off_bytes"]) for x in told] == [("warning", len(tail))]
    journal.append(HISTORY[-1])
    journal.close()
    assert reopened(tmp_path) == HISTORY


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_foreign_line_before_a_good_one_is_refused_with_its_place(
    tmp_path: Path, line: bytes
) -> None:
    written(tmp_path, HISTORY[:1])
    path = tmp_path / NAME
    good = path.read_bytes()
    before = good + line + b"\n" + line + b"\n" + good + b"torn"
    path.write_bytes(before)
    with pytest.raises(JournalError, match=f"{NAME}:2: this is not a line"):
        reopened(tmp_path)
    assert path.read_bytes() == before


def test_replay_restores_the_ledger(tmp_path: Path) -> None:
    written(tmp_path, HISTORY)
    ledger = Ledger(8)
    for entry in reopened(tmp_path):
        ledger.replay(entry)
    kept = replace(LEASE, materialised_mib=40, expires_unix_ms=32_000, renewed_unix_ms=2000)
    assert ledger.leases(31_999) == [kept]
    assert ledger.repeated("llm/m", "r", 31_999) is not None


def test_a_lowered_grant_stays_lowered(tmp_path: Path) -> None:
    written(tmp_path, [*HISTORY[:3], Renewed(2500, "a", 40, 32_500, 60)])
    ledger = Ledger(8)
    for entry in reopened(tmp_path):
        ledger.replay(entry)
    assert ledger.get("a").granted_mib == 60


def test_a_journal_of_the_time_when_grants_could_not_be_lowered_is_read(tmp_path: Path) -> None:
    written(tmp_path, HISTORY[:1])
    line = b'{"renew":{"at_unix_ms":2000,"lease_id":"a","materialised_mib":40,'
    with (tmp_path / NAME).open("ab") as file:
        file.write(line + b'"expires_unix_ms":32000}}\n')
    assert reopened(tmp_path) == [HISTORY[0], HISTORY[2]]


def test_replay_drops_what_ran_out_while_the_broker_lived(tmp_path: Path) -> None:
    later = Granted(31_000, replace(LEASE, lease_id="c", request_id="", expires_unix_ms=61_000))
    written(tmp_path, [HISTORY[0], later])
    ledger = Ledger(8)
    for entry in reopened(tmp_path):
        ledger.replay(entry)
    # Long after both: "c" was alive when the broker was last heard of, "a" was not.
    ledger.resume(10_000_000, 600_000)
    assert [(x.lease_id, x.expires_unix_ms) for x in ledger.leases(10_000_000)] == [
        ("c", 10_030_000)
    ]


def test_compaction_keeps_the_living_and_bounds_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path, compact_bytes=4096)
    journal.append(HISTORY[0])
    largest = compactions = 0
    for n in range(1000):
        journal.append(Renewed(2000 + n, "a", n, 32_000 + n))
        largest = max(largest, (tmp_path / NAME).stat().st_size)
        if journal.wants_compaction:
            journal.compact([replace(LEASE, materialised_mib=n)], 2000 + n)
            compactions += 1
            last = n
    assert compactions > 5
    assert largest < 2 * 4096
    journal.close()
    first, *rest = reopened(tmp_path)
    assert first == Granted(2000 + last, replace(LEASE, materialised_mib=last))
    assert len(rest) == 999 - last


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.append(HISTORY[0])
    write = os.write

    def short_then_full(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full)
        return write(fd, data[:7])

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", short_then_full)
    with pytest.raises(OSError, match="No space"):
        journal.append(HISTORY[1])
    monkeypatch.setattr(os, "write", write)
    journal.append(HISTORY[2])
    journal.close()
    assert reopened(tmp_path) == [HISTORY[0], HISTORY[2]]


def test_grants_are_on_the_disk_before_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    journal = Journal(tmp_path)
    journal.append(HISTORY[0])
    assert synced == [(tmp_path / NAME).stat().st_size]
    journal.append(HISTORY[2])
    assert len(synced) == 1
    journal.close()


def test_two_brokers_do_not_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="another broker"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()
