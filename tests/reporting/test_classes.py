"""Per-class accuracies: round rules, pairing by seed, order by size, and where class sizes come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrela_bench.choice import balanced
from fedrela_bench.errors import DataError
from fedrela_bench.reporting.arms import build_arms
from fedrela_bench.reporting.classes import class_accuracies, class_gains, classes_title, draw_classes
from fedrela_bench.reporting.evidence import Classes, Evidence, NotDrawn, TrainingData
from fedrela_bench.reporting.pairs import Pair, pairs
from fedrela_bench.reporting.source import StudyRuns
from fedrela_bench.reporting.spec import load_spec
from tests.reporting.fakes import rows, study
from tests.reporting.files import Files, configuration, grid, npz, partition, per_class, with_files

CLASSES = Classes(("a", "b", "c"), ("medium", "head", "tail"), np.array([20, 50, 5]))
PAIR = Pair(
    "fedavg, τ=0.05", "fedavg", {1: ("trunk-baseline/fedavg-1", "cell-a-1"), 2: ("trunk-baseline/fedavg-2", "cell-a-2")}
)
BASE = np.array([0.5, 0.9, 0.0])


def recorded(seeds: tuple[int, ...] = (1, 2), fork: int = 8) -> StudyRuns:
    """Trunks whose classes rise by a hundredth a round, cells that are 0.2 better in the rarest class from T on."""
    files: Files = {}
    for seed in seeds:
        trunk = np.array([BASE + 0.01 * at for at in range(1, 11)])
        cell = trunk[fork:] + np.array([0, -0.1 * seed, 0.2])
        files[f"trunk-baseline/fedavg-{seed}"] = {"curves.npz": per_class(range(1, 11), trunk)}
        files[f"cell-a-{seed}"] = {"curves.npz": per_class(range(fork + 1, 11), cell)}
    return with_files(study(), files)


def test_a_run_that_forked_late_shares_rounds_of_its_trunk() -> None:
    runs, (trunk, cell) = recorded(), PAIR.runs[1]
    assert class_accuracies(runs, trunk, trunk, "test", "last5") == pytest.approx(BASE + 0.08)
    # Rounds 6 to 8 are the trunk's, 9 and 10 its own.
    assert class_accuracies(runs, trunk, cell, "test", "last5") == pytest.approx(BASE + 0.08 + [0, -0.04, 0.08])
    assert class_accuracies(runs, trunk, cell, "test", "last") == pytest.approx(BASE + 0.10 + [0, -0.1, 0.2])


def test_the_best_round_is_named_by_its_selector() -> None:
    runs, (trunk, cell) = recorded(), PAIR.runs[1]
    falling = replace(runs, load_history=lambda run, metric: runs.load_history(run, metric).iloc[::-1] * -1)
    assert class_accuracies(runs, trunk, cell, "test", "best_selected") == pytest.approx(BASE + 0.1 + [0, -0.1, 0.2])
    assert class_accuracies(falling, trunk, cell, "test", "best_oracle") == pytest.approx(BASE + 0.01)


def test_differences_are_paired_and_sorted_by_class_size() -> None:
    found = class_gains(recorded(), PAIR, CLASSES, "test", "last")
    assert (found.names, found.groups, found.counts.tolist()) == (
        ("b", "a", "c"),
        ("head", "medium", "tail"),
        [50, 20, 5],
    )
    assert found.base == pytest.approx([100, 60, 10])
    assert found.relabelled == pytest.approx([85, 60, 30])
    assert found.gain == pytest.approx([-15, 0, 20])
    assert found.gain_std == pytest.approx([10 / np.sqrt(2), 0, 0], abs=1e-9)
    assert found.seeds == (1, 2)


def test_a_seed_without_both_curves_is_left_out() -> None:
    runs = recorded((2,))
    found = class_gains(runs, PAIR, CLASSES, "test", "last")
    assert found.seeds == (2,)
    assert np.isnan(found.gain_std).all()
    with pytest.raises(NotDrawn, match="per-class accuracies on val"):
        class_gains(runs, PAIR, CLASSES, "val", "last")


# pairs ---------------------------------------------------------------------------------------------------------------


def test_the_balanced_arm_of_each_algorithm_stands_for_it() -> None:
    spec, _ = load_spec("study")
    runs = grid()
    found = pairs(runs, build_arms(runs, spec), "last5")
    assert [pair.algorithm for pair in found] == ["fedavg", "fedetf"]
    assert found[0].runs[1][0] == "fedavg-1"
    assert found[0].seeds == (1, 2)
    tau = float(found[0].runs[1][1].split("-")[1])
    assert tau == 0.05, "neither the best overall (0.02) nor the best tail (0.1)"


def test_without_a_relabelled_arm_there_is_no_pair() -> None:
    spec, _ = load_spec("study")
    runs = study([item for item in rows() if item["kind"] == "trunk"])
    with pytest.raises(NotDrawn, match="relabels"):
        pairs(runs, build_arms(runs, spec), "last5")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_a_point_that_is_best_in_everything_is_balanced(points: list[tuple[float, float]]) -> None:
    assert balanced([*points, (1.0, 1.0)]) == [*points, (1.0, 1.0)].index((1.0, 1.0))
    assert 0 <= balanced(points) < len(points)


def test_what_was_not_measured_is_never_balanced() -> None:
    assert balanced([(float("nan"), 1.0), (0.2, 0.2)]) == 1


# evidence ------------------------------------------------------------------------------------------------------------


def test_class_sizes_come_from_the_trunk_of_the_same_data() -> None:
    recorded = partition(["x", "y"], ["head", "tail"], [[5, 1], [4, 0]])
    runs = with_files(study(), {"trunk-baseline/fedavg-1": {"partition.npz": recorded}})
    found = Evidence(runs).classes("cell-a-1")
    assert (found.names, found.groups, found.counts.tolist()) == (("x", "y"), ("head", "tail"), [9, 1])
    with pytest.raises(NotDrawn, match="sizes of the classes"):
        Evidence(runs).classes("cell-a-2")  # seed 2 has another data split


def data(digest: str = "d1") -> TrainingData:
    counts = np.array([[1, 2], [3, 0]])
    return TrainingData(digest, ("x", "y"), ("head", "tail"), np.array([0] * 4 + [1] * 2), counts, lambda at: at)


def test_class_sizes_come_from_the_data_where_runs_do_not_record_them() -> None:
    runs = with_files(study(), {"cell-a-1": {"config.yaml": configuration(source="digits", alpha=1e-05)}})
    asked = []

    def read(config: object) -> TrainingData:
        asked.append(config)
        return data()

    evidence = Evidence(runs, read)
    assert evidence.classes("cell-a-1").counts.tolist() == [4, 2]
    assert evidence.data("cell-a-1") is evidence.data("cell-a-1")
    assert asked == [{"data": {"source": "digits", "alpha": 1e-05}}]


def test_other_data_than_the_runs_were_trained_on_is_refused() -> None:
    runs = with_files(study(), {"cell-a-1": {"config.yaml": configuration(source="digits")}})
    with pytest.raises(NotDrawn, match="digests differ"):
        Evidence(runs, lambda config: data("another")).data("cell-a-1")


def test_what_was_relabelled_tells_class_sizes_at_last() -> None:
    def absent(config: object) -> TrainingData:
        raise DataError("not on this machine")

    flows = {"relabel_r0009.npz": npz(flow=[[7, 1], [0, 2]]), "config.yaml": configuration(source="digits")}
    evidence = Evidence(with_files(study(), {"cell-a-1": flows}), absent)
    found = evidence.classes("cell-a-1")
    assert (found.names, found.groups, found.counts.tolist()) == (("0", "1"), ("", ""), [8, 2])
    with pytest.raises(DataError, match="not on this machine"):
        evidence.data("cell-a-1")


# drawing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 100])
def test_few_and_many_classes_can_be_drawn(count: int, tmp_path: Path) -> None:
    spec, _ = load_spec("study")
    groups = tuple(("head", "medium", "tail")[3 * place // count] for place in range(count))
    names = tuple(f"a class with a long name {place}" for place in range(count))
    found = class_gains(recorded(), PAIR, CLASSES, "test", "last")
    many = replace(
        found,
        names=names,
        groups=groups,
        counts=np.arange(count, 0, -1),
        **{name: np.linspace(0, 90, count) for name in ("base", "relabelled", "gain", "gain_std")},
    )
    title = classes_title(study(), spec, [many])
    assert title.endswith("mean, bars: std of the paired difference, seeds 1, 2 (n = 2)")
    draw_classes([many, replace(many, algorithm="fedetf")], title, "test", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
