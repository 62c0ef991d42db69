"""Journals: whole lines only, whatever a kill left behind."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.manifest import Manifest, Record


def lines(count: int) -> list[dict[str, int]]:
    return [{"round": number, "value": number * number} for number in range(1, count + 1)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 6), st.integers(0, 200))
def test_a_journal_cut_anywhere_goes_on(tmp_path: Path, count: int, cut: int) -> None:
    journal = Journal(tmp_path / "rounds.jsonl")
    journal.path.unlink(missing_ok=True)
    for line in lines(count):
        journal.append(line)
    data = journal.path.read_bytes()
    journal.path.write_bytes(data[: min(cut, len(data))])
    kept = journal.rounds(1)
    assert kept == lines(count)[: len(kept)]
    for line in lines(count + 1)[len(kept) :]:
        journal.append(line)
    assert journal.rounds(1) == lines(count + 1)


def test_the_tail_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(b'{"round":1}\n{"rou')
    journal = Journal(path)
    first, offset = journal.tail()
    assert (first, offset) == ([{"round": 1}], 12)
    with path.open("ab") as file:
        file.write(b'nd":2}\n')
    assert journal.tail(offset) == ([{"round": 2}], 24)


def test_unreadable_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "rounds.jsonl").write_bytes(b'\x00\x00\n{"round":1}\n[1]\n')
    assert Journal(tmp_path / "rounds.jsonl").lines() == [{"round": 1}]
    assert Journal(tmp_path / "absent.jsonl").lines() == []


def test_the_first_of_two_equal_rounds_counts_and_gaps_end_the_curve(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "rounds.jsonl")
    for line in ({"round": 5, "v": 1}, {"round": 6}, {"round": 5, "v": 2}, {"round": 8}):
        journal.append(line)
    assert journal.rounds(5) == [{"round": 5, "v": 1}, {"round": 6}]


def test_a_run_is_listed_once_and_moves_with_its_study(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    folder = manifest.relative(tmp_path / "store" / "cells" / "abc")
    assert folder == "store/cells/abc"
    assert manifest.relative(tmp_path.parent / "shared") == str((tmp_path.parent / "shared").resolve())
    record = Record("cell", "abc", folder, "fedavg", 1, {"seed": 1}, "name", 0.0)
    manifest.add(record)
    Manifest(tmp_path).add(record)
    manifest.fail(record.id, "no luck")
    assert Manifest(tmp_path).read() == ([record], {"cell:abc": "no luck"})
