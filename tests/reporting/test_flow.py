"""The relabel flow: order by class size, means over seeds, groups, largest pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrela_bench.reporting.evidence import Classes, NotDrawn, last_flow
from fedrela_bench.reporting.flow import Flow, draw_flow, flow_between, flow_title, group_flow, top_pairs
from fedrela_bench.reporting.pairs import Pair
from tests.reporting.fakes import study
from tests.reporting.files import npz, with_files

CLASSES = Classes(("a", "b", "c"), ("medium", "head", "tail"), np.array([20, 50, 5]))
PAIR = Pair("fedavg, τ=0.05", "fedavg", {1: ("t1", "cell-a-1"), 2: ("t2", "cell-a-2")})
FIRST = [[18, 0, 2], [4, 40, 6], [0, 0, 5]]
SECOND = [[20, 0, 0], [2, 40, 8], [1, 0, 4]]


def test_the_last_relabelling_counts_and_seeds_are_averaged() -> None:
    early = npz(flow=np.zeros((3, 3)))
    files = {
        "cell-a-1": {"relabel_r0003.npz": early, "relabel_r0010.npz": npz(flow=FIRST), "curves.npz": early},
        "cell-a-2": {"relabel_r0009.npz": npz(flow=SECOND)},
    }
    runs = with_files(study(), files)
    assert last_flow(runs, "cell-a-1").tolist() == FIRST  # type: ignore[union-attr]
    found = flow_between(runs, PAIR, CLASSES)
    assert (found.names, found.seeds) == (("b", "a", "c"), (1, 2))
    assert found.counts.tolist() == [[40, 3, 7], [0, 19, 1], [0, 0.5, 4.5]]
    assert found.moved.tolist() == [[0, 3, 7], [0, 0, 1], [0, 0.5, 0]]
    assert flow_title(runs, [found]).endswith("mean, seeds 1, 2 (n = 2)")


def test_a_seed_without_a_record_is_left_out_and_none_at_all_is_said() -> None:
    runs = with_files(study(), {"cell-a-2": {"relabel_r0009.npz": npz(flow=SECOND)}})
    assert flow_between(runs, PAIR, CLASSES).seeds == (2,)
    with pytest.raises(NotDrawn, match="what they relabelled"):
        flow_between(study(), PAIR, CLASSES)


def flow(counts: np.ndarray, groups: tuple[str, ...]) -> Flow:
    names = tuple(f"c{place}" for place in range(len(counts)))
    return Flow("arm", "fedavg", names, groups, np.asarray(counts, dtype=float), (1,))


def test_groups_sum_their_classes() -> None:
    found = group_flow(flow(np.array([[9, 1, 2], [3, 8, 4], [0, 5, 7]]), ("head", "head", "tail")))
    assert found is not None
    assert found.groups == ("head", "tail")
    assert found.moved.tolist() == [[4, 6], [5, 0]]
    assert found.sizes.tolist() == [27, 12]
    assert group_flow(flow(np.eye(2), ("", ""))) is None


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(arrays(np.int64, (6, 6), elements=st.integers(0, 50)))
def test_nothing_is_lost_between_classes_groups_and_pairs(counts: np.ndarray) -> None:
    own = flow(counts, ("head", "head", "medium", "medium", "tail", "tail"))
    grouped = group_flow(own)
    assert grouped is not None
    moved = counts.sum() - np.trace(counts)
    assert grouped.moved.sum() == moved == sum(count for _, _, count in top_pairs(own, 36))
    assert grouped.sizes.sum() == counts.sum()
    listed = [count for _, _, count in top_pairs(own, 5)]
    assert listed == sorted(listed, reverse=True) and all(count > 0 for count in listed)


def test_equal_pairs_are_listed_by_class_size() -> None:
    own = flow(np.ones((3, 3)), ("",) * 3)
    assert [(a, b) for a, b, _ in top_pairs(own, 3)] == [("c0", "c1"), ("c0", "c2"), ("c1", "c0")]


@pytest.mark.parametrize(("count", "groups"), [(2, True), (20, False), (100, True)])
def test_few_and_many_classes_can_be_drawn(count: int, groups: bool, tmp_path: Path) -> None:
    members = tuple("head" if place < count / 2 else "tail" for place in range(count)) if groups else ("",) * count
    own = flow(np.arange(count * count).reshape(count, count) % 17, members)
    draw_flow([own] * (3 if count == 2 else 1), "t", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_flow_without_moves_can_be_drawn(tmp_path: Path) -> None:
    draw_flow([flow(np.eye(3), ("head",) * 3)], "t", tmp_path / "few.png")
    draw_flow([flow(np.eye(30), ("head",) * 30)], "t", tmp_path / "many.png")
    assert (tmp_path / "many.png").exists()
