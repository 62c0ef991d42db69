"""Accuracy over tau and over T: families of configurations, paired gains, and the published curves beside them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.reporting.evidence import NotDrawn
from fedrela_bench.reporting.published import Published, load_published
from fedrela_bench.reporting.published_lines import published_lines
from fedrela_bench.reporting.sensitivity import TAU, draw_sensitivity, sensitivity, sensitivity_title
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import ReportSpec, load_spec, reports_folder
from fedrela_bench.reporting.trials import START, short_setting, shown_value, trials
from tests.reporting.files import grid, grid_rows

METRICS = ("overall", "head", "medium", "tail")


@pytest.fixture(scope="module")
def spec() -> ReportSpec:
    return load_spec("study")[0]


@pytest.fixture(scope="module")
def published() -> Published:
    return load_published(reports_folder() / "published" / "fedrela.csv")


def test_a_line_goes_through_what_differs_in_tau_alone(spec: ReportSpec) -> None:
    found = sensitivity(grid(), spec, TAU, METRICS)
    line = found.lines[0]
    assert [line.algorithm for line in found.lines] == ["fedavg", "fedetf"]
    assert line.x.tolist() == [2, 5, 10]
    assert line.fixed == "T / rounds 80 %, period 0"  # FedReLa's recommended setting, of four families of three
    assert line.seeds == found.seeds == (1, 2)
    # Overall is base - 0.2 tau + 0.016 with base 0.51 and 0.52; the tail grows by 1.5 * 0.8 * tau.
    assert line.mean[0] == pytest.approx([52.7, 52.1, 51.1])
    assert line.std[0] == pytest.approx([math.sqrt(0.5)] * 3)
    assert line.base == pytest.approx([51.5, 71.5, 51.5, 11.5])
    assert line.gain[0] == pytest.approx([1.2, 0.6, -0.4])
    assert line.gain[3] == pytest.approx([2.4, 6.0, 12.0])
    assert line.gain_std == pytest.approx(np.zeros((4, 3)), abs=1e-9)
    assert line.mean[4] == pytest.approx([3.5, 6.5, 11.5])  # (2000 tau + 20 seed) images over 20 clients
    assert len(line.cloud_x) == 12
    assert line.cloud.shape == (5, 12) and line.cloud_gain.shape == (4, 12)


def test_a_configuration_without_a_baseline_of_its_own_has_no_gain_and_moves_no_baseline(spec: ReportSpec) -> None:
    alone = next(row["config_key"] for row in grid_rows() if row["kind"] == "cell")
    given = [{**row, **({"trunk_key": "other"} if row["config_key"] == alone else {})} for row in grid_rows()]
    line, whole = (sensitivity(runs, spec, TAU, METRICS).lines[0] for runs in (grid(given), grid()))
    assert line.base == pytest.approx(whole.base)
    assert np.isnan(line.cloud_gain).all(axis=0).sum() == 1
    assert line.cloud == pytest.approx(whole.cloud)


def test_filters_of_the_spec_name_another_family(spec: ReportSpec) -> None:
    given = spec.model_copy(update={"where": {"relabel.start": 0.6, "relabel.period": 1}})
    found = sensitivity(grid(), given, TAU, ["tail"])
    assert found.lines[0].gain[0] == pytest.approx([1.8, 4.5, 9.0])
    assert found.lines[0].fixed == ""


def test_over_the_first_relabelling_x_is_the_share_of_the_rounds(spec: ReportSpec) -> None:
    found = sensitivity(grid(), spec, START, METRICS)
    assert found.lines[0].x == pytest.approx([60, 80])
    assert found.lines[0].fixed == "τ 5 %, period 0"
    assert found.lines[0].gain[3] == pytest.approx([4.5, 6.0])


def test_a_start_counted_in_rounds_is_the_same_as_a_share(spec: ReportSpec) -> None:
    rows = grid_rows(["fedavg"])
    for row in rows:
        if row.get("param:relabel.start") == "0.8":
            row["param:relabel.start"] = "8"
    assert sensitivity(grid(rows), spec, START, METRICS).lines[0].x == pytest.approx([60, 80])


def test_a_period_that_never_comes_round_is_none(spec: ReportSpec) -> None:
    runs = grid(grid_rows(["fedavg"], starts=[0.8], periods=[0, 1, 5]))
    periods = {trial.arm.label: trial.settings["relabel.period"] for trial in trials(runs, spec)}
    assert {key.rpartition("-")[2]: value for key, value in periods.items()} == {"0": 0, "1": 1, "5": 0}


def test_configurations_with_fewer_seeds_are_left_out(spec: ReportSpec) -> None:
    rows = [row for row in grid_rows(["fedavg"]) if row["run_id"] != "fedavg-0.05-0.8-0-2"]
    assert sensitivity(grid(rows), spec, TAU, METRICS).lines[0].x.tolist() == [2, 5, 10]
    assert sensitivity(grid(rows), spec, TAU, METRICS).lines[0].fixed != "T / rounds 80 %, period 0"


def test_one_seed_has_no_spread_and_an_unmeasured_metric_no_value(spec: ReportSpec) -> None:
    line = sensitivity(grid(grid_rows(seeds=[1])), spec, TAU, ["overall", "minority"]).lines[0]
    assert np.isnan(line.std).all()
    assert np.isnan(line.mean[1]).all() and not np.isnan(line.mean[0]).any()


def test_one_value_of_tau_has_no_curve(spec: ReportSpec) -> None:
    with pytest.raises(NotDrawn, match="no algorithm was run with 2 values of τ"):
        sensitivity(grid(grid_rows(taus=[0.05])), spec, TAU, METRICS)


def test_configurations_that_differ_in_more_than_tau_are_a_cloud_without_a_line(
    spec: ReportSpec, tmp_path: Path
) -> None:
    kept = {"0.02-0.6-0", "0.05-0.8-0", "0.1-0.8-1"}
    rows = grid_rows(["fedavg"], seeds=[1])
    runs = grid([row for row in rows if row["kind"] == "trunk" or row["config_key"].removeprefix("fedavg-") in kept])
    found = sensitivity(runs, spec, TAU, METRICS)
    line = found.lines[0]
    assert (line.x.shape, line.mean.shape, line.gain_std.shape) == ((0,), (5, 0), (4, 0))
    assert sorted(line.cloud_x) == [2, 5, 10]
    assert line.base == pytest.approx([51, 71, 51, 11])
    title = sensitivity_title(runs, spec, found)
    assert title.endswith("\nno two configurations of fedavg differ in τ alone; hollow: all configurations")
    draw_sensitivity(found, title, "test", tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


# published -----------------------------------------------------------------------------------------------------------


def cifar100(algorithm: str = "fedetf", factor: float = 100, alpha: float = 0.1) -> StudyRuns:
    more = {
        "param:data.imbalance_factor": str(factor),
        "param:federation.clients": "10",
        "param:data.alpha": str(alpha),
    }
    return grid([{**row, **more} for row in grid_rows([algorithm])], "cifar100_lt")


def test_table_10_stands_beside_fedetf_on_cifar_100(spec: ReportSpec, published: Published) -> None:
    (line,) = sensitivity(cifar100(), spec, TAU, METRICS, published).published
    assert line.label == "fedetf: paper, Table 10 (IF 50, 10 clients, α = 0.1)"
    assert line.x.tolist() == [1, 3, 5, 7, 9, 15, 20]
    assert line.mean[0].tolist() == [44.6, 45.1, 44.7, 44.6, 44.9, 44.5, 44.6]
    assert line.gain[3] == pytest.approx([1.7, 8.3, 9.1, 7.4, 8.8, 7.5, 6.7])
    assert line.mean[4].tolist() == [51, 157, 194, 216, 276, 317, 364]


def test_of_several_published_settings_the_nearest_is_shown(published: Published) -> None:
    for alpha in (1, 10):
        (line,) = published_lines(cifar100(alpha=alpha), ["fedetf"], START, METRICS, published)
        assert line.label == (
            f"fedetf: paper, Table 11 (IF 100, 10 clients, α = {alpha}; its columns for α = 1 and 10 look swapped)"
        )
        assert line.x.tolist() == [40, 60, 80]
        assert not np.isnan(line.gain).any()
        assert np.isnan(line.mean[4]).all(), "Table 11 counts no samples"


def test_numbers_of_other_algorithms_and_datasets_stay_away(published: Published) -> None:
    assert not list(published_lines(cifar100("fedavg"), ["fedavg"], TAU, METRICS, published))
    assert not list(published_lines(grid(grid_rows(["fedetf"])), ["fedetf"], TAU, METRICS, published))


# drawing -------------------------------------------------------------------------------------------------------------


def test_the_title_says_what_is_measured_and_what_is_fixed(spec: ReportSpec) -> None:
    runs = grid()
    title = sensitivity_title(runs, spec, sensitivity(runs, spec, TAU, METRICS))
    assert title.splitlines() == [
        "digits_lt: sensitivity to τ",
        "test (the half of the test images that does not select; fixed, class-balanced); mean of the last five "
        "evaluated rounds; mean ± std, seeds 1, 2 (n = 2)",
        "lines: fedavg at T / rounds 80 %, period 0; fedetf at T / rounds 80 %, period 0; hollow: all configurations",
    ]


def test_ours_and_the_published_curve_are_drawn_together(
    spec: ReportSpec, published: Published, tmp_path: Path
) -> None:
    found = sensitivity(cifar100(), spec, TAU, ["overall", "tail"], published)
    draw_sensitivity(found, "t", "test", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("values", "bands"), [(12, 0), (13, 7)])
def test_many_values_have_a_band_instead_of_bars(spec: ReportSpec, values: int, bands: int) -> None:
    from matplotlib.collections import PolyCollection

    from fedrela_bench.reporting.canvas import panels
    from fedrela_bench.reporting.sensitivity import _draw_line

    taus = [round(0.01 * place, 2) for place in range(1, values + 1)]
    runs = grid(grid_rows(["fedavg"], taus, [0.8], [0]))
    found = sensitivity(runs, spec, TAU, ("overall", "head", "tail"))
    _, axes = panels(9, 6, 2, 4)
    _draw_line(found.lines[0], axes[:4], axes[4:], "#000000", "o")
    drawn = [collection for panel in axes for collection in panel.collections]
    assert sum(isinstance(collection, PolyCollection) for collection in drawn) == bands


def test_settings_are_shown_as_readers_write_them() -> None:
    assert (shown_value(START, 10 / 12), shown_value(TAU, 0.05), shown_value("training.lr", 1e-05)) == (
        "83.3 %",
        "5 %",
        "1e-05",
    )
    assert (shown_value("relabel.score", None), short_setting("relabel.post_relabel_lr_scale")) == (
        "–",
        "post relabel lr scale",
    )
