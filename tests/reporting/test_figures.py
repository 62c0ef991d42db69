"""The numbers behind figures, and that drawing them is repeatable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.reporting.build import table_arms
from fedrela_bench.reporting.canvas import COLOURS, MARKERS, seeds_text, short_name, style_of
from fedrela_bench.reporting.curves import Curve, curves, curves_title, draw_curves
from fedrela_bench.reporting.figures import client_map, draw_client_map
from fedrela_bench.reporting.plane import Point, draw_pareto, pareto_points, plane_texts
from fedrela_bench.reporting.report import draw_figures
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import load_spec
from tests.reporting.fakes import row, rows, study, two_algorithms

PNG = b"\x89PNG\r\n\x1a\n"


def curves_of(runs: StudyRuns, metric: str = "test/overall") -> list[Curve]:
    spec, _ = load_spec("study")
    return curves(runs, table_arms(runs, spec), metric)


def test_curves_are_means_with_their_fork_points() -> None:
    found = curves_of(study())
    assert [(curve.label, curve.fork_round, curve.baseline) for curve in found] == [
        ("fedavg (baseline)", None, True),
        ("fedavg, τ=0.05, T=8 of 10 (paper's default)", 8, False),
        ("fedavg, τ=0.1, T=8 of 10", 8, False),
    ]
    assert found[0].rounds == tuple(range(1, 11))
    assert found[0].values[7] == pytest.approx(62)
    assert found[0].values[9] == pytest.approx(63)
    assert found[0].seeds == (1, 2, 3)


def test_relabelled_arms_start_at_their_first_relabelling() -> None:
    found = curves_of(study())
    assert [curve.rounds for curve in found[1:]] == [(8, 9, 10)] * 2
    assert found[1].values == pytest.approx([65, 65.5, 66])


def test_an_arm_that_forks_after_its_last_evaluation_has_no_curve() -> None:
    late = study([{**item, **({"fork_round": "11"} if item["config_key"] == "a" else {})} for item in rows()])
    assert [curve.label for curve in curves_of(late)] == ["fedavg (baseline)", "fedavg, τ=0.1, T=8 of 10"]


def test_the_band_is_the_deviation_over_seeds() -> None:
    base = curves_of(study())[0]
    assert base.std == pytest.approx([2.0] * 10)
    assert curves_of(study(rows([2])))[0].std == ()


def test_an_unmeasured_metric_has_no_curve() -> None:
    assert curves_of(study(), "test/medium") == []


def test_the_rarest_classes_are_drawn_beside_all(tmp_path: Path) -> None:
    spec, _ = load_spec("study")
    step = {"profile": "step", "metric:final/test/minority": 0.3}
    runs = {"lt": study(), "step": study([{**item, **step} for item in rows()])}
    drawn = {name: draw_figures(given, spec, tmp_path / name, "s") for name, given in runs.items()}
    names = {name: [path.name for path in pictures] for name, pictures in drawn.items()}
    assert names == {
        "lt": ["s_overall.png", "s_tail.png", "s_pareto.png"],
        "step": ["s_overall.png", "s_minority.png", "s_pareto.png"],
    }


def test_titles_name_dataset_metric_split_and_seeds() -> None:
    spec, _ = load_spec("study")
    runs = study()
    title = curves_title(runs, table_arms(runs, spec), curves_of(runs, "test/tail"), "test/tail")
    assert title == (
        "digits_lt: tail accuracy\n"
        "test (the half of the test images that does not select; fixed, class-balanced); mean ± std, "
        "seeds 1, 2, 3 (n = 3)"
    )
    one = study(rows([2]))
    assert curves_title(one, table_arms(one, spec), curves_of(one), "test/overall").endswith("accuracy, seed 2 (n = 1)")


def test_axes_of_the_plane_name_percent_and_split() -> None:
    runs = study()
    title, x, y = plane_texts(runs, pareto_points(runs, "last5"))
    assert (x, y) == ("overall accuracy in % (val)", "tail accuracy in % (val)")
    assert title.startswith("digits_lt: ")
    assert title.endswith("val (the half of the test images that selects); mean, seeds 1, 2, 3 (n = 3)")
    oracle = study([{**item, "selection": "oracle"} for item in rows()])
    assert plane_texts(oracle, [])[1] == "overall accuracy in % (test)"


def by_place(points: list[Point]) -> dict[tuple[float, float], Point]:
    return {(round(point.x, 3), round(point.y, 3)): point for point in points}


def test_points_of_the_front() -> None:
    worse = [
        row("cell", "a", seed, config_key="c", key=f"c/{seed}", run_id=f"c{seed}", **{"metric:final/val/tail": 0.05})
        for seed in (1, 2, 3)
    ]
    found = by_place(pareto_points(study([*rows(), *worse]), "last5"))
    assert found[65.0, 20.0].on_front
    assert found[62.0, 30.0].on_front
    assert not found[65.0, 5.0].on_front
    assert found[62.0, 10.0].baseline


def test_each_algorithm_has_a_front_of_its_own() -> None:
    points = pareto_points(study(two_algorithms()), "last5")
    assert [point.algorithm for point in points] == ["fedavg"] * 3 + ["fedetf"] * 3
    assert [point.on_front for point in points] == [True, True, False] * 2
    assert [point.baseline for point in points] == [False, False, True] * 2


def test_configurations_with_fewer_seeds_are_not_compared() -> None:
    points = pareto_points(study([item for item in rows() if item["run_id"] != "cell-b-2"]), "last5")
    assert len(points) == 2


def test_a_baseline_is_shown_over_the_seeds_of_its_relabelled_runs() -> None:
    points = pareto_points(study([item for item in rows() if item["kind"] == "trunk" or item["seed"] == "1"]), "last5")
    base = next(point for point in points if point.baseline)
    assert base.seeds == (1,)
    assert base.x == pytest.approx(60)


def test_algorithms_differ_in_colour_and_shape() -> None:
    styles = style_of(["b", "a", "b"])
    assert styles == {"b": (COLOURS[0], MARKERS[0]), "a": (COLOURS[1], MARKERS[1])}


def test_words_of_titles() -> None:
    assert seeds_text([2, 1, 2]) == "seeds 1, 2 (n = 2)"
    assert short_name("folder:" + "x" * 60) == "…" + "x" * 47
    assert short_name("digits_lt") == "digits_lt"


def test_clients_are_ordered_by_size() -> None:
    found = client_map(np.array([[1, 0], [5, 5], [0, 0], [2, 0]]), ["a", "b"])
    assert found.clients == (1, 3, 0, 2)
    assert found.counts.tolist() == [[5, 2, 1, 0], [5, 0, 0, 0]]


def test_drawings_repeat_byte_for_byte(tmp_path: Path) -> None:
    runs = study(two_algorithms())
    points = pareto_points(runs, "last5")
    pictures = []
    for name in ("a", "b"):
        folder = tmp_path / name
        draw_curves(curves_of(runs), "test/overall", "two $ algorithms_", folder / "c.png")
        draw_pareto(points, plane_texts(runs, points), folder / "p.png")
        draw_client_map(client_map(np.array([[3, 1], [0, 0]]), ["a", "b"]), "digits_lt", folder / "m.png")
        pictures.append([path.read_bytes() for path in sorted(folder.glob("*.png"))])
    assert len(pictures[0]) == 3
    assert pictures[0] == pictures[1]
    assert all(data.startswith(PNG) for data in pictures[0])


@pytest.mark.parametrize("algorithms", [0, 1, 5])
def test_any_number_of_algorithms_can_be_drawn(algorithms: int, tmp_path: Path) -> None:
    base = curves_of(study(rows([1])))[0]
    found = [replace(base, algorithm=f"a{place}") for place in range(algorithms)]
    draw_curves(found, "test/overall", "t", tmp_path / "c.png")
    draw_pareto([], ("t", "x", "y"), tmp_path / "p.png")
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in ("c.png", "p.png"))


def test_empty_partitions_can_be_drawn(tmp_path: Path) -> None:
    draw_client_map(client_map(np.zeros((2, 3), dtype=int), ["a", "b", "c"]), "empty", tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(PNG)
