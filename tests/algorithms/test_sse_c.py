"""The sparse classifier of FedLoGe: its construction and its cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrela_bench.algorithms import sse_c
from fedrela_bench.algorithms.sse_c import build_ssec, cached_ssec, sparse_start, ssec_gradient, ssec_objective
from fedrela_bench.rng import generator

Golden = Callable[[str], Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and nothing in memory."""
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path))
    cached_ssec.cache_clear()
    return tmp_path / "ssec"


def _example(golden: Golden) -> dict[str, Any]:
    return dict(json.loads(golden("algorithm_examples.json").read_text())["examples"]["fedloge_ssec_objective"])


def test_the_objective_of_the_construction(golden: Golden) -> None:
    example = _example(golden)
    vectors = torch.tensor(example["inputs"]["M"], dtype=torch.float64).T.contiguous()
    value = float(ssec_objective(vectors, example["inputs"]["target_norm"]))
    assert value == pytest.approx(example["expected"]["objective"], abs=example["tolerance"])


@pytest.mark.parametrize("clipped", [False, True])
def test_the_written_gradient_is_the_objectives(clipped: bool) -> None:
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 9)))
    if clipped:
        vectors[4] = 1.5 * vectors[1]
    vectors.requires_grad_()
    (expected,) = torch.autograd.grad(ssec_objective(vectors), vectors)
    torch.testing.assert_close(ssec_gradient(vectors.detach()), expected, atol=1e-12, rtol=1e-9)


def test_zeros_are_chosen_over_the_whole_matrix_in_the_right_number(golden: Golden) -> None:
    expected = _example(golden)["expected"]
    for classes in (100, 10):
        start, free = sparse_start(512, classes, 0.6, generator(1, "test"))
        assert (start == 0).sum() == expected[f"zeros_for_d512_C{classes}_beta0p6"]
        assert len(free) == start.size - (start == 0).sum()
        assert len(set((start == 0).sum(axis=1))) > 1, "classes have different numbers of zeros"
    few, _ = sparse_start(4, 4, 0.95, generator(1, "test"))
    assert (few != 0).any(axis=1).all()


def test_the_construction_spreads_equal_vectors_and_keeps_zeros() -> None:
    start, _ = sparse_start(48, 10, 0.6, generator(7, "sse-c"))
    reached = build_ssec(48, 10, 7, 6000, 0.6)
    np.testing.assert_array_equal(reached == 0, start == 0)
    assert ssec_objective(torch.from_numpy(reached)) < ssec_objective(torch.from_numpy(start))
    norms = np.linalg.norm(reached, axis=1, keepdims=True)
    np.testing.assert_allclose(norms, 0.1, atol=0.01)
    cosines = reached @ reached.T / (norms * norms.T) - 2 * np.eye(10)
    assert cosines.max() < -0.1, "ten vectors cannot be wider apart than -1/9"


def test_the_construction_is_adam_on_the_free_entries() -> None:
    start, free = sparse_start(12, 4, 0.6, generator(3, "sse-c"))
    vectors, mask = torch.from_numpy(start).requires_grad_(), torch.zeros(start.size, dtype=torch.float64)
    mask[torch.from_numpy(free)] = 1
    adam = torch.optim.Adam([vectors], lr=1e-4)
    for _ in range(25):
        adam.zero_grad()
        ssec_objective(vectors).backward()  # type: ignore[no-untyped-call]
        assert vectors.grad is not None
        vectors.grad *= mask.view_as(vectors)
        adam.step()
    np.testing.assert_allclose(build_ssec(12, 4, 3, 25, 0.6), vectors.detach(), rtol=0, atol=1e-12)


def test_the_construction_needs_no_particular_number_of_threads() -> None:
    threads = torch.get_num_threads()
    first = build_ssec(40, 6, 1, 50, 0.6)
    torch.set_num_threads(threads + 1)
    try:
        second = build_ssec(40, 6, 1, 50, 0.6)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(first, second)


# the cache ----------------------------------------------------------------------------------------------------------


def _count_builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    builds: list[int] = []
    build = sse_c.build_ssec

    def counting(*key: Any) -> Any:
        builds.append(key[3])
        return build(*key)

    monkeypatch.setattr(sse_c, "build_ssec", counting)
    return builds


def test_the_cache_gives_the_same_bits_from_memory_and_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = _count_builds(monkeypatch)
    fresh = cached_ssec(8, 3, 5, 1000, 0.6)
    assert cached_ssec(8, 3, 5, 1000, 0.6) is fresh
    cached_ssec.cache_clear()
    again = cached_ssec(8, 3, 5, 1000, 0.6)
    assert builds == [1000]
    assert again.tobytes() == fresh.tobytes()
    assert not again.flags.writeable
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other key"])
def test_a_damaged_file_is_built_again(damage: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = cached_ssec(8, 3, 5, 1000, 0.6)
    (path,) = cache.iterdir()
    content = path.read_bytes()
    cached_ssec.cache_clear()
    if damage == "other key":
        cached_ssec(8, 3, 6, 1000, 0.6)
        (other,) = set(cache.iterdir()) - {path}
        content = other.read_bytes()
    changed = {"cut": content[:-8], "bit": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}.get(damage, content)
    path.write_bytes(changed)
    builds = _count_builds(monkeypatch)
    assert cached_ssec(8, 3, 5, 1000, 0.6).tobytes() == fresh.tobytes()
    assert builds == [1000]
    assert path.read_bytes() != changed, "the file is whole again"


def test_the_key_covers_everything_that_decides_the_matrix(cache: Path) -> None:
    keys = [
        (8, 3, 5, 1000, 0.6),
        (9, 3, 5, 1000, 0.6),
        (8, 3, 6, 1000, 0.6),
        (8, 3, 5, 1001, 0.6),
        (8, 3, 5, 1000, 0.5),
    ]
    matrices = [cached_ssec(*key).tobytes() for key in keys]
    assert len(set(matrices)) == len(list(cache.iterdir())) == len(keys)


def test_without_a_cache_folder_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "file"))
    cached_ssec.cache_clear()
    assert cached_ssec(8, 3, 5, 1000, 0.6).shape == (3, 8)


def test_short_constructions_leave_no_file(cache: Path) -> None:
    cached_ssec(8, 3, 5, 999, 0.6)
    assert not cache.exists()
