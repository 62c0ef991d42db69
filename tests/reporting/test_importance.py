"""What decides the gain: known answers, repeatability, and when nothing can be said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.reporting.evidence import NotDrawn
from fedrela_bench.reporting.importance import draw_importance, importance, importance_title
from fedrela_bench.reporting.spec import ReportSpec, load_spec
from tests.reporting.files import grid, grid_rows

TAUS = (0.01, 0.02, 0.05, 0.1, 0.15)


@pytest.fixture(scope="module")
def spec() -> ReportSpec:
    return load_spec("study")[0]


def test_what_decides_the_gain_comes_first(spec: ReportSpec) -> None:
    found = importance(grid(grid_rows(["fedavg", "fedetf"], TAUS)), spec)
    assert found.settings[0] == "relabel.tau"
    assert set(found.settings) == {"relabel.tau", "relabel.start", "relabel.period", "algorithm"}
    assert found.objectives == ("overall", "tail")
    assert found.shares.shape == (2, 4)
    assert found.shares.sum(axis=1) == pytest.approx([1, 1])
    assert found.shares[:, 0].min() > 0.7
    assert (found.explained > 0.7).all()
    assert (found.configurations, found.seeds) == (40, (1, 2))
    again = importance(grid(grid_rows(["fedavg", "fedetf"], TAUS)), spec)
    assert np.array_equal(found.shares, again.shares) and np.array_equal(found.explained, again.explained)


def test_the_level_of_a_base_algorithm_is_no_gain(spec: ReportSpec) -> None:
    """FedETF is 10 points better than FedAvg with and without relabelling: the algorithm decides nothing."""
    found = importance(grid(grid_rows(["fedavg", "fedetf"], TAUS)), spec)
    assert found.shares[0][found.settings.index("algorithm")] < 0.1


def test_a_gain_that_nothing_predicts_is_told_by_r_squared(spec: ReportSpec) -> None:
    random = np.random.default_rng(1)
    rows = grid_rows(["fedavg"], TAUS)
    for row in rows:
        if row["kind"] == "cell":
            row["metric:final/val/tail"] = random.normal()
    assert importance(grid(rows), spec).explained[1] < 0.2


def test_a_gain_that_does_not_vary_has_no_shares(spec: ReportSpec) -> None:
    rows = grid_rows(["fedavg"], TAUS)
    for row in rows:
        row["metric:final/val/tail"] = 0.5
    found = importance(grid(rows), spec)
    assert found.shares[1].tolist() == [0.0] * 3
    assert found.explained[1] == 0


def test_settings_in_words_and_of_one_algorithm_alone_are_understood(spec: ReportSpec) -> None:
    rows = grid_rows(["fedavg", "fedprox"], TAUS, periods=[0])
    for place, row in enumerate(rows):
        if row["algorithm"] == "fedprox":
            row["param:federation.options.mu"] = "0.1" if place % 2 else "0.01"
        row["param:relabel.score"] = "zscore" if place % 3 else "minmax"
    found = importance(grid(rows), spec)
    assert {"federation.options.mu", "relabel.score"} <= set(found.settings)
    assert found.shares.sum(axis=1) == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (grid_rows(["fedavg"], TAUS, [0.8], [0]), "has 5 and 1"),
        (grid_rows(["fedavg"], [0.01 * place for place in range(1, 14)], [0.8], [0]), "has 13 and 1"),
        (grid_rows(["fedavg"], [0.05], [0.8], [0]), "has 1 and 0"),
    ],
)
def test_too_few_trials_or_settings_are_said(rows: list[dict[str, object]], reason: str, spec: ReportSpec) -> None:
    with pytest.raises(NotDrawn, match=f"needs 12 configurations and 2 settings that vary, {reason}"):
        importance(grid(rows), spec)


def test_the_drawing_and_its_title(spec: ReportSpec, tmp_path: Path) -> None:
    runs = grid(grid_rows(["fedavg"], TAUS))
    found = importance(runs, spec)
    title = importance_title(runs, spec, found)
    assert "random forest on 20 configurations" in title
    assert title.endswith("seeds 1, 2 (n = 2)")
    draw_importance(found, title, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
