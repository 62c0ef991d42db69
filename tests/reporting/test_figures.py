"""The numbers behind figures, and that drawing them is repeatable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.reporting.build import table_arms
from fedrela_bench.reporting.figures import (
    client_map,
    curves,
    draw_client_map,
    draw_curves,
    draw_pareto,
    pareto_points,
)
from fedrela_bench.reporting.spec import load_spec
from tests.reporting.fakes import row, rows, study

PNG = b"\x89PNG\r\n\x1a\n"


def test_curves_are_means_with_their_fork_points() -> None:
    spec, _ = load_spec("study")
    runs = study()
    found = curves(runs, table_arms(runs, spec), "test/overall")
    assert [(curve.label, curve.fork_round) for curve in found] == [
        ("fedavg", None),
        ("fedavg, τ=0.05, T=8 of 10", 8),
        ("fedavg, τ=0.1, T=8 of 10", 8),
    ]
    assert found[0].rounds == tuple(range(1, 11))
    assert found[0].values[7] == pytest.approx(62)
    assert found[0].values[9] == pytest.approx(63)
    assert found[0].seeds == (1, 2, 3)


def test_an_unmeasured_metric_has_no_curve() -> None:
    spec, _ = load_spec("study")
    runs = study()
    assert curves(runs, table_arms(runs, spec), "test/medium") == []


def test_points_of_the_front() -> None:
    worse = [
        row("cell", "a", seed, config_key="c", key=f"c/{seed}", run_id=f"c{seed}", **{"metric:final/val/tail": 0.05})
        for seed in (1, 2, 3)
    ]
    points = pareto_points(study([*rows(), *worse]), "last5")
    by_place = {(round(point.x, 3), round(point.y, 3)): point for point in points}
    assert by_place[65.0, 20.0].on_front
    assert by_place[62.0, 30.0].on_front
    assert not by_place[65.0, 5.0].on_front
    assert by_place[62.0, 10.0].baseline


def test_configurations_with_fewer_seeds_are_not_compared() -> None:
    points = pareto_points(study([item for item in rows() if item["run_id"] != "cell-b-2"]), "last5")
    assert len(points) == 2


def test_clients_are_ordered_by_size() -> None:
    found = client_map(np.array([[1, 0], [5, 5], [0, 0], [2, 0]]), ["a", "b"])
    assert found.clients == (1, 3, 0, 2)
    assert found.counts.tolist() == [[5, 2, 1, 0], [5, 0, 0, 0]]


def test_drawings_repeat_byte_for_byte(tmp_path: Path) -> None:
    spec, _ = load_spec("study")
    runs = study()
    pictures = []
    for name in ("a", "b"):
        folder = tmp_path / name
        draw_curves(curves(runs, table_arms(runs, spec), "test/overall"), "test/overall", folder / "c.png")
        draw_pareto(pareto_points(runs, "last5"), runs.objectives, folder / "p.png")
        draw_client_map(client_map(np.array([[3, 1], [0, 0]]), ["a", "b"]), "digits_lt", folder / "m.png")
        pictures.append([path.read_bytes() for path in sorted(folder.glob("*.png"))])
    assert len(pictures[0]) == 3
    assert pictures[0] == pictures[1]
    assert all(data.startswith(PNG) for data in pictures[0])


def test_empty_partitions_and_no_curves_can_be_drawn(tmp_path: Path) -> None:
    draw_client_map(client_map(np.zeros((2, 3), dtype=int), ["a", "b", "c"]), "empty", tmp_path / "m.png")
    draw_curves([], "test/overall", tmp_path / "c.png")
    assert (tmp_path / "m.png").read_bytes().startswith(PNG)
