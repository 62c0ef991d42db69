"""Parallel coordinates: axes, their scales and ticks, the order of the lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.reporting.evidence import NotDrawn
from fedrela_bench.reporting.parallel import Axis, draw_parallel, parallel, parallel_title
from fedrela_bench.reporting.spec import ReportSpec, load_spec
from tests.reporting.fakes import rows, study
from tests.reporting.files import grid, grid_rows


@pytest.fixture(scope="module")
def spec() -> ReportSpec:
    return load_spec("study")[0]


def axes_of(found_axes: tuple[Axis, ...]) -> dict[str, Axis]:
    return {axis.name: axis for axis in found_axes}


def test_settings_come_first_and_results_last(spec: ReportSpec) -> None:
    found = parallel(grid(), spec)
    assert [axis.name for axis in found.axes] == ["algorithm", "τ", "T / rounds", "period", "overall", "tail"]
    assert [axis.objective for axis in found.axes] == [False] * 4 + [True] * 2
    assert all(len(axis.places) == 24 for axis in found.axes)
    assert found.seeds == (1, 2)


def test_lines_go_from_the_worst_to_the_best(spec: ReportSpec) -> None:
    found = parallel(grid(), spec)
    assert found.values.tolist() == sorted(found.values)
    assert found.keys[-1] == "fedetf-0.02-0.8-0"
    axes = axes_of(found.axes)
    assert axes["overall"].places[-1] == 1.0 and axes["overall"].places[0] == 0.0
    assert axes["algorithm"].places[-1] == 1.0
    assert axes["τ"].ticks == ((0.0, "2 %"), (0.5, "5 %"), (1.0, "10 %"))
    assert axes["T / rounds"].ticks == ((0.0, "60 %"), (1.0, "80 %"))


def test_many_values_have_an_even_scale_and_wide_ones_a_logarithmic(spec: ReportSpec) -> None:
    taus = [0.01 * place for place in range(1, 9)]
    given = grid_rows(["fedavg"], taus, [0.8], [0], [1])
    for row in given:
        row["param:training.lr"] = str(float(row.get("param:relabel.tau", 0.01)) ** 2)
    axes = axes_of(parallel(grid(given), spec).axes)
    assert sorted(axes["τ"].places) == pytest.approx(np.linspace(0, 1, 8))
    assert sorted(axes["learning rate"].places) == pytest.approx(np.log(range(1, 9)) / np.log(8))
    assert axes["learning rate"].ticks[0] == (0.0, "0.0001")


def test_a_setting_that_an_algorithm_does_not_have_has_no_place(spec: ReportSpec) -> None:
    given = grid_rows(["fedavg", "fedprox"], [0.02, 0.05], [0.8], [0], [1])
    for place, row in enumerate(given):
        if row["algorithm"] == "fedprox":
            row["param:federation.options.mu"] = "0.1" if place % 2 else "0.01"
    found = parallel(grid(given), spec)
    own = axes_of(found.axes)["mu"].places
    assert [np.isnan(place) for place in own] == [key.startswith("fedavg") for key in found.keys]


def test_too_few_trials_are_said(spec: ReportSpec) -> None:
    with pytest.raises(NotDrawn, match="needs 3 configurations, has 2"):
        parallel(study(rows()), spec)


def test_equal_results_can_be_drawn(spec: ReportSpec, tmp_path: Path) -> None:
    given = grid_rows(["fedavg"], [0.02, 0.05, 0.1], [0.8], [0], [1])
    for row in given:
        row["metric:final/val/overall"] = 0.5
        if row.get("param:relabel.tau") == "0.1":
            row["param:federation.options.mu"] = "0.1"
    runs = grid(given)
    found = parallel(runs, spec)
    assert found.axes[-2].places.tolist() == [0.5] * 3
    title = parallel_title(runs, spec, found)
    assert title.startswith("digits_lt: 3 configurations, dark and thick: best overall\nval (")
    draw_parallel(found, title, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
