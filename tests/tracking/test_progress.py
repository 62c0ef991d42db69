"""Progress: one line per finished thing, signs of life, events for machines, a table on a terminal."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.progress import Item, Progress


def play(progress: Progress, folder: Path) -> None:
    Journal(folder / "rounds.jsonl").append({"round": 1})
    with progress:
        progress.stage("search", 4)
        progress.begin("a", Item("trial 0 fedavg", [folder / "rounds.jsonl"], 10))
        time.sleep(0.15)
        progress.end("a", "trial 0 fedavg", "completed", {"val/tail": 0.25})
        progress.end("b", "trial 1 fedavg", "failed", {}, "no luck")
        progress.end("c", "trial 2 fedavg", "diverged", {})
        progress.end("d", "trial 3 fedavg", "futile", {}, "gain in round 6 below 0.20 points: val/tail -0.31")
        progress.note("stopping")


def test_lines_for_a_log_file(tmp_path: Path) -> None:
    stream = io.StringIO()
    play(Progress("auto", stream, heartbeat=0.05), tmp_path)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "search: 4 to do"
    assert "... search: 0/4 done; running: trial 0 fedavg 1/10" in lines
    assert any(line.startswith("[1/4] trial 0 fedavg  val/tail 25.00 %  0.") for line in lines)
    assert any(line.startswith("[2/4] trial 1 fedavg  failed  no luck") for line in lines)
    assert any(line.startswith("[3/4] trial 2 fedavg  diverged  0.") for line in lines)
    stopped = "[4/4] trial 3 fedavg  stopped:  gain in round 6 below 0.20 points: val/tail -0.31  0."
    assert any(line.startswith(stopped) for line in lines)
    assert " 0.00 %" not in stream.getvalue()
    assert lines[-1] == "stopping"


def test_json_events(tmp_path: Path) -> None:
    stream = io.StringIO()
    play(Progress("json", stream), tmp_path)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["stage", "started", *["finished"] * 4, "note"]
    assert events[2]["values"] == {"val/tail": 0.25}
    assert events[3]["error"] == "no luck"


def test_quiet_says_nothing(tmp_path: Path) -> None:
    stream = io.StringIO()
    play(Progress("quiet", stream), tmp_path)
    assert stream.getvalue() == ""


def test_the_live_table_shows_what_runs_and_the_best(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = Progress("live", stream)
    progress.totals.best["val/tail"] = 0.25
    play(progress, tmp_path)
    assert "trial 2 fedavg" in stream.getvalue()
    from rich.console import Console

    progress.stage("search", 5)
    progress.begin("d", Item("trial 3 fedavg", [tmp_path / "rounds.jsonl"], 10))
    with Console(file=io.StringIO(), width=100).capture() as _:
        shown = io.StringIO()
        Console(file=shown, width=100).print(progress._table())
    assert "trial 3 fedavg" in shown.getvalue()
    assert "1/10" in shown.getvalue() and "best val/tail 25.00 %" in shown.getvalue()


def test_a_closed_pipe_does_not_end_the_study(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    play(Progress("lines", Closed()), tmp_path)
