"""A report of many runs asks the store as often as one of few, and works each run out once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedrela_bench.reporting.report import render_report
from fedrela_bench.reporting.source import read_study

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "report_speed.py"
RULES = "title: t\nround_rule: best_selected\nrows:\n- {runs: {kind: trunk}, choose: each}\n"
RULES += "- {runs: {kind: cell}, choose: each}\nfigures: [curves, pareto]\nmetrics: [overall, tail]\n"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The benchmark's module."""
    spec = importlib.util.spec_from_file_location("report_speed", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["report_speed"] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every SQL statement that any engine executes meanwhile."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def studies(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Studies of 30 and 90 runs."""
    return {runs: script.write_study(tmp_path_factory.mktemp(f"study{runs}"), runs, 8) for runs in (30, 90)}


def test_three_times_the_runs_take_no_more_queries(
    studies: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrela_bench.reporting.canvas.save", lambda figure, path: path.write_bytes(b""))
    spec = tmp_path / "rules.yaml"
    spec.write_text(RULES)
    counts = {}
    for runs, folder in studies.items():
        read_study(folder)  # migrations and caches of the store are not the report's
        with statements() as seen:
            made = render_report(folder, spec, tmp_path / str(runs))
        counts[runs] = len(seen)
        assert len(made.table.rows) == 4 + (runs - 20) // 5
        assert sum("metrics" in text and "latest" not in text for text in seen) >= 3
    assert counts[90] == counts[30] < 60


def test_the_made_up_store_is_read_as_a_real_one(studies: dict[int, Path]) -> None:
    runs = read_study(studies[30])
    frame = runs.frame
    assert frame["kind"].value_counts().to_dict() == {"trunk": 20, "cell": 10}
    assert set(frame["last_round"]) == {8.0}
    run_id = str(frame["run_id"][0])
    curve = runs.history(run_id, "test/overall")
    assert curve.index.tolist() == list(range(1, 9))
    assert runs.latest(run_id, "final/test/overall") == pytest.approx(curve.tail(5).mean())
    assert runs.latest(run_id, "test/overall") == curve.iloc[-1]


def test_the_benchmark_measures_a_report(
    script: ModuleType, studies: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = script.measure(studies[30], tmp_path, "csv")
    assert 0 < found["core_seconds"] <= found["seconds"] * 64 and found["peak_mib"] > 50
    assert "study.csv" in found["files"]
