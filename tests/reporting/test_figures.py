"""The numbers behind figures, and that drawing them is repeatable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from fedrela_bench.reporting import pictures
from fedrela_bench.reporting.build import table_arms
from fedrela_bench.reporting.canvas import COLOURS, HATCHES, MARKERS, seeds_text, short_name, style_of, tint, what_text
from fedrela_bench.reporting.curves import Curve, curves, curves_title, draw_curves
from fedrela_bench.reporting.evidence import TrainingData
from fedrela_bench.reporting.figures import client_map, client_title, draw_client_map
from fedrela_bench.reporting.pictures import FIGURES, draw_figures
from fedrela_bench.reporting.plane import Point, chosen, draw_pareto, pareto_points, plane_texts
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import Figure, ReportSpec, load_spec
from tests.reporting.fakes import row, rows, study, two_algorithms
from tests.reporting.files import configuration, grid, npz, partition, per_class, with_files

PNG = b"\x89PNG\r\n\x1a\n"


def study_spec(*figures: Figure) -> ReportSpec:
    spec, _ = load_spec("study")
    return spec.model_copy(update={"figures": figures})


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
    spec = study_spec("curves", "pareto")
    step = {"profile": "step", "metric:final/test/minority": 0.3}
    runs = {"lt": study(), "step": study([{**item, **step} for item in rows()])}
    drawn = {name: draw_figures(given, spec, tmp_path / name, "s") for name, given in runs.items()}
    names = {name: [path.name for path in pictures.files] for name, pictures in drawn.items()}
    assert names == {
        "lt": ["s_overall.png", "s_tail.png", "s_pareto.png"],
        "step": ["s_overall.png", "s_minority.png", "s_pareto.png"],
    }


def test_titles_name_dataset_metric_split_and_seeds() -> None:
    spec, _ = load_spec("study")
    runs = study()
    title = curves_title(runs, table_arms(runs, spec), curves_of(runs, "test/tail"), "test/tail")
    assert title == (
        "digits_lt: tail accuracy per round\n"
        "test (the half of the test images that does not select; fixed, class-balanced); mean ± std, "
        "seeds 1, 2, 3 (n = 3)"
    )
    one = study(rows([2]))
    assert curves_title(one, table_arms(one, spec), curves_of(one), "test/overall").endswith("accuracy, seed 2 (n = 1)")
    assert "†" not in title


def test_numbers_of_an_oracle_carry_their_dagger() -> None:
    spec, _ = load_spec("study")
    oracle = study([{**item, "selection": "oracle"} for item in rows()])
    titles = [
        curves_title(oracle, table_arms(oracle, spec), curves_of(oracle), "test/overall"),
        plane_texts(oracle, pareto_points(oracle, "last5"), "last5")[0],
        what_text("test", {"test_slice"}, "best_oracle", [1], "mean"),
    ]
    assert all("†" in title for title in titles)


def test_axes_of_the_plane_name_percent_and_split() -> None:
    runs = study()
    title, x, y = plane_texts(runs, pareto_points(runs, "last5"), "last5")
    assert (x, y) == ("overall accuracy in % (val)", "tail accuracy in % (val)")
    assert title.startswith("digits_lt: ")
    assert title.endswith(
        "val (the half of the test images that selects); mean of the last five evaluated rounds; mean, "
        "seeds 1, 2, 3 (n = 3)"
    )
    oracle = study([{**item, "selection": "oracle"} for item in rows()])
    assert plane_texts(oracle, [], "last5")[1] == "overall accuracy in % (test)"


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


def test_the_chosen_points_are_the_ones_that_the_study_recommends() -> None:
    def point(name: str, *scores: float, baseline: bool = False) -> Point:
        return Point(name, "fedavg", scores[0], scores[1], (1,), baseline, True, scores)

    points = [point("a", 50, 10), point("b", 48, 30), point("c", 40, 32), point("d", 39, 31), point("base", 60, 60)]
    points[-1] = replace(points[-1], baseline=True)
    picks = chosen(points, ("overall", "tail"))
    assert {name: pick.label for name, pick in picks.items()} == {
        "best overall": "a",
        "best tail": "c",
        "balanced": "b",
    }
    assert chosen(points[:1], ("overall",)) == {"best overall": points[0]}
    assert chosen(points[-1:], ("overall", "tail")) == {}


def test_a_third_objective_counts_where_points_are_chosen() -> None:
    runs = replace(grid(), objectives=("overall", "tail", "head"))
    points = pareto_points(runs, "last5")
    assert {len(point.scores) for point in points} == {3}
    assert list(chosen(points, runs.objectives)) == ["best overall", "best tail", "best head", "balanced"]


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
        draw_pareto(points, chosen(points, runs.objectives), plane_texts(runs, points, "last5"), folder / "p.png")
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
    draw_pareto([], {}, ("t", "x", "y"), tmp_path / "p.png")
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in ("c.png", "p.png"))


def test_empty_partitions_can_be_drawn(tmp_path: Path) -> None:
    draw_client_map(client_map(np.zeros((2, 3), dtype=int), ["a", "b", "c"]), "empty", tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(PNG)


# palette -------------------------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes 2009, full severity, on linear RGB.
VISIONS = {
    "usual": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as someone of that vision sees it."""
    given = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = np.array(to_xyz) @ seen / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_stay_apart_for_any_colour_vision(vision: str) -> None:
    seen = [lab(colour, vision) for colour in COLOURS]
    apart = [np.linalg.norm(a - b) for place, a in enumerate(seen) for b in seen[place + 1 :]]
    assert min(apart) > 15  # about seven times what is just noticed


def test_what_colours_do_not_tell_in_grey_shapes_and_hatches_do() -> None:
    names = [f"a{place}" for place in range(len(COLOURS))]
    assert len({marker for _, marker in style_of(names).values()}) == len(COLOURS)
    assert len(set(HATCHES)) == len(HATCHES) >= 4
    assert tint("#808080", 1.0) == (1.0, 1.0, 1.0) and tint("#808080", -1.0) == (0.0, 0.0, 0.0)


# the registry ---------------------------------------------------------------------------------------------------------


def test_every_figure_of_a_spec_has_its_numbers_and_a_drawing() -> None:
    assert set(FIGURES) == set(get_args(Figure))


def test_a_figure_without_data_is_left_out_with_its_reason(tmp_path: Path) -> None:
    drawn = draw_figures(study(rows([1])), study_spec(*FIGURES), tmp_path, "s")
    assert sorted(path.name for path in drawn.files) == ["s_overall.png", "s_pareto.png", "s_tail.png", "s_tau.png"]
    assert [line.split(":")[0] for line in drawn.left_out] == [
        f"figure {name} is left out"
        for name in ("start", "classes", "flow", "gallery", "clients", "importance", "parallel")
    ]
    assert drawn.left_out[-2].endswith("needs 12 configurations and 2 settings that vary, has 2 and 1")


def test_a_figure_whose_drawing_fails_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise ValueError("no\nluck")

    monkeypatch.setattr(pictures, "draw_pareto", fails)
    drawn = draw_figures(study(), study_spec("pareto", "curves", "flow"), tmp_path, "s")
    assert [path.name for path in drawn.files] == ["s_overall.png", "s_tail.png"]
    assert drawn.failed == ("figure pareto is left out: it could not be drawn (ValueError: no luck)",)
    assert drawn.left_out[0] == drawn.failed[0] and drawn.left_out[1].startswith("figure flow is left out: ")


def complete() -> StudyRuns:
    """A study whose runs carry every file."""
    runs, files = grid(), {}
    flow = [[90, 5, 5], [0, 28, 2], [0, 0, 10]]
    log = {"position": [3, 5], "client": [0, 1], "original": [0, 0], "label": [2, 1]}
    for run in runs.frame.to_dict("records"):
        shift = 0.1 if run["kind"] == "cell" else 0.0
        values = np.array([[0.9 - shift, 0.5, 0.1 + shift]] * 10)
        own = {"curves.npz": per_class(range(1, 11), values), "config.yaml": configuration(source="digits")}
        if run["kind"] == "trunk":
            own["partition.npz"] = partition(
                ["zero", "one", "two"], ["head", "medium", "tail"], [[60, 20, 5], [40, 10, 5]]
            )
        else:
            own["relabel_r0009.npz"] = npz(flow=flow, posterior=[0.2, 0.1], rho=[1.0, 0.5], **log)
        files[str(run["run_id"])] = own
    return with_files(runs, files)


def data_of(config: object) -> TrainingData:
    labels = np.repeat([0, 1, 2], [100, 30, 10])
    pixels = np.arange(140 * 16, dtype=np.uint32).reshape(140, 4, 4, 1) % 251
    counts = np.array([[60, 20, 5], [40, 10, 5]])
    return TrainingData(
        "d1", ("zero", "one", "two"), ("head", "medium", "tail"), labels, counts, lambda at: pixels[at].astype(np.uint8)
    )


def test_all_figures_of_a_study_repeat_byte_for_byte(tmp_path: Path) -> None:
    made = [draw_figures(complete(), study_spec(*FIGURES), tmp_path / name, "s", read=data_of) for name in ("a", "b")]
    assert made[0].left_out == made[1].left_out == ()
    first, second = ({path.name: path.read_bytes() for path in drawn.files} for drawn in made)
    assert list(first) == [
        "s_overall.png",
        "s_tail.png",
        "s_pareto.png",
        "s_tau.png",
        "s_start.png",
        "s_classes.png",
        "s_flow.png",
        "s_gallery.png",
        "s_clients.png",
        "s_importance.png",
        "s_parallel.png",
    ]
    assert first == second
    assert all(data.startswith(PNG) for data in first.values())
    assert all(made[0].files.values()), "every picture has a caption"


def test_rows_of_a_table_are_no_pictures(tmp_path: Path) -> None:
    table = draw_figures(
        complete(), study_spec("flow", "gallery"), tmp_path, "s", read=lambda at: replace(data_of(at), pictures=False)
    )
    assert table.left_out == (
        "figure gallery is left out: the data are rows of a table, and there is nothing to look at",
    )
    assert [path.name for path in table.files] == ["s_flow.png"]
    assert not (tmp_path / "s_gallery.png").exists()


def test_the_map_of_clients_says_how_images_were_dealt() -> None:
    found = client_map(np.array([[60, 20], [40, 10]]), ["a", "b"])
    assert client_title(grid(), 2, found) == (
        "digits_lt: training images per client and class\n130 images, 2 clients, Dirichlet, α = 0.3, seed 2"
    )
    dealt = replace(grid(), frame=grid().frame.assign(**{"param:data.partition": "iid"}))
    assert "dealt evenly" in client_title(dealt, 1, found)
