"""Which relabelled images are shown, and the nearest image of the class that each was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrela_bench.reporting.evidence import NotDrawn, TrainingData
from fedrela_bench.reporting.gallery import choose, draw_gallery, gallery, gallery_title, nearest, relabelled_log
from fedrela_bench.reporting.pairs import Pair
from tests.reporting.fakes import study
from tests.reporting.files import npz, with_files

Log = dict[str, np.ndarray]


def log(*rows: tuple[int, int, int, float, float]) -> Log:
    """Rows of (position, original, label, posterior, rho)."""
    names = ("position", "original", "label", "posterior", "rho")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def test_the_best_of_every_pair_comes_before_the_second_best() -> None:
    given_log = log(
        (10, 0, 1, 0.1, 0.9), (11, 0, 1, 0.1, 0.8), (12, 0, 2, 0.1, 0.7), (13, 3, 1, 0.1, 0.6), (14, 0, 1, 0.1, 0.5)
    )
    assert given_log["position"][choose(given_log, 3)].tolist() == [10, 12, 13]
    assert given_log["position"][choose(given_log, 4)].tolist() == [10, 11, 12, 13]
    # With two, a target class that is not shown yet beats a second pair with the same one.
    assert given_log["position"][choose(given_log, 2)].tolist() == [10, 12]


def test_equal_rho_is_broken_by_the_posterior_and_then_the_position() -> None:
    given_log = log((9, 0, 1, 0.1, 1.0), (8, 0, 1, 0.3, 1.0), (7, 0, 1, 0.3, 1.0))
    assert given_log["position"][choose(given_log)].tolist() == [7, 8, 9]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(4, 6), st.sampled_from([0.1, 0.5]), st.sampled_from([0.2, 1.0])),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_the_choice_does_not_depend_on_the_order_of_the_log(
    rows: list[tuple[int, int, float, float]], most: int, shuffle: object
) -> None:
    listed = [(place, *row) for place, row in enumerate(rows)]
    mixed = list(listed)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = log(*listed), log(*mixed)
    shown = one["position"][choose(one, most)]
    assert shown.tolist() == other["position"][choose(other, most)].tolist()
    assert len(shown) == min(most, len(rows))
    pairs = {(row[0], row[1]) for row in rows}
    seen = {(rows[place][0], rows[place][1]) for place in shown}
    assert len(seen) == min(most, len(pairs)), "no pair twice before every pair was shown"


PIXELS = np.array([[0, 0], [3, 4], [1, 1], [6, 8], [1, 1], [0, 0]], dtype=np.uint8)[:, :, None, None]


def test_the_nearest_image_is_another_one_of_the_class() -> None:
    features = PIXELS.__getitem__
    assert nearest(features, 0, np.array([1, 3])) == (1, 5.0)
    assert nearest(features, 0, np.array([0, 3])) == (3, 10.0), "an image is not its own neighbour"
    assert nearest(features, 0, np.array([2, 4])) == (2, pytest.approx(np.sqrt(2))), "the first of equal ones"
    assert nearest(features, 3, np.array([0])) == (0, 10.0), "bytes do not wrap around"
    none, distance = nearest(features, 0, np.array([0]))
    assert none == -1 and np.isnan(distance)


def test_chunks_change_nothing() -> None:
    random = np.random.default_rng(3)
    values = random.integers(0, 256, (700, 5, 5, 1), dtype=np.uint8)
    everyone = np.arange(700)
    found, distance = nearest(values.__getitem__, 650, everyone)
    plain = ((values.astype(float) - values[650]) ** 2).sum(axis=(1, 2, 3))
    plain[650] = np.inf
    assert (found, distance) == (int(plain.argmin()), pytest.approx(np.sqrt(plain.min())))


def test_a_gallery_compares_the_new_class_with_the_old() -> None:
    labels = np.array([0, 1, 1, 0, 0, 2])
    found = gallery(log((0, 0, 1, 0.2, 0.9), (5, 2, 1, 0.3, 0.8)), labels, PIXELS.__getitem__)
    assert found.position.tolist() == [0, 5]
    assert found.neighbour.tolist() == [2, 2]
    assert found.distance == pytest.approx([np.sqrt(2)] * 2)
    assert found.own_distance[0] == pytest.approx(np.sqrt(2))
    assert np.isnan(found.own_distance[1]), "the only image of its class"
    assert found.ratio[0] == pytest.approx(1.0)
    assert (found.posterior.tolist(), found.rho.tolist()) == ([0.2, 0.3], [0.9, 0.8])


def test_the_first_relabelling_with_images_is_shown() -> None:
    none = {name: np.array([], dtype=int) for name in ("position", "original", "label", "posterior", "rho")}
    files = {"relabel_r0008.npz": npz(**none), "relabel_r0010.npz": npz(**log((1, 0, 1, 0.1, 0.2)))}
    assert relabelled_log(with_files(study(), {"cell-a-1": files}), "cell-a-1")["position"].tolist() == [1]
    only_flow = {"relabel_r0008.npz": npz(flow=np.eye(2))}
    with pytest.raises(NotDrawn, match="which images"):
        relabelled_log(with_files(study(), {"cell-a-1": only_flow}), "cell-a-1")


@pytest.mark.parametrize(("channels", "rows"), [(1, 1), (3, 13)])
def test_grey_and_coloured_pictures_can_be_drawn(channels: int, rows: int, tmp_path: Path) -> None:
    labels = np.array([0] * 20 + [1] * 3)
    images = np.random.default_rng(0).integers(0, 256, (23, 8, 8, channels), dtype=np.uint8)
    data = TrainingData(
        "d", ("cat", "a very long name of a class"), ("head", "tail"), labels, images, images.__getitem__
    )
    found = gallery(log(*((place, 0, 1, 0.1, 1.0) for place in range(rows))), labels, data.images)
    assert len(found.position) == min(rows, 12)
    title = gallery_title(study(), Pair("fedavg, τ=0.05", "fedavg", {}), 1, found)
    assert title.startswith("digits_lt: relabelled images, fedavg, τ=0.05, seed 1\n")
    draw_gallery(found, data, title, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_an_image_without_a_neighbour_can_be_drawn(tmp_path: Path) -> None:
    images = np.zeros((2, 4, 4, 1), dtype=np.uint8)
    data = TrainingData("d", ("a", "b"), ("", ""), np.array([0, 0]), images, images.__getitem__)
    draw_gallery(gallery(log((0, 0, 1, 0.1, 1.0)), data.labels, data.images), data, "t", tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()
