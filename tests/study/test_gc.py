"""`gc` frees what no study names, and nothing that somebody may still want."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fedrela_bench import leases
from fedrela_bench.cli import main
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.study.gc import find_litter, free, store_of
from fedrela_bench.study.store import Store, name_study
from fedrela_bench.tracking.manifest import Manifest, Record


def make_study(out: Path, store: Path, *keys: str, name: str = "s1") -> Path:
    """A study that names one trunk and some cells."""
    out.mkdir(parents=True)
    (out / "study.json").write_text(json.dumps({"study": name, "store": str(store)}))
    name_study(store, name, out)
    manifest, trunk = Manifest(out), Store(store).entry("trunk", f"t-{name}")
    trunk.begin({"kind": "trunk"})
    for key in keys:
        entry = Store(store).entry("cell", key)
        entry.begin({"key": key})
        entry.rolling.write_bytes(b"unfinished")
        folders = {"trunk_folder": manifest.relative(trunk.folder), "branch_folder": ""}
        manifest.add(Record("cell", key, manifest.relative(entry.folder), "fedavg", 1, {}, key, 0.0, **folders))
    return out


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "store"
    make_study(tmp_path / "a", place, "c1", "c2", name="a")
    make_study(tmp_path / "b", place, "c2", "c3", name="b")
    orphan = Store(place).entry("cell", "orphan")
    orphan.begin({})
    (orphan.folder / "r0005.pt").write_bytes(b"x" * 1000)
    return place


def test_only_what_no_study_names_is_freed(store: Path, tmp_path: Path) -> None:
    litter = find_litter(store)
    assert [path.name for path in litter.unnamed] == ["orphan"]
    assert litter.studies == [tmp_path / "a", tmp_path / "b"]
    assert free(litter) >= 1000
    assert not (store / "cells" / "orphan").exists()
    assert sorted(path.name for path in (store / "cells").iterdir()) == ["c1", "c2", "c3"]
    assert sorted(path.name for path in (store / "trunks").iterdir()) == ["t-a", "t-b"]
    assert (store / "cells" / "c1" / "state.pt").exists()


def test_what_a_living_process_writes_stays(store: Path) -> None:
    entry = Store(store).entry("cell", "orphan")
    with entry.lease():
        litter = find_litter(store)
        assert not litter.unnamed
        assert f"process {os.getpid()} on" in litter.held[0]
    litter = find_litter(store)
    other = leases.Owner("elsewhere", 1, "1", "", "t")
    (entry.folder / "lease").write_text(json.dumps(other.__dict__))
    assert free(litter) == 0
    assert entry.folder.exists()


def test_nothing_is_freed_under_a_running_study(store: Path, tmp_path: Path) -> None:
    with leases.hold(tmp_path / "a" / ".lock"), pytest.raises(StoreError, match=r"runs the study in .*; repeat gc"):
        find_litter(store)


def test_a_study_that_was_moved_keeps_its_runs_and_one_that_is_gone_must_be_named(store: Path, tmp_path: Path) -> None:
    (tmp_path / "b").rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match=r"the study that ran in .*b is not there any more; give its new folder"):
        find_litter(store)
    assert [path.name for path in find_litter(store, studies=[tmp_path / "moved"]).unnamed] == ["orphan"]
    shutil.rmtree(tmp_path / "moved")
    gone = find_litter(store, forget=[tmp_path / "b"])
    assert sorted(path.name for path in gone.unnamed) == ["c3", "orphan", "t-b"]


def test_a_store_that_knows_no_study_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path / "store").entry("cell", "c1").begin({})
    with pytest.raises(ConfigError, match="nothing says which studies use"):
        find_litter(tmp_path / "store")


def test_a_store_moves_with_its_study(tmp_path: Path) -> None:
    out = tmp_path / "a"
    out.mkdir()
    (out / "study.json").write_text(json.dumps({"study": "a", "store": str(out / "store")}))
    name_study(out / "store", "a", out)
    entry = Store(out / "store").entry("cell", "c1")
    entry.begin({})
    Manifest(out).add(Record("cell", "c1", "store/cells/c1", "fedavg", 1, {}, "c1", 0.0))
    out.rename(tmp_path / "elsewhere")
    assert find_litter(store_of(tmp_path / "elsewhere")).unnamed == []


def test_temporary_files_of_killed_processes_go(store: Path) -> None:
    old, young = store / "cells" / "c1" / ".state.pt.77.tmp", store / "cells" / "c1" / ".state.pt.78.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    litter = find_litter(store)
    assert litter.temporary == [old]
    free(litter)
    assert young.exists() and not old.exists()


def test_the_command_deletes_only_when_told(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gc", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert f"unnamed: {store / 'cells' / 'orphan'}" in out and "nothing was deleted, --yes does it" in out
    assert (store / "cells" / "orphan").exists()
    assert main(["gc", str(store), "--yes"]) == 0
    assert "freed 0.0 MiB" in capsys.readouterr().out
    assert not (store / "cells" / "orphan").exists()
    assert main(["gc", str(store)]) == 0
    assert "nothing to free" in capsys.readouterr().out
    assert main(["gc", str(tmp_path)]) == 2


def test_what_forks_share_stays_with_their_trunk_and_goes_with_it(store: Path) -> None:
    kept, orphan = store / "trunks" / "t-a" / "posteriors", store / "trunks" / "orphan" / "posteriors"
    for folder in (kept, orphan):
        folder.mkdir(parents=True)
        (folder / "pass.npz").write_bytes(b"x" * 100)
        (folder / ".pass.npz.77.tmp").write_bytes(b"half")
        os.utime(folder / ".pass.npz.77.tmp", (1, 1))
    litter = find_litter(store)
    assert litter.temporary == [kept / ".pass.npz.77.tmp"]
    free(litter)
    assert [path.name for path in kept.iterdir()] == ["pass.npz"] and not orphan.parent.exists()


def test_damaged_notes_stop_gc_with_what_to_do(store: Path, tmp_path: Path) -> None:
    (tmp_path / "a" / "study.json").write_text("{")
    with pytest.raises(StoreError, match=r"study\.json is damaged .*move it away and repeat its command"):
        find_litter(store)
    with pytest.raises(StoreError, match="damaged"):
        store_of(tmp_path / "a")
    (store / "studies" / "b.json").write_text("{")
    with pytest.raises(StoreError, match=r"b\.json is damaged .*repeat the `tune` command of every study"):
        find_litter(store)


@pytest.mark.parametrize("damage", [None, b'{"kind": "cell", "key"\n', b"\x00\x00\n"])
def test_runs_of_a_study_that_lost_its_list_are_no_litter(store: Path, tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "a" / "runs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage + b"".join(lines[1:]))
    with pytest.raises(StoreError, match=r"runs\.jsonl is damaged or gone.*repeat the study's command"):
        find_litter(store)
    # Half a line at the end is what a kill leaves; the next one that is written cuts it off.
    path.write_bytes(b"".join(lines) + b'{"kind": "ce')
    assert [folder.name for folder in find_litter(store).unnamed] == ["orphan"]
